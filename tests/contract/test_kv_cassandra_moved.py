"""All nodes of a cluster get other addresses, as pods of Kubernetes do: a running store finds them again by name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.core.errors import TarnError
from tarn.kv.cassandra import CassandraKv, CassandraLimits, CassandraSettings
from tarn.kv.port import Partition, PartitionKind
from tarn.rpc.process.system import SystemClock
from tarn.testing.contract.cassandra_store import open_store
from tarn.testing.contract.kv_fixtures import get, put

pytestmark = [
    pytest.mark.cassandra,
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

clock = SystemClock()
NAME = "cassandra.example"
PLAIN = Partition("moved/plain", PartitionKind.PLAIN)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the name resolve to an address, from now on."""
    places: list[str] = []
    resolve = socket.getaddrinfo

    def resolve_name(host: Any, *arguments: Any, **named: Any) -> Any:
        return resolve(places[-1] if host == NAME else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_name)
    return places.append


async def until_it_answers(kv: CassandraKv) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await get(kv, PLAIN, b"probe")
            except TarnError:
                await asyncio.sleep(0.2)
            else:
                return


async def until_only(kv: CassandraKv, address: str) -> None:
    """Waits until the driver has removed the addresses that no node has."""
    async with asyncio.timeout(60):
        while {host.address for host in kv._cluster.metadata.all_hosts()} != {address}:
            await clock.sleep(0.2)


async def test_a_cluster_that_moved_is_found_again(
    tmp_path: Path, place: Callable[[str], None]
) -> None:
    place("127.0.0.1")
    with CassandraNodes(tmp_path) as nodes:
        points = (f"{NAME}:{nodes.native_port}",)
        settings = CassandraSettings(points, nodes.LOCAL_DATACENTER, "moved", 1)
        kv = await open_store(settings, CassandraLimits(request_seconds=2.0))
        for number, address in enumerate(("127.0.0.2", "127.0.0.3")):
            await put(kv, PLAIN, (b"%d" % number, b"value"))
            nodes.kill(0)
            nodes.move(0, address)
            await asyncio.to_thread(nodes.start, 0)
            place(address)
            await until_it_answers(kv)
            found = await get(kv, PLAIN, b"%d" % number)
            assert found is not None
            await until_only(kv, address)
        await kv.close()
