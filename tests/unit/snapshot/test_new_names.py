"""A store that is filled from a snapshot gives its staging tokens names that no token ever had."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from backup_lab import INSTALLATION as LAB
from backup_lab import BackupLab
from installation_rows import (
    INSTALLATION,
    UPLOAD,
    by_name,
    contents,
    sample_installation,
    with_old_names,
    write_rows,
)
from tests.support.clock import ManualClock, SeededIds

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.fence import Fence, FenceState, read_fence, write_fence
from tarn.kv.keys import RepositoryKeys, path_key
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, PartitionInfo, PartitionKind
from tarn.kv.records import decode_branch
from tarn.snapshot.files import chunks
from tarn.snapshot.files.manifest import Scope
from tarn.snapshot.files.stored import StoredSnapshot, open_snapshot
from tarn.snapshot.files.target import FolderTarget, new_folder
from tarn.snapshot.installation.restoring import restore
from tarn.snapshot.store import (
    Comparison,
    OpenStore,
    RateLimiter,
    SnapshotSource,
    TransferOptions,
    Transferred,
    compare,
    dump,
    load,
)
from tarn.snapshot.store.renaming import NewNames

KEYS = RepositoryKeys(f"{INSTALLATION}/lake-aa")
MAIN = KEYS.branch("main")


class Failing(MemKv):
    """A store that refuses to write from some write on."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 1 << 60

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        self.writes -= 1
        if self.writes < 0:
            raise TarnError(Kind.INTERNAL, Reason.INTERNAL, "killed")
        return await super().set_many(partition, groups)


class Split(MemKv):
    """A store that knows the buckets of its partitions, as Cassandra: a transfer reads no record to find them."""

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        async for each in super().partitions(prefix):
            yield replace(each, buckets=4)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarn.kv.mem._BATCH_ROWS", 8)
    monkeypatch.setattr(chunks, "TEXT_ROWS", 8)


def options() -> TransferOptions:
    clock = ManualClock()
    return TransferOptions(clock, RateLimiter(clock), 2)


def place(kv: MemKv, installation_id: str = INSTALLATION) -> OpenStore:
    return OpenStore(kv, installation_id, "mem", is_shared=False)


async def dumped(folder: Path) -> StoredSnapshot:
    kv = MemKv()
    await write_rows(kv, sample_installation())
    await dump(place(kv), new_folder(folder), SeededIds(ManualClock(), 1), options())
    return await open_snapshot(FolderTarget(folder), Scope.STORE)


async def loaded(snapshot: StoredSnapshot, kv: MemKv, seed: int) -> Transferred:
    return await load(snapshot, place(kv), SeededIds(ManualClock(), seed), options())


async def tokens(kv: MemKv) -> list[str]:
    (found,) = await kv.get_many(KEYS.refs, [MAIN])
    assert found is not None
    return [token.token_id for token in decode_branch(found.value).tokens]


async def compared(snapshot: StoredSnapshot, kv: MemKv) -> Comparison:
    return await compare(SnapshotSource(snapshot), kv, INSTALLATION, options())


async def empty(kv: MemKv) -> None:
    for each in [each async for each in kv.partitions("")]:
        await kv.drop_partition(Partition(each.name, each.kind, each.buckets or 1))


