"""Back-pressure of the journal on a real node, whose disks nobody looks at: writes are refused before they fill."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cassandra_lake import ShiftedClock, replica_on
from lake import MAIN, create_repository, entry
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra import CassandraKv, CassandraSettings
from tarn.kv.port import COMPANION_KEYS, PAST_COMPANIONS
from tarn.kv.records import Repository
from tarn.testing.contract.cassandra_store import open_store
from tarn_graveler.assembly import Graveler, GravelerSettings
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName

LIMIT = 200_000
AT_ONCE = 100
WRITES_MAX = 20_000

pytestmark = [pytest.mark.cassandra, pytest.mark.timeout(300)]


@pytest.fixture
async def kv(
    cassandra_nodes: CassandraNodes, request: pytest.FixtureRequest
) -> AsyncIterator[CassandraKv]:
    nodes = cassandra_nodes
    keyspace = "waits_" + hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
    settings = CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, keyspace, 1)
    store = await open_store(settings)
    yield store
    await store.close()


class Bucket(MemBlockStore):
    """A bucket that takes no files of journals, if it is told so."""

    refuses = False

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        if self.refuses and "_tarn/journal/" in key.path:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket refuses files")
        await super().put(key, body)


async def write(graveler: Graveler, repository: Repository, path: str) -> TarnError | None:
    """Writes as a PUT does: first it is admitted. Returns the refusal."""
    try:
        with await graveler.admission.object(repository, 1):
            await graveler.staging.stage(BranchName(repository, MAIN), path, entry(1))
    except TarnError as error:
        return error
    return None


async def written(graveler: Graveler, repository: Repository, name: str) -> int:
    """Writes until that is refused, a round after each step; returns how many writes were acknowledged."""
    count, drain = 0, graveler.drain
    assert drain is not None
    while count < WRITES_MAX:
        await drain.round()
        async with asyncio.TaskGroup() as group:
            paths = [f"{name}{count + at:05}" for at in range(AT_ONCE)]
            tasks = [group.create_task(write(graveler, repository, path)) for path in paths]
        refused = [error for task in tasks if (error := task.result()) is not None]
        count += len(tasks) - len(refused)
        if refused:
            about = {(each.kind, each.reason) for each in refused}
            assert about == {(Kind.EXHAUSTED, Reason.JOURNAL_BEHIND)}
            return count
    raise AssertionError("writes were never refused")


async def held(kv: CassandraKv, graveler: Graveler, repository: Repository) -> int:
    """Returns the bytes of all events that the token of the branch holds."""
    branch = (await graveler.branches.fresh(BranchName(repository, MAIN))).branch
    size = 0
    for token in branch.tokens:
        rows, start = graveler.repositories.keys_of(repository).token(MAIN, token), COMPANION_KEYS
        while page := await kv.scan_companions(rows, start, PAST_COMPANIONS, 1_000):
            size += sum(len(each.key) + len(each.value) for each in page)
            start = page[-1].key + b"\0"
    return size


async def test_writes_are_refused_before_the_store_holds_much_more_than_the_limit(
    kv: CassandraKv, tmp_path: Path
) -> None:
    """By replicas that know of each other's events; deletes and commits go on, and all is drained in the end."""
    clock = ShiftedClock()
    blocks = Bucket(clock)
    settings = GravelerSettings("test", keeps_events=True, journal_undrained_max=LIMIT)
    async with (
        replica_on(kv, blocks, tmp_path / "one", clock, settings) as one,
        replica_on(kv, blocks, tmp_path / "two", clock, settings) as two,
    ):
        drains = [drain for drain in (one.drain, two.drain) if drain is not None]
        repository = await create_repository(one)
        for drain in drains:
            drain._ready_at = 0.0
            await drain.round()
        assert await write(one, repository, "first") is None
        blocks.refuses = True
        clock.shift_seconds += 300
        begin = await held(kv, one, repository)
        first = await written(two, repository, "b")
        assert first > 0
        step = LIMIT // 256
        late = AT_ONCE * (await held(kv, one, repository) - begin) // first
        assert LIMIT - begin - late <= await held(kv, one, repository) <= LIMIT + late + step
        await drains[0].round()
        refused = await write(one, repository, "a")
        assert refused is not None
        assert "journal.undrained_max" in refused.message
        assert await one.staging.unstage(BranchName(repository, MAIN), ["b00000"]) == [None]
        await one.committing.commit(BranchName(repository, MAIN), CommitRequest("ann", "all"))
        blocks.refuses = False
        clock.shift_seconds += 120
        for _ in range(2):
            for drain in drains:
                await drain.round()
            clock.shift_seconds += 120
        assert await write(one, repository, "a") is None
        assert await write(two, repository, "b") is None
