"""On a real node of Cassandra: services of both releases, and a gateway of this one before those of the last one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from cassandra_proxies import kv_url
from last_release import last_release
from mixed_services import judged, other_gateway, separate_node
from tests.support.servers.cassandra_nodes import CassandraNodes

pytestmark = [pytest.mark.cassandra, pytest.mark.long, pytest.mark.timeout(600)]


async def test_a_gateway_of_this_release_before_services_of_the_last_one(
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
        crossed = stack.enter_context(other_gateway(tmp_path / "gateway", old, {}, **blocks))
        await judged([crossed, new.tarn.endpoint], [old, new], seed=3)
        state = old.tarn.ok("--json", "upgrade", "status", *kv).json
        assert state["level"] == 1


def share_secret(source: Path, target: Path) -> None:
    """Gives the second node the secret of the installation."""
    (target / "data").mkdir(mode=0o700)
    secret = target / "data" / "secret"
    secret.write_bytes((source / "data" / "secret").read_bytes())
    secret.chmod(0o600)