@pytest.mark.parametrize("renames", [True, False])
async def test_a_cleaner_that_paused_over_the_restore_drops_nothing_of_it(
    lab: BackupLab, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    """It found that no record names the token, and its request reaches the store that was restored meanwhile. The
    object is lost if the restored record names that token again."""
    if not renames:

        async def none(*_: object) -> dict[str, str]:
            return {}

        monkeypatch.setattr(NewNames, "of", none)
    await lab.put("a", 1)
    await lab.back_up()
    backup = await open_snapshot(lab.target, Scope.INSTALLATION)
    named = await lab.lake.staging_rows()
    await lab.lake.commit("takes the token out of the record")
    drop, late = lab.kv.drop_partition, []

    async def paused(partition: Partition) -> None:
        late.append(partition)

    monkeypatch.setattr(lab.kv, "drop_partition", paused)
    await lab.lake.drop_everything_removed()
    assert named in late
    monkeypatch.setattr(lab.kv, "drop_partition", drop)
    await empty(lab.kv)
    await restore(backup, place(lab.kv, LAB), SeededIds(lab.lake.clock, 5), lab.options())
    for partition in late:
        await drop(partition)
    async with lab.served(lab.kv) as lake:
        assert await lake.get("a") == (1 if renames else None)


async def test_an_attempt_that_goes_on_gives_the_same_names(tmp_path: Path) -> None:
    """The load fails at each of its writes in turn; the names are those of its first attempt."""
    snapshot = await dumped(tmp_path / "dump")
    rows = by_name(sample_installation())
    for at in range(1_000):
        kv = Failing()
        kv.writes = at
        try:
            await loaded(snapshot, kv, seed=2)
        except* TarnError:
            fence, _ = await read_fence(kv, INSTALLATION)
            assert fence is not None
            kv.writes = 1 << 60
            await loaded(snapshot, kv, seed=3)
        else:
            break
        assert with_old_names(await contents(kv)) == rows
        assert await tokens(kv) == await tokens(await _whole(snapshot, seed=2))
    assert at > 5


async def _whole(snapshot: StoredSnapshot, seed: int) -> MemKv:
    kv = MemKv()
    await loaded(snapshot, kv, seed)
    return kv


async def test_each_load_gives_other_names_that_sort_as_the_old_ones(tmp_path: Path) -> None:
    snapshot = await dumped(tmp_path / "dump")
    first, second = await _whole(snapshot, seed=2), await _whole(snapshot, seed=3)
    assert not set(await tokens(first)) & set(await tokens(second))
    assert [name[:2] for name in await tokens(first)] == ["t3", "t2"]


async def test_an_attempt_of_an_earlier_release_is_not_continued(tmp_path: Path) -> None:
    """It wrote tokens under their old names; half of them would stay behind."""
    snapshot = await dumped(tmp_path / "dump")
    kv = MemKv()
    snapshot_id = snapshot.manifest.snapshot_id
    fence = Fence(FenceState.LOADING, snapshot_id, "earlier", snapshot.about, 1)
    await write_fence(kv, INSTALLATION, fence, None)
    sealed = {each: rows for each, rows in sample_installation().items() if ":t2" in each.name}
    await write_rows(kv, sealed)
    with pytest.raises(TarnError, match="empty the target and start again"):
        await loaded(snapshot, kv, seed=3)


async def test_what_no_record_names_keeps_its_name(tmp_path: Path) -> None:
    """The token in the drop list is dropped under the name that it has there."""
    kv = await _whole(await dumped(tmp_path / "dump"), seed=2)
    found = await contents(kv)
    assert {f"{KEYS.root}/main:t1", f"{KEYS.root}/main:lost"} <= set(found)
    assert not {f"{KEYS.root}/main:t3", f"{KEYS.root}/main:t2"} & set(found)


async def test_a_record_that_cannot_be_read_is_loaded_as_it_is(tmp_path: Path) -> None:
    kv = Split()
    await write_rows(kv, sample_installation())
    for partition, key in ((KEYS.refs, MAIN), (KEYS.uploads(9), UPLOAD)):
        await kv.set_many(partition, [Group(key, ((key, b"\xff\xff"),))])
    folder = tmp_path / "dump"
    await dump(place(kv), new_folder(folder), SeededIds(ManualClock(), 1), options())
    filled = Split()
    await loaded(await open_snapshot(FolderTarget(folder), Scope.STORE), filled, seed=2)
    assert await contents(filled) == await contents(kv)


async def test_a_store_that_was_loaded_is_equal_to_its_dump(tmp_path: Path) -> None:
    snapshot = await dumped(tmp_path / "dump")
    kv = await _whole(snapshot, seed=2)
    assert (await compared(snapshot, kv)).count == 0
    # What changed since is told under the name that it has in the store.
    staging = Partition(f"{KEYS.root}/main:{(await tokens(kv))[0]}", PartitionKind.PLAIN, 4)
    key = path_key("raw/00007")
    await kv.set_many(staging, [Group(key, ((key, b"changed"),))])
    found = await compared(snapshot, kv)
    assert [(each.partition, each.key) for each in found.differences] == [(staging.name, key)]
    await kv.drop_partition(staging)
    assert (await compared(snapshot, kv)).count == 40
