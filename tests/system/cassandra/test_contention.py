"""Several writers write one key through two replicas on three real nodes, while answers are lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cassandra_lake import ShiftedClock, replica_on
from cassandra_proxies import Cluster, statement_id
from lake import MAIN, create_repository
from tests.support.faults.tcp_proxy import Loss

from tarn.block.mem import MemBlockStore
from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, etag_of, pack, unpack
from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra import CassandraSettings, open_cassandra
from tarn.kv.records import Repository
from tarn.rpc.process.system import SystemIds
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName

pytestmark = [pytest.mark.cassandra, pytest.mark.slow, pytest.mark.timeout(240)]

KEYSPACE = "contention"
NEW = WriteCondition(if_none_match=True)
WRITERS = 6
COUNTERS = 3
VERSIONS = 12
LOSSES_LEAST = 4
LOSS_SECONDS = 0.3
BEHIND_SECONDS = 4.0
"""Difference between the clocks of the two replicas, in seconds."""
TABLE = "table"


def packed(operation: str, number: int) -> bytes:
    """Returns an object that is identified by the operation and the number."""
    return pack(Entry(number, 0, bytes(16), number.to_bytes(16, "big"), operation_id=operation))


@dataclass
class Log:
    """The log of a table, each version of which one writer writes, and the answers that writers got.

    Attributes:
        won: the acknowledged writers, by version.
        told: number of attempts by outcome.
        enough: set when enough answers were lost, so that the counters may stop.
        doubtful: number of writes that were refused after an attempt of unknown outcome. That attempt may have
            been applied and overwritten.
    """

    repository: Repository
    won: dict[int, list[str]] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)
    doubtful: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(
        self, replica: Graveler, path: str, row: bytes, condition: WriteCondition
    ) -> Kind | None:
        """Repeats a write until its outcome is known, as the same operation; returns why it is refused, or None."""
        is_doubtful = False
        while True:
            try:
                await replica.conditional.stage(
                    BranchName(self.repository, MAIN), path, row, condition
                )
            except TarnError as error:
                self.told[error.kind.name] += 1
                is_doubtful |= error.kind is Kind.UNKNOWN_OUTCOME
                if error.kind in {Kind.UNKNOWN_OUTCOME, Kind.UNAVAILABLE, Kind.EXHAUSTED}:
                    await asyncio.sleep(0.05)
                    continue
                self.doubtful += is_doubtful
                return error.kind
            self.told["done"] += 1
            return None

    async def append(self, replica: Graveler, writer: int) -> None:
        """Tries to write each version, in order; another writer may win it."""
        for version in range(VERSIONS):
            operation = f"{writer}-{version}"
            row = packed(operation, 1000 * version + writer)
            refused = await self.write(replica, f"log/{version:04}", row, NEW)
            assert refused in {None, Kind.FAILED_PRECONDITION}
            if refused is None:
                self.won.setdefault(version, []).append(operation)

    async def count(self, replica: Graveler, writer: int) -> int:
        """Adds one to a counter by If-Match, once per version and until enough answers are lost.

        Returns:
            The number of acknowledged increments.
        """
        added = 0
        number = 0
        while number < VERSIONS or not self.enough.is_set():
            while True:
                before = await replica.reading.lookup(self.repository, "main", "counter")
                after = packed(f"count-{writer}-{number}-{added}", unpack(before).size + 1)
                condition = WriteCondition(if_match=etag_of(before))
                added += 1
                if await self.write(replica, "counter", after, condition) is None:
                    break
            number += 1
        return number


async def lose(
    cluster: Cluster,
    rng: random.Random,
    lost: list[str],
    enough: asyncio.Event,
    end: asyncio.Event,
) -> None:
    """Loses answers of compare-and-sets, and some requests, until `end` is set."""
    while not end.is_set():
        name = rng.choice(("cas_insert", "cas_update"))
        loss = rng.choice((Loss.ANSWER, Loss.ANSWER, Loss.REQUEST))
        happened = cluster.proxies.lose(rng.randrange(3), loss, statement_id(name, KEYSPACE))
        await asyncio.sleep(LOSS_SECONDS)
        if happened.is_set():
            lost.append(f"{loss.name} of {name}")
        if len(lost) >= LOSSES_LEAST:
            enough.set()


@pytest.fixture
async def replicas(cassandra_cluster: Cluster, tmp_path: Path) -> AsyncIterator[list[Graveler]]:
    cassandra_cluster.until_whole()
    nodes = cassandra_cluster.nodes
    settings = CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, KEYSPACE, 3)
    clock = ShiftedClock()
    blocks = MemBlockStore(clock)
    stores = []
    for shift_seconds in (0.0, -BEHIND_SECONDS):
        own = ShiftedClock(shift_seconds)
        stores.append(await open_cassandra(settings, clock=own, ids=SystemIds(own)))
    async with (
        replica_on(stores[0], blocks, tmp_path / "one", clock) as one,
        replica_on(stores[1], blocks, tmp_path / "two", clock) as two,
    ):
        yield [one, two]
    for store in stores:
        await store.close()


async def test_one_writer_of_a_key_wins_although_answers_are_lost(
    cassandra_cluster: Cluster, replicas: list[Graveler]
) -> None:
    """No version is written twice, every writer finishes, and no acknowledged increment is lost."""
    repository = await create_repository(replicas[0], TABLE)
    log = Log(repository)
    start = WriteCondition(if_none_match=True)
    assert await log.write(replicas[0], "counter", packed("start", 0), start) is None

    async def commit() -> None:
        for number in range(3):
            await asyncio.sleep(0.5)
            request = CommitRequest("ann", str(number), allow_empty=True)
            try:
                await replicas[number % 2].committing.commit(BranchName(repository, MAIN), request)
            except TarnError as error:
                if error.kind not in {Kind.UNKNOWN_OUTCOME, Kind.UNAVAILABLE}:
                    raise

    lost: list[str] = []
    end = asyncio.Event()
    async with asyncio.TaskGroup() as losses:
        losses.create_task(lose(cassandra_cluster, random.Random(3), lost, log.enough, end))
        async with asyncio.TaskGroup() as group:
            group.create_task(commit())
            for writer in range(WRITERS):
                group.create_task(log.append(replicas[writer % 2], writer))
            counts = [group.create_task(log.count(replicas[n % 2], n)) for n in range(COUNTERS)]
        end.set()

    assert sorted(log.won) == list(range(VERSIONS))
    for version, winners in log.won.items():
        assert len(winners) == 1, f"version {version} was written by {winners}"
        for replica in replicas:
            row = await replica.reading.lookup(repository, "main", f"log/{version:04}")
            assert unpack(row).operation_id == winners[0]
    added = sum(count.result() for count in counts)
    found = unpack(await replicas[1].reading.lookup(repository, "main", "counter")).size
    assert added <= found <= added + log.doubtful, log.told
