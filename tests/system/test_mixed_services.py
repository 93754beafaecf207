"""A gateway of one release before graveler and auth of the other on one embedded store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from last_release import LastRelease, last_release
from mixed_services import judged, other_gateway, separate_node


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> LastRelease:
    return last_release(tmp_path_factory.mktemp("last"))


@pytest.mark.long
@pytest.mark.timeout(420)
async def test_a_gateway_of_this_release_serves_beside_that_of_the_last_ones_services(
    last: LastRelease, tmp_path: Path
) -> None:
    """Clients use both gateways, so each one reads what the other one wrote."""
    node = separate_node(tmp_path / "node", last.environment)
    node.start()
    try:
        with other_gateway(tmp_path / "gateway", node, {}) as endpoint:
            await judged((endpoint, node.tarn.endpoint), [node], seed=3)
    finally:
        node.stop()


@pytest.mark.timeout(120)
def test_a_gateway_that_proves_nothing_gets_no_keys_from_auth(
    last: LastRelease, tmp_path: Path
) -> None:
    """Gateways of release 0.9.0 do not prove that they are gateways, so auth goes last in an upgrade."""
    node = separate_node(tmp_path / "node", {})
    node.start()
    try:
        node.tarn.ok("repo", "create", "lake")
        with other_gateway(tmp_path / "gateway", node, last.environment) as endpoint:
            old = replace(node.tarn, endpoint=endpoint).s3(retries={"max_attempts": 1})
            with pytest.raises(ClientError):
                old.put_object(Bucket="lake", Key="main/a", Body=b"a")
        new = node.tarn.s3()
        assert new.list_objects_v2(Bucket="lake", Prefix="main/")["KeyCount"] == 0
        new.put_object(Bucket="lake", Key="main/a", Body=b"a")
    finally:
        node.stop()
