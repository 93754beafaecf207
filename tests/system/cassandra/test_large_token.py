"""Large staging tokens, many commits and many uploads: a real node warns of no tombstones.

`TARN_LARGE_TOKEN_ROWS=1000000` runs it at full size. The node's limits are scaled down in proportion (see
`cassandra_nodes`), so this size causes the warnings that a million rows would cause.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cassandra_lake import ShiftedClock, replica_on
from lake import MAIN, create_repository, entry
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.block.mem import MemBlockStore
from tarn.core.listing.pages import PageRequest
from tarn.kv.cassandra import CassandraKv, CassandraSettings
from tarn.kv.port import Group, Partition, PartitionKind
from tarn.kv.records import Repository
from tarn.testing.contract.cassandra_store import open_store
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName
from tarn_graveler.uploads.state import NewUpload
from tarn_proto.store.v1 import graveler_pb2 as pb

ROWS = int(os.environ.get("TARN_LARGE_TOKEN_ROWS", "30000"))
AT_ONCE = 2000
UPLOADS = 400

pytestmark = [pytest.mark.cassandra, pytest.mark.slow, pytest.mark.timeout(60 + ROWS // 300)]


@pytest.fixture
def keyspace(request: pytest.FixtureRequest) -> str:
    return "tombs_" + hashlib.sha256(request.node.name.encode()).hexdigest()[:8]


@pytest.fixture
async def kv(cassandra_nodes: CassandraNodes, keyspace: str) -> AsyncIterator[CassandraKv]:
    nodes = cassandra_nodes
    settings = CassandraSettings(nodes.contact_points, nodes.LOCAL_DATACENTER, keyspace, 1)
    store = await open_store(settings)
    yield store
    await store.close()


class Warnings:
    """The warnings of tombstones in a keyspace that a node logs from now on."""

    def __init__(self, nodes: CassandraNodes, keyspace: str) -> None:
        self._log = nodes.log(0)
        self._start = self._log.stat().st_size
        self._keyspace = keyspace

    def lines(self) -> list[str]:
        said = self._log.read_bytes()[self._start :].decode(errors="replace").splitlines()
        return [line for line in said if "tombstone" in line and f"{self._keyspace}." in line]


@pytest.fixture
def warnings(cassandra_nodes: CassandraNodes, kv: CassandraKv, keyspace: str) -> Warnings:
    return Warnings(cassandra_nodes, keyspace)


class Table:
    """Writes a table of many files on a branch."""

    def __init__(self, graveler: Graveler, repository: Repository) -> None:
        self.graveler = graveler
        self.repository = repository
        self.main = BranchName(repository, MAIN)

    @staticmethod
    def path(number: int) -> str:
        return f"table/part={number % 100:02}/{number:08}.parquet"

    async def stage(self) -> None:
        staging = self.graveler.staging
        for start in range(0, ROWS, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, ROWS))
            async with asyncio.TaskGroup() as group:
                for n in numbers:
                    work = staging.stage(self.main, self.path(n), entry(n + 1))
                    group.create_task(work)

    async def delete(self, numbers: range) -> None:
        for start in range(0, len(numbers), 1000):
            paths = [self.path(n) for n in numbers[start : start + 1000]]
            assert set(await self.graveler.staging.unstage(self.main, paths)) == {None}

    async def page(self, after: str) -> list[str]:
        request = PageRequest(after=after, limit=1000)
        page = await self.graveler.reading.page(self.repository, "main", request)
        return page.paths

    async def look(self, left: list[str]) -> None:
        """Reads the first page, pages in the middle, and the last page."""
        for at in (0, len(left) // 3, 2 * len(left) // 3, len(left) - 1000):
            assert await self.page(left[at - 1] if at else "") == left[at : at + 1000]


async def test_a_large_token_is_listed_committed_and_dropped_without_a_tombstone_warning(
    kv: CassandraKv, warnings: Warnings, tmp_path: Path
) -> None:
    clock = ShiftedClock()
    async with replica_on(kv, MemBlockStore(clock), tmp_path, clock) as graveler:
        table = Table(graveler, await create_repository(graveler))
        await table.stage()
        paths = sorted(table.path(n) for n in range(ROWS))
        await table.look(paths)
        gone = range(ROWS // 4)
        await table.delete(gone)
        left = sorted(set(paths) - {table.path(n) for n in gone})
        await table.look(left)
        token = (await graveler.branches.fresh(table.main)).branch.staging
        rows = graveler.repositories.keys_of(table.repository).token(MAIN, token)
        await graveler.committing.commit(table.main, CommitRequest("ann", "all of it"))
        await table.look(left)
        for seconds in (61, 3660, 3660 + 86_400):
            clock.shift_seconds = seconds
            await graveler.cleaner.drop_due()
            await table.look(left)
        assert await kv.scan(rows, b"", None, 10) == []
    assert warnings.lines() == []


async def test_many_small_commits_leave_no_queue_of_tombstones(
    kv: CassandraKv, warnings: Warnings, tmp_path: Path
) -> None:
    """Each commit adds tokens to the drop list, which is then processed and read again."""
    clock = ShiftedClock()
    commits = 60
    async with replica_on(kv, MemBlockStore(clock), tmp_path, clock) as graveler:
        repository = await create_repository(graveler, "busy")
        dropped = 0
        for number in range(commits):
            await graveler.staging.stage(BranchName(repository, MAIN), "a", entry(number + 1))
            await graveler.committing.commit(
                BranchName(repository, MAIN), CommitRequest("ann", str(number))
            )
            clock.shift_seconds += 61
            dropped += await graveler.cleaner.drop_due()
        for _ in range(
            3
        ):  # the last tokens are found to be unnamed, and dropped after another drop delay
            clock.shift_seconds += 61
            dropped += await graveler.cleaner.drop_due()
        assert dropped >= commits
        await graveler.reading.page(repository, "main", PageRequest())
    assert warnings.lines() == []


async def test_listings_skip_many_ended_uploads_without_a_tombstone_warning(
    kv: CassandraKv, warnings: Warnings, tmp_path: Path
) -> None:
    """The partition of their day is dropped when the last of its uploads has ended."""
    clock = ShiftedClock()
    async with replica_on(kv, MemBlockStore(clock), tmp_path, clock) as graveler:
        uploads = graveler.uploads
        repository = await create_repository(graveler, "parts")

        async def begin(path: str) -> str:
            new = NewUpload(MAIN, path, entry(0), "ann", "", is_full_object_checksum=False)
            return (await uploads.create(repository, new)).upload_id

        async def begin_and_end(number: int) -> None:
            upload_id = await begin(f"table/{number:04}")
            for part in (1, 2):
                record = pb.UploadPartRecord(part_number=part, size_bytes=9)
                await uploads.record_part(repository, upload_id, record)
            if number % 2:
                await uploads.abort(repository, upload_id)
                return
            claim = await uploads.begin_complete(repository, upload_id, bytes(32))
            await uploads.finish_complete(
                repository, upload_id, claim.op_id, entry(number + 1, upload_id)
            )

        async def look() -> list[str]:
            found = await uploads.page(BranchName(repository, MAIN), "", ("", ""), 1000)
            assert (
                await uploads.page(BranchName(repository, MAIN), "table/", ("table/0100", ""), 5)
                == []
            )
            assert [name async for name, _ in graveler.iterators.branches(repository)] == [MAIN]
            assert [name async for name, _ in graveler.iterators.tags(repository)] == []
            return [upload.upload_id for upload in found]

        left = await begin("zebra")
        for start in range(0, UPLOADS, 50):
            async with asyncio.TaskGroup() as group:
                for number in range(start, start + 50):
                    group.create_task(begin_and_end(number))
        assert await look() == [left]
        clock.shift_seconds = 5 * 86_400
        young = await begin("young")
        assert await graveler.daily_uploads.tidy(repository) == 0
        assert await look() == [young, left]
        await uploads.abort(repository, left)
        assert await graveler.daily_uploads.tidy(repository) == 1
        clock.shift_seconds += 61
        assert await graveler.cleaner.drop_due() == 1
        assert await look() == [young]
    assert warnings.lines() == []


async def test_rows_that_are_deleted_one_by_one_cause_a_warning(
    kv: CassandraKv, warnings: Warnings
) -> None:
    """Shows that the other tests search the right log for the right words."""
    plain = Partition("one by one", PartitionKind.PLAIN)
    keys = [b"%04d" % n for n in range(100)]
    assert set(await kv.set_many(plain, [Group(k, ((k, b"x"),)) for k in keys])) == {None}
    await kv.delete_many(plain, keys)
    assert await kv.scan(plain, b"", None, 10) == []
    assert len(warnings.lines()) == 1
