"""Prunes: what they leave, and that none runs beside a backup or harms one when it dies or takes too long."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from backup_lab import INSTALLATION, BackupLab
from dumped_lake import transfer
from graveler_service import running_service
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.core.errors import Kind, TarnError
from tarn.snapshot.files.bucket import BucketTarget
from tarn.snapshot.files.content import content_file
from tarn.snapshot.files.manifest import Scope
from tarn.snapshot.files.marks import MARK_US, begin_prune, begin_snapshot, begun_file
from tarn.snapshot.files.pruning import prune
from tarn.snapshot.files.stored import check_files, open_snapshot, snapshot_ids
from tarn.snapshot.files.target import FolderTarget, Target
from tarn.snapshot.repository.dumping import RepositoryDump
from tarn.snapshot.store import OpenStore
from tarn.snapshot.store import dump as dump_store


async def test_a_prune_leaves_what_the_kept_backups_need(lab: BackupLab, target: Target) -> None:
    lab.target = target
    made = []
    await lab.lake.graveler.cleaner.drop_due()  # the first pass makes the checkpoint
    for size in (1, 2, 3):
        await lab.put("a", size)
        lab.lake.clock.advance(1)
        made.append((await lab.back_up()).snapshot_id)
    done = await prune(target, 1, lab.lake.clock, SeededIds(lab.lake.clock))
    assert (done.kept, done.removed) == ((made[2],), (made[0], made[1]))
    assert done.chunks == 4  # of each removed backup, what is new and its index
    assert await snapshot_ids(target, Scope.INSTALLATION) == [made[2]]
    left = [name async for name in target.files("installation")]
    assert {name.split("/")[1] for name in left} == {made[2]}
    assert await check_files(await open_snapshot(target, Scope.INSTALLATION), lab.options()) == []
    async with lab.served(await lab.restored()) as lake:
        assert await lake.get("a") == 3


async def test_a_prune_and_an_unfinished_backup_exclude_each_other(lab: BackupLab) -> None:
    await lab.back_up()
    ids, clock = SeededIds(lab.lake.clock), lab.lake.clock
    unfinished = "20261123T090000Z-0000000000"
    await begin_snapshot(lab.target, Scope.INSTALLATION, unfinished, clock.now_us())
    with pytest.raises(TarnError, match="is being made"):
        await prune(lab.target, 1, clock, ids)
    assert [name async for name in lab.target.files("prunes")] == []
    # A process that died does not keep prunes away for ever, and its files go.
    clock.advance(MARK_US / 1_000_000)
    await prune(lab.target, 1, clock, ids)
    assert not await lab.target.has(begun_file(Scope.INSTALLATION, unfinished))

    mark = json.dumps({"begin_time_us": clock.now_us()}).encode()
    await lab.target.put("prunes/x.json", mark)
    clock.advance(1)
    with pytest.raises(TarnError, match="prune"):
        await lab.back_up()
    clock.advance(MARK_US / 1_000_000)
    await lab.back_up()


async def test_a_prune_of_backups_leaves_dumps_in_the_same_place(
    lab: BackupLab, tmp_path: Path
) -> None:
    await lab.put("a", 1)
    place = OpenStore(lab.kv, INSTALLATION, "mem", is_shared=False)
    ids, clock = SeededIds(lab.lake.clock), lab.lake.clock
    await dump_store(place, lab.target, ids, lab.options())
    (tmp_path / "service").mkdir()
    async with running_service(tmp_path / "service") as service:
        begun = await RepositoryDump.begin(lab.target, "lake", ids, lab.options())
        await transfer(service).dump("lake", begun)
        await begun.finish()
    for size in (2, 3):
        clock.advance(1)
        await lab.put("a", size)
        await lab.back_up()
    await prune(lab.target, 1, clock, ids)
    for scope in Scope:
        snapshot = await open_snapshot(lab.target, scope)
        assert snapshot.manifest.rows > 0
        assert await check_files(snapshot, lab.options()) == []


@pytest.mark.parametrize("scope", Scope)
async def test_a_snapshot_of_any_scope_keeps_a_prune_away(scope: Scope, tmp_path: Path) -> None:
    target, clock = FolderTarget(tmp_path), ManualClock()
    await begin_snapshot(target, scope, "20261123T090000Z-0000000000", clock.now_us())
    with pytest.raises(TarnError, match=f"{scope.value}/.* is being made"):
        await prune(target, 1, clock, SeededIds(clock))


async def test_a_mark_that_cannot_be_read_counts(tmp_path: Path) -> None:
    target = FolderTarget(tmp_path)
    await target.put(
        begun_file(Scope.INSTALLATION, "20261123T090000Z-0000000000"), b"of a later version"
    )
    clock = ManualClock()
    with pytest.raises(TarnError, match="is being made"):
        await prune(target, 1, clock, SeededIds(clock))


Begin = Callable[[Target, int], Awaitable[object]]


async def begin_a_backup(target: Target, now_us: int) -> None:
    await begin_snapshot(target, Scope.INSTALLATION, "20261123T090000Z-0000000000", now_us)


async def begin_a_prune(target: Target, now_us: int) -> None:
    await begin_prune(target, "p", now_us)


class Interrupted(BucketTarget):
    """Does something before one of its calls."""

    def __init__(
        self, blocks: MemBlockStore, call: int, work: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(blocks, "mem://backups")
        self.calls_left = call
        self._work = work

    async def _call(self) -> None:
        self.calls_left -= 1
        if self.calls_left == -1:
            await self._work()

    async def put(self, name: str, data: bytes) -> None:
        await self._call()
        await super().put(name, data)

    async def has(self, name: str) -> bool:
        await self._call()
        return await super().has(name)

    async def files(self, folder: str) -> AsyncIterator[str]:
        await self._call()
        async for name in super().files(folder):
            yield name


@pytest.mark.parametrize(
    ("one", "other"), [(begin_a_backup, begin_a_prune), (begin_a_prune, begin_a_backup)]
)
async def test_a_backup_and_a_prune_never_both_begin(one: Begin, other: Begin) -> None:
    """The other one begins before each call of the first one."""
    for call in range(20):
        blocks, refused = MemBlockStore(ManualClock()), 0

        async def begin(work: Begin, target: Target) -> None:
            nonlocal refused
            try:
                await work(target, 1)
            except TarnError as error:
                if error.kind is not Kind.CONFLICT:
                    raise
                refused += 1

        plain = BucketTarget(blocks, "mem://backups")
        target = Interrupted(blocks, call, partial(begin, other, plain))
        await begin(one, target)
        if target.calls_left >= 0:
            return
        assert refused, f"call {call}"
    raise AssertionError("the calls never end")


class Dying(FolderTarget):
    """Deletes files in the order of their names; dies after some."""

    def __init__(self, path: Path, deletes: int) -> None:
        super().__init__(path)
        self._left = deletes

    async def delete(self, names: Sequence[str]) -> None:
        for name in sorted(names):
            if not self._left:
                raise OSError("the process dies")
            self._left -= 1
            await super().delete([name])


async def test_a_prune_that_dies_leaves_whole_backups_and_the_next_one_goes_on(
    lab: BackupLab,
) -> None:
    ids, clock = SeededIds(lab.lake.clock), lab.lake.clock
    made = []
    for size in (1, 2):
        await lab.put("a", size)
        clock.advance(1)
        made.append((await lab.back_up()).snapshot_id)
    for deletes in range(6):
        with suppress(OSError):
            await prune(Dying(lab.target_path, deletes), 1, clock, ids)
        for backup_id in await snapshot_ids(lab.target, Scope.INSTALLATION):
            assert (
                await check_files(
                    await open_snapshot(lab.target, Scope.INSTALLATION, backup_id), lab.options()
                )
                == []
            )
    assert await snapshot_ids(lab.target, Scope.INSTALLATION) == made[1:]
    assert (await prune(lab.target, 1, clock, ids)).chunks == 0


async def test_a_prune_stops_when_its_mark_no_longer_counts(lab: BackupLab) -> None:
    """A backup that has begun since may need chunks that the prune took for unused."""
    for size in (1, 2):
        await lab.put("a", size)
        lab.lake.clock.advance(1)
        await lab.back_up()
    before = sorted([name async for name in lab.target.files("content")])

    class Slow(FolderTarget):
        async def files(self, folder: str) -> AsyncIterator[str]:
            if folder == "content":
                lab.lake.clock.advance(MARK_US / 1_000_000)
            async for name in super().files(folder):
                yield name

    with pytest.raises(TarnError, match="longer than a day"):
        await prune(Slow(lab.target_path), 1, lab.lake.clock, SeededIds(lab.lake.clock))
    assert sorted([name async for name in lab.target.files("content")]) == before


async def test_a_prune_removes_nothing_if_a_kept_backup_is_damaged(lab: BackupLab) -> None:
    old = await lab.back_up()
    lab.lake.clock.advance(1)
    new = await lab.back_up()
    (lab.target_path / content_file(new.index[0])).write_bytes(b"damage")
    with pytest.raises(TarnError):
        await prune(lab.target, 1, lab.lake.clock, SeededIds(lab.lake.clock))
    assert await snapshot_ids(lab.target, Scope.INSTALLATION) == [old.snapshot_id, new.snapshot_id]
    assert (
        await check_files(
            await open_snapshot(lab.target, Scope.INSTALLATION, old.snapshot_id), lab.options()
        )
        == []
    )
