"""A gateway of one release before graveler and auth of the other on one embedded store, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from last_release import LastRelease, last_release
from mixed_services import judged, other_gateway, separate_node


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> LastRelease:
    return last_release(tmp_path_factory.mktemp("last"))


@pytest.mark.timeout(420)
@pytest.mark.parametrize("newer", ["services", "gateway"])
async def test_a_gateway_of_the_other_release_serves_beside_that_of_its_services(
    last: LastRelease, tmp_path: Path, newer: str
) -> None:
    """Clients use both gateways, so each one reads what the other one wrote.

    The last release makes the store, which so has its feature level, as in a rollout.
    """
    node = separate_node(tmp_path / "node", last.environment)
    node.start()
    gateway: Mapping[str, str] = {}
    if newer == "services":
        node.stop()
        gateway = last.environment
        own = node.environment
        node.environment = {name: text for name, text in own.items() if name not in gateway}
        await node.restart()
    try:
        with other_gateway(tmp_path / "gateway", node, gateway) as endpoint:
            await judged((endpoint, node.tarn.endpoint), [node], seed=3)
    finally:
        node.stop()
