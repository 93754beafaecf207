"""The files of backups: chunks are stored once and checked, old backups are pruned, restores can be interrupted."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from backup_lab import INSTALLATION, BackupLab
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.core.levels import LEVEL_MAX, StoreLevel
from tarn.kv.fence import check_open, read_level, write_fence
from tarn.kv.keys import InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.namespace_records import Namespace, decode_namespace, encode_namespace
from tarn.kv.port import Group, Partition, PartitionKind
from tarn.snapshot.files.bucket import BucketTarget
from tarn.snapshot.files.chunks import Chunker, rows_in
from tarn.snapshot.files.content import content_file, pack, unpack
from tarn.snapshot.files.manifest import Manifest, Scope, encode_index, manifest_file
from tarn.snapshot.files.marks import MARK_US
from tarn.snapshot.files.ranges import digest_of
from tarn.snapshot.files.stored import check_files, open_snapshot, snapshot_ids
from tarn.snapshot.files.target import FolderTarget, Target
from tarn.snapshot.installation.restoring import restore
from tarn.snapshot.store import OpenStore

ROWS = Partition("test/rows", PartitionKind.PLAIN, 4)


def cut(rows: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes | None, str]]:
    chunker = Chunker(ROWS)
    found = [chunk for row in rows if (chunk := chunker.add(*row)) is not None]
    found.append(chunker.finish())
    return [(each.range.start, each.range.end, each.range.digest) for each in found]


def some_rows(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"key/%06d" % number, b"value %d" % number) for number in range(count)]


def test_a_new_row_changes_one_chunk() -> None:
    rows = some_rows(20_000)
    before, after = cut(rows), cut([*rows[:9_000], (b"key/008999+", b"new"), *rows[9_000:]])
    assert len(before) > 4
    assert len({each[2] for each in after} - {each[2] for each in before}) <= 2


def test_chunks_cover_all_keys_without_gaps() -> None:
    chunks = cut(some_rows(20_000))
    assert (chunks[0][0], chunks[-1][1]) == (b"", None)
    assert [end for _, end, _ in chunks[:-1]] == [start for start, _, _ in chunks[1:]]


async def test_the_name_of_a_chunk_is_the_digest_of_its_range_in_any_store() -> None:
    kv, rows = MemKv(), some_rows(20_000)
    await kv.set_many(ROWS, [Group(key, ((key, value),)) for key, value in rows])
    for start, end, digest in cut(rows):
        assert await digest_of(kv, ROWS, start, end) == digest


@pytest.mark.parametrize("at", [0, 5, 9, 40, -1])
def test_a_changed_byte_of_a_chunk_is_found(at: int) -> None:
    chunker = Chunker(ROWS)
    for row in some_rows(50):
        chunker.add(*row)
    chunk = chunker.finish()
    data = bytearray(pack(chunk.text))
    text = unpack(bytes(data), "a chunk", chunk.range.digest)
    assert rows_in(text, chunk.range) == some_rows(50)
    data[at] ^= 0x10
    for wrong in (bytes(data), b""):
        with pytest.raises(TarnError) as caught:
            unpack(wrong, "a chunk", chunk.range.digest)
        assert caught.value.kind is Kind.CORRUPT


def test_a_chunk_with_the_rows_of_another_state_is_found() -> None:
    """The file is intact, and has as many rows of the same size; only its name tells that it is the wrong one."""
    chunker = Chunker(ROWS)
    chunker.add(b"key/a", b"new")
    chunk = chunker.finish()
    other = pack(chunk.text.replace(b"new", b"old"))
    with pytest.raises(TarnError, match="digest") as caught:
        unpack(other, "a chunk", chunk.range.digest)
    assert caught.value.kind is Kind.CORRUPT


async def test_a_folder_is_private_and_leaves_no_drafts(tmp_path: Path) -> None:
    target = FolderTarget(tmp_path / "deep" / "place")
    await target.put("content/ab/x.zst", b"1")
    await target.put("content/ab/x.zst", b"1")
    (tmp_path / "deep/place/content/ab/.draft-1-y").write_bytes(b"half")
    assert [name async for name in target.files("content")] == ["content/ab/x.zst"]
    file = tmp_path / "deep/place/content/ab/x.zst"
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (file, file.parent)]
    assert modes == [0o600, 0o700]
    await target.delete(["content/ab/x.zst", "content/none"])
    assert not await target.has("content/ab/x.zst")


async def test_a_second_backup_writes_what_is_new(lab: BackupLab, target: Target) -> None:
    lab.target = target
    await lab.put("a", 1)
    await lab.lake.graveler.cleaner.drop_due()  # the first pass makes the checkpoint
    first = await lab.back_up()
    lab.lake.clock.advance(1)
    same = await lab.back_up()
    await lab.put("b", 1)
    lab.lake.clock.advance(1)
    third = await lab.back_up()
    assert (first.new_chunks, same.new_chunks, third.new_chunks) == (first.chunks, 0, 1)
    assert await snapshot_ids(target, Scope.INSTALLATION) == [
        first.snapshot_id,
        same.snapshot_id,
        third.snapshot_id,
    ]
    for manifest, size in ((first, None), (third, 1)):
        async with lab.served(await lab.restored(manifest.snapshot_id)) as lake:
            assert await lake.get("b") == size


async def test_a_backup_that_takes_more_than_a_day_has_no_manifest(lab: BackupLab) -> None:
    is_first = True

    async def hook(_: Partition, __: bytes) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            lab.lake.clock.advance(MARK_US / 1_000_000)

    with pytest.raises(TarnError, match="longer than a day"):
        await lab.back_up(hook)
    assert await snapshot_ids(lab.target, Scope.INSTALLATION) == []


async def test_a_chunk_that_lost_its_content_is_written_again(lab: BackupLab) -> None:
    """A file system may lose what was written shortly before a crash."""
    await lab.back_up()
    for file in (lab.target_path / "content").rglob("*.zst"):
        file.write_bytes(b"")
    lab.lake.clock.advance(1)
    await lab.back_up()
    assert (
        await check_files(await open_snapshot(lab.target, Scope.INSTALLATION), lab.options()) == []
    )


async def test_all_files_of_a_bucket_are_listed_and_deleted() -> None:
    """Also those of more than one page, which has 1,000."""
    target = BucketTarget(MemBlockStore(ManualClock()), "mem://backups")
    for count in (3, 1_003):
        names = [f"content/{number:04}/x.zst" for number in range(count)]
        for name in (*names, "store/x"):
            await target.put(name, b"1")
        assert [name async for name in target.files("content")] == names
        await target.delete(names)
        assert [name async for name in target.files("content")] == []


async def test_damaged_and_missing_chunks_are_named(lab: BackupLab) -> None:
    await lab.put("a", 1)
    await lab.back_up()
    lines = (await open_snapshot(lab.target, Scope.INSTALLATION)).lines
    chunks = [lab.target_path / content_file(line.digest) for line in lines]
    chunks[0].unlink()
    chunks[1].write_bytes(chunks[1].read_bytes()[:-3])
    wrong = await check_files(await open_snapshot(lab.target, Scope.INSTALLATION), lab.options())
    assert len(wrong) == 2
    assert any("is missing" in line for line in wrong)
    with pytest.raises(TarnError) as caught:
        await lab.restored()
    assert caught.value.kind is Kind.CORRUPT


async def test_a_changed_manifest_is_refused(lab: BackupLab) -> None:
    manifest = await lab.back_up()
    file = lab.target_path / manifest_file(Scope.INSTALLATION, manifest.snapshot_id)
    assert Manifest.decode(file.read_bytes()) == manifest
    file.write_bytes(file.read_bytes().replace(b'"rows": ', b'"rows": 1'))
    with pytest.raises(TarnError) as caught:
        await open_snapshot(lab.target, Scope.INSTALLATION)
    assert caught.value.kind is Kind.CORRUPT
    other = json.loads(manifest.encode())
    other["begin_time_us"] += 1  # agrees with everything but the manifest's own digest
    with pytest.raises(TarnError, match="sha256"):
        Manifest.decode(json.dumps(other).encode())
    newer = json.dumps({"format": "tarn snapshot", "version": 2}).encode()
    with pytest.raises(TarnError, match="version 2"):
        Manifest.decode(newer)


async def test_a_manifest_of_another_backup_is_refused(lab: BackupLab) -> None:
    first = await lab.back_up()
    lab.lake.clock.advance(1)
    second = await lab.back_up()
    older, newer = (
        lab.target_path / manifest_file(Scope.INSTALLATION, each.snapshot_id)
        for each in (first, second)
    )
    newer.write_bytes(older.read_bytes())
    with pytest.raises(TarnError, match="belongs to installation/") as caught:
        await open_snapshot(lab.target, Scope.INSTALLATION)
    assert caught.value.kind is Kind.CORRUPT


async def test_a_replaced_index_is_refused(lab: BackupLab) -> None:
    """The other index can be read, and lists as many chunks and rows."""
    manifest = await lab.back_up()
    lines = (await open_snapshot(lab.target, Scope.INSTALLATION)).lines
    moved = [replace(line, partition=replace(line.partition, buckets=99)) for line in lines]
    (text,) = encode_index(moved)
    (lab.target_path / content_file(manifest.index[0])).write_bytes(pack(text))
    with pytest.raises(TarnError, match="was changed") as caught:
        await open_snapshot(lab.target, Scope.INSTALLATION)
    assert caught.value.kind is Kind.CORRUPT


async def test_an_interrupted_restore_goes_on_and_nothing_opens_half_of_it(lab: BackupLab) -> None:
    await lab.put("a", 1)
    await lab.back_up()
    clock, backup = lab.lake.clock, await open_snapshot(lab.target, Scope.INSTALLATION)
    writes = 0

    class Dying(MemKv):
        async def set_many(
            self, partition: Partition, groups: Sequence[Group]
        ) -> list[TarnError | None]:
            nonlocal writes
            writes += 1
            if writes == 4:
                raise OSError("the process dies")
            return await super().set_many(partition, groups)

    kv = Dying()
    place = OpenStore(kv, INSTALLATION, "mem", is_shared=False)
    with pytest.raises(OSError, match="dies"):
        await restore(backup, place, SeededIds(clock), lab.options())
    with pytest.raises(TarnError):
        await check_open(kv, INSTALLATION)
    await restore(backup, place, SeededIds(clock), lab.options())
    await check_open(kv, INSTALLATION)
    assert await lab.fsck(kv) == []
    with pytest.raises(TarnError, match="already holds"):
        await restore(backup, place, SeededIds(clock), lab.options())


async def test_a_restore_into_another_installation_is_refused(lab: BackupLab) -> None:
    await lab.back_up()
    place = OpenStore(MemKv(), "other", "mem", is_shared=False)
    clock = lab.lake.clock
    with pytest.raises(TarnError, match="installation"):
        await restore(
            await open_snapshot(lab.target, Scope.INSTALLATION),
            place,
            SeededIds(clock),
            lab.options(),
        )


async def test_a_target_without_backups_says_so(tmp_path: Path) -> None:
    with pytest.raises(TarnError) as caught:
        await open_snapshot(FolderTarget(tmp_path / "none"), Scope.INSTALLATION)
    assert caught.value.kind is Kind.NOT_FOUND


async def test_a_doom_that_has_not_begun_is_not_in_a_backup(lab: BackupLab) -> None:
    """The repository may be brought back after the backup; a restore must not let a collection delete its data."""
    keys = InstallationKeys(INSTALLATION)
    doomed = Namespace(RepositoryId("gone"), "1" * 32, True, doom_time_us=5, purge_after_us=6)
    begun = replace(doomed, purge_begin_us=7)
    for place, row in (("mem://doomed", doomed), ("mem://begun", begun)):
        await lab.kv.set_if(keys.graveler, keys.namespace(place), encode_namespace(row), None)
    await lab.back_up()
    kv = await lab.restored()
    rows = await kv.get_many(
        keys.graveler, [keys.namespace("mem://doomed"), keys.namespace("mem://begun")]
    )
    found = [decode_namespace(row.value) for row in rows if row is not None]
    assert found == [replace(doomed, doom_time_us=0, purge_after_us=0), begun]


async def test_a_backup_records_the_feature_level_and_a_restore_gives_it_back(
    lab: BackupLab,
) -> None:
    first = await lab.back_up()
    assert first.level == 1
    await write_fence(lab.kv, INSTALLATION, None, None, level=StoreLevel(2, 2))
    second = await lab.back_up()
    assert second.level == 2
    stored = await open_snapshot(lab.target, Scope.INSTALLATION, second.snapshot_id)
    assert stored.manifest == second
    assert await read_level(await lab.restored(second.snapshot_id), INSTALLATION) == StoreLevel(
        2, 2
    )


async def test_a_backup_of_a_later_release_is_refused_before_anything_is_written(
    lab: BackupLab,
) -> None:
    made = await lab.back_up()
    later = replace(made, level=LEVEL_MAX + 1)
    (lab.target_path / manifest_file(Scope.INSTALLATION, made.snapshot_id)).write_bytes(
        later.encode()
    )
    kv, clock = MemKv(), lab.lake.clock
    place = OpenStore(kv, INSTALLATION, "mem", is_shared=False)
    with pytest.raises(TarnError, match="it is too old") as caught:
        await restore(
            await open_snapshot(lab.target, Scope.INSTALLATION),
            place,
            SeededIds(clock),
            lab.options(),
        )
    assert caught.value.reason is Reason.FEATURE_LEVEL
    await check_open(kv, INSTALLATION)
    assert [each async for each in kv.partitions("")] == []
