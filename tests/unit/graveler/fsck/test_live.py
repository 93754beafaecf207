"""A check during writes reports no moving entry as a finding; an interrupted check resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from fsck_lab import FsckLab

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockInfo, BlockKey
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, CommitId, TagId
from tarn.fsck.session import FsckOptions
from tarn.fsck.state import open_state
from tarn.kv.keys import path_key
from tarn.kv.mem import MemKv
from tarn.kv.port import Partition, PartitionInfo, Row, Versioned
from tarn_graveler.records.branches import BranchName

Hook = Callable[[str], Awaitable[None]]


class WatchedBlocks:
    """`ReadBlocks` that calls a hook before every request."""

    def __init__(self, blocks: MemBlockStore, hook: Hook) -> None:
        self._blocks = blocks
        self._hook = hook

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        await self._hook(f"read {key.path}")
        return await self._blocks.read(key, start, length)

    def stream(self, key: BlockKey, start: int, length: int) -> AsyncIterator[bytes | memoryview]:
        return self._blocks.stream(key, start, length)

    async def stat(self, key: BlockKey) -> BlockInfo:
        await self._hook(f"stat {key.path}")
        return await self._blocks.stat(key)

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        await self._hook(f"list {prefix}")
        return await self._blocks.list_page(namespace, prefix, after, limit)

    async def close(self) -> None:
        raise AssertionError("not opened by the check")


class WatchedKv(MemKv):
    """A `MemKv` that calls a hook before every request; shares the rows of another."""

    def __init__(self, kv: MemKv, hook: Hook) -> None:
        super().__init__()
        self._partitions = kv._partitions
        self._hook = hook

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        await self._hook(f"get {partition.name}")
        return await super().get_many(partition, keys, settle=settle)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        await self._hook(f"scan {partition.name}")
        async for batch in super().scan_arrow(partition, start, end):
            yield batch

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        await self._hook(f"scan {partition.name}")
        return await super().scan(partition, start, end, limit)

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        async for listed in super().partitions(prefix):
            await self._hook(f"listed {listed.name}")
            yield listed


def watch(lab: FsckLab, hook: Hook) -> FsckLab:
    """Returns the same lab with a check that calls a hook before every request."""
    return replace(lab, kv=WatchedKv(lab.kv, hook), read_blocks=WatchedBlocks(lab.blocks, hook))


class Writers:
    """All operations of users, one step before each request of the check.

    The check runs as if two days later, so all of their data count as old, and no finding is suppressed because
    of its age.
    """

    def __init__(self, lab: FsckLab, every: int, start: int) -> None:
        self._lab = lab
        self._every = every
        self._count = start
        self._turn = asyncio.Lock()
        self._committed: list[str] = []
        self._staged: list[str] = []

    async def step(self, _request: str) -> None:
        async with self._turn:
            await self._step()

    async def _step(self) -> None:
        self._count += 1
        if self._count % self._every:
            return
        number = self._count // self._every
        lake = self._lab.lake
        graveler, repository = lake.graveler, lake.repository
        match number % 7:
            case 0 | 1 | 2:
                await self._lab.put(f"live/{number}")
                self._staged.append(f"live/{number}")
            case 3:
                head = await self._commit()
                await graveler.tags.create(repository, TagId(f"v{number}"), head)
            case 4:
                branch_id = BranchId(f"b{number}")
                head = (await self._lab.branch()).commit_id
                await graveler.branches.create(BranchName(repository, branch_id), head)
                await self._lab.put(f"live/{number}", branch=branch_id)
            case 5 if self._committed:
                await lake.delete(self._committed.pop())
            case _:
                await self._commit()
                lake.clock.advance(61)
                await graveler.cleaner.drop_due()

    async def _commit(self) -> CommitId:
        if self._staged:
            await self._lab.commit()
        self._committed += self._staged
        self._staged = []
        return (await self._lab.branch()).commit_id


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 5, 12])
async def test_a_lake_under_writes_is_clean(lab: FsckLab, every: int, start: int) -> None:
    for number in range(30):
        await lab.put(f"before/{number}")
    await lab.commit()
    writers = Writers(lab, every, start)
    assert await watch(lab, writers.step).check() == [], lab.details


async def test_a_token_dropped_during_the_check_is_no_finding(lab: FsckLab) -> None:
    """Its rows and their blocks are removed between the scan and the listing."""
    block = await lab.put("gone")

    async def commit_and_collect(request: str) -> None:
        if request == "list data/" and block in await lab.listed("data/"):
            await lab.put("gone", b"other")
            await lab.commit()
            await lab.lake.drop_everything_removed()
            await lab.blocks.delete_many(lab.namespace, [block])

    assert await watch(lab, commit_and_collect).check() == []


async def test_a_branch_deleted_during_the_check_is_no_finding(lab: FsckLab) -> None:
    """The rows of its token still exist, but no record names the token any more."""
    graveler, dev = lab.lake.graveler, lab.lake.branch(BranchId("dev"))
    await graveler.branches.create(dev, (await lab.branch()).commit_id)
    block = await lab.put("gone", branch=dev.branch_id)

    async def delete_branch(request: str) -> None:
        if request == "list data/" and block in await lab.listed("data/"):
            await graveler.branches.delete(dev, partial(graveler.drops.announce, dev))
            await lab.blocks.delete_many(lab.namespace, [block])

    assert await watch(lab, delete_branch).check() == []
    assert block not in await lab.listed("data/")


async def test_a_staged_entry_replaced_during_the_check_is_no_finding(lab: FsckLab) -> None:
    block = await lab.put("gone")

    async def replace_it(request: str) -> None:
        if request == "list data/" and block in await lab.listed("data/"):
            await lab.put("gone", b"other")
            await lab.blocks.delete_many(lab.namespace, [block])

    assert await watch(lab, replace_it).check() == []


async def test_a_copy_to_a_branch_that_was_scanned_already_is_no_orphan(lab: FsckLab) -> None:
    """The row moves from `main`, before it is read, to `a`, which was read before."""
    await lab.put("x")
    graveler, a = lab.lake.graveler, lab.lake.branch(BranchId("a"))
    await lab.commit()
    await graveler.branches.create(a, (await lab.branch()).commit_id)
    await lab.put("moved")
    staging = await lab.lake.staging_rows()
    (row,) = await lab.kv.get_many(staging, [path_key("moved")])
    assert row is not None
    at_a = (await lab.branch(BranchId("a"))).staging.token_id
    scanned = False

    async def move(request: str) -> None:
        nonlocal scanned
        scanned = scanned or f"/a:{at_a}" in request
        if (
            scanned
            and request == f"get {lab.keys.refs.name}"
            and await lab.kv.scan(staging, b"", None, 1)
        ):
            await graveler.staging.stage(a, "moved", row.value)
            await lab.kv.drop_partition(staging)

    watched = watch(lab, move)
    assert await watched.check() == []
    assert not await lab.kv.scan(staging, b"", None, 1), "the row must have moved"


# ---- resuming


class StopError(Exception):
    """The check is killed here."""


@pytest.mark.parametrize("verify", [False, True])
async def test_a_check_that_is_stopped_anywhere_resumes_and_finds_the_same(
    lab: FsckLab, verify: bool
) -> None:
    for number in range(40):
        await lab.put(f"{number:02}")
    await lab.commit()
    lost = await lab.put("lost")
    await lab.remove_block(lost)
    orphan = await lab.put("twice")
    await lab.put("twice", b"again")
    expected = [("block-missing", lost), ("block-orphan", orphan)]
    options = FsckOptions(verify_data=verify, concurrency=2)
    requests: list[str] = []

    async def count(request: str) -> None:
        requests.append(request)

    assert await watch(lab, count).check(options) == expected
    total = len(requests)
    ranges = {request for request in requests if "/ranges/" in request}
    assert len(ranges) >= 5
    for stop_at in range(1, total, 7):
        seen: list[str] = []

        async def stop(request: str, seen: list[str] = seen, stop_at: int = stop_at) -> None:
            seen.append(request)
            if len(seen) == stop_at:
                raise StopError

        stopped = watch(lab, stop)
        with pytest.raises(StopError):
            await stopped.check(options, state=f"state-{stop_at}")
        assert await stopped.check(options, state=f"state-{stop_at}") == expected
        again = [each for each in seen if "/ranges/" in each]
        assert len(again) <= len(ranges) + options.concurrency, "finished ranges are not read again"
        assert len(seen) < 2 * total


async def test_a_finished_check_begins_anew(lab: FsckLab) -> None:
    assert await lab.check() == []
    block = await lab.put("x")
    await lab.remove_block(block)
    assert await lab.check() == [("block-missing", block)]


async def test_state_of_another_check_or_another_program_is_refused(lab: FsckLab) -> None:
    async def stop(request: str) -> None:
        if request == "list _tarn/":
            raise StopError

    with pytest.raises(StopError):
        await watch(lab, stop).check()
    with pytest.raises(TarnError, match="unfinished check"):
        await lab.check(FsckOptions(verify_data=True))
    (lab.folder / "other").write_text("not a state file, but something that is worth keeping")
    with pytest.raises(TarnError, match="not a state file of this version"):
        await lab.check(state="other")
    state = open_state(lab.folder / "taken", "x", 0)
    with pytest.raises(TarnError, match="another check uses"):
        open_state(lab.folder / "taken", "x", 0)
    state.close()
