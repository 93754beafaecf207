"""On a real node of Cassandra: services of both releases, and before each of them a gateway of the other one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from cassandra_proxies import kv_url
from last_release import last_release
from mixed_services import judged, other_gateway, separate_node

from tarn.testing.servers.cassandra_nodes import CassandraNodes

pytestmark = [pytest.mark.cassandra, pytest.mark.timeout(600)]


async def test_gateways_and_services_of_both_releases_are_crossed(
    cassandra_nodes: CassandraNodes, tmp_path: Path
) -> None:
    """Clients write by one pair and read by the other, and commit by either graveler."""
    last = last_release(tmp_path / "release")
    kv = ("--kv", kv_url(cassandra_nodes, "mixed"))
    blocks = {"TARN_BLOCKSTORE_LOCAL_PATH": str(tmp_path / "blocks")}
    old = separate_node(tmp_path / "old", last.environment, *kv, **blocks)
    new = separate_node(tmp_path / "new", {}, *kv, **blocks)
    with ExitStack() as stack:
        old.start()
        stack.callback(old.stop)
        share_secret(old.folder, new.folder)
        new.start(is_first=False)
        stack.callback(new.stop)
        gateways = [
            stack.enter_context(other_gateway(tmp_path / name, services, code, **blocks))
            for name, services, code in (
                ("new-gateway", old, {}),
                ("old-gateway", new, last.environment),
            )
        ]
        await judged(gateways, [old, new], seed=3)
        state = old.tarn.ok("--json", "upgrade", "status", *kv).json
        assert state["level"] == 1


def share_secret(source: Path, target: Path) -> None:
    """Gives the second node the secret of the installation."""
    (target / "data").mkdir(mode=0o700)
    secret = target / "data" / "secret"
    secret.write_bytes((source / "data" / "secret").read_bytes())
    secret.chmod(0o600)
