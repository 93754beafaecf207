"""Three real nodes: if one dies, no acknowledged write is lost; if two die, no write is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from cassandra_proxies import Cluster
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra import CassandraKv, CassandraLimits, CassandraSettings
from tarn.kv.port import OutcomeUnknownError, Partition, PartitionKind, PredicateFailedError
from tarn.testing.contract.cassandra_store import open_store
from tarn.testing.contract.kv_fixtures import get, put, scan_all

pytestmark = [
    pytest.mark.cassandra,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

TASKS = 4
LIMITS = CassandraLimits(request_seconds=3.0)


@pytest.fixture
def nodes(cassandra_cluster: Cluster) -> CassandraNodes:
    return cassandra_cluster.nodes


@pytest.fixture
async def kv(nodes: CassandraNodes) -> AsyncIterator[CassandraKv]:
    settings = CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, "three", 3)
    store = await open_store(settings, LIMITS)
    yield store
    await store.close()


class Writers:
    """Writers that increment a counter and add plain rows, and record which writes were acknowledged."""

    def __init__(self, kv: CassandraKv) -> None:
        self.kv = kv
        self.register = Partition("writers/register", PartitionKind.REGISTER, 2)
        self.plain = Partition("writers/plain", PartitionKind.PLAIN, 4)
        self.counted = self.unknown = 0
        self.rows: set[bytes] = set()
        self.stopped = False

    async def increment(self) -> None:
        (found,) = await self.kv.get_many(self.register, [b"counter"], settle=True)
        value = b"%d" % (int(found.value) + 1 if found else 1)
        try:
            await self.kv.set_if(
                self.register, b"counter", value, found.predicate if found else None
            )
        except OutcomeUnknownError:
            self.unknown += 1
        except PredicateFailedError:
            pass
        else:
            self.counted += 1

    async def add(self, task: int, number: int) -> None:
        key = b"%d/%06d" % (task, number)
        await put(self.kv, self.plain, (key, key))
        self.rows.add(key)

    async def work(self, task: int) -> None:
        for number in range(100_000):
            if self.stopped:
                return
            with suppress(TarnError, AssertionError):  # not acknowledged
                await self.increment()
                await self.add(task, number)

    async def acknowledged(self, more: int) -> None:
        """Waits until `more` further rows are acknowledged."""
        goal = len(self.rows) + more
        async with asyncio.timeout(60):
            while len(self.rows) < goal:  # noqa: ASYNC110 - the tasks count rows and signal no event
                await asyncio.sleep(0.01)


async def test_nothing_acknowledged_is_lost_when_a_node_dies(
    nodes: CassandraNodes, kv: CassandraKv
) -> None:
    writers = Writers(kv)
    async with asyncio.TaskGroup() as tasks:
        for task in range(TASKS):
            tasks.create_task(writers.work(task))
        await writers.acknowledged(50)
        await asyncio.to_thread(nodes.kill, 2)
        await writers.acknowledged(50)
        await asyncio.to_thread(nodes.start, 2)
        await writers.acknowledged(50)
        writers.stopped = True
    found = {key for key, _ in await scan_all(kv, writers.plain)}
    assert found >= writers.rows
    counter = int(await get(kv, writers.register, b"counter") or b"0")
    assert writers.counted <= counter <= writers.counted + writers.unknown


async def test_without_a_quorum_nothing_is_acknowledged_and_everything_comes_back(
    nodes: CassandraNodes, kv: CassandraKv
) -> None:
    register = Partition("quorum/register", PartitionKind.REGISTER)
    version = await kv.set_if(register, b"k", b"1", None)
    for index in (1, 2):
        await asyncio.to_thread(nodes.kill, index)
    with pytest.raises(TarnError) as caught:
        await kv.get_many(register, [b"k"])
    assert caught.value.kind is Kind.UNAVAILABLE
    with pytest.raises(TarnError) as caught:
        await kv.set_if(register, b"k", b"2", version)
    assert caught.value.kind in (Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME)
    for index in (1, 2):
        await asyncio.to_thread(nodes.start, index)
    async with asyncio.timeout(60):
        while True:
            with suppress(TarnError):
                (found,) = await kv.get_many(register, [b"k"], settle=True)
                break
            await asyncio.sleep(0.1)
    assert found is not None
    assert found.value in (b"1", b"2")
    await kv.set_if(register, b"k", b"3", found.predicate)
