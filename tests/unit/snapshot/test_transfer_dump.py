"""Dumps: complete, resumable, and never of a store that changed."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from installation_rows import (
    INSTALLATION,
    by_name,
    contents,
    sample_installation,
    with_old_names,
    write_rows,
)
from tests.support.clock import ManualClock, RestlessClock, SeededIds

from tarn.core.errors import Kind, TarnError
from tarn.core.levels import LEVEL_MAX, StoreLevel
from tarn.kv.fence import FenceState, check_open, read_fence, read_level, write_fence
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, PartitionKind
from tarn.snapshot.files import chunks
from tarn.snapshot.files.content import content_file, pack, unpack
from tarn.snapshot.files.manifest import Manifest, Scope, decode_index, manifest_file
from tarn.snapshot.files.marks import begin_snapshot
from tarn.snapshot.files.stored import check_files, open_snapshot, snapshot_ids
from tarn.snapshot.files.target import FolderTarget, new_folder
from tarn.snapshot.store import (
    OpenStore,
    RateLimiter,
    TransferOptions,
    TransferProgress,
    dump,
    load,
)

TOKEN = next(each for each in sample_installation() if each.name.endswith("main:t3"))


class Watched(MemKv):
    """A store that calls a hook before every scan."""

    def __init__(self) -> None:
        super().__init__()
        self.before_scan: Callable[[Partition], Awaitable[None]] | None = None

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        if self.before_scan is not None:
            await self.before_scan(partition)
        async for batch in super().scan_arrow(partition, start, end):
            yield batch


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes ranges and files small, so that a few rows fill many of them."""
    monkeypatch.setattr("tarn.kv.mem._BATCH_ROWS", 8)
    monkeypatch.setattr(chunks, "TEXT_ROWS", 8)


def place(kv: MemKv) -> OpenStore:
    return OpenStore(kv, INSTALLATION, "mem", is_shared=False)


def options(concurrency: int = 3) -> TransferOptions:
    clock = ManualClock()
    return TransferOptions(clock, RateLimiter(clock), concurrency)


async def filled(staged: int = 40) -> Watched:
    kv = Watched()
    await write_rows(kv, sample_installation(staged))
    return kv


async def raised() -> Watched:
    """A store of the highest feature level."""
    kv = await filled()
    level = StoreLevel(LEVEL_MAX, LEVEL_MAX)
    await write_fence(kv, INSTALLATION, None, None, level=level)
    return kv


async def dumped(kv: MemKv, folder: Path, now: float = 0.0) -> Manifest:
    clock = ManualClock()
    clock.advance(now)
    work = TransferOptions(clock, RateLimiter(clock), 3)
    return (await dump(place(kv), new_folder(folder), SeededIds(clock, 1), work))[0]


async def put(kv: MemKv, partition: Partition, key: bytes, value: bytes) -> None:
    assert await kv.set_many(partition, [Group(key, ((key, value),))]) == [None]


async def loaded(folder: Path) -> MemKv:
    kv = MemKv()
    snapshot = await open_snapshot(FolderTarget(folder), Scope.STORE)
    await load(snapshot, place(kv), SeededIds(ManualClock()), options())
    return kv


async def test_a_dump_loads_to_what_it_was_made_of(tmp_path: Path) -> None:
    kv = await filled()
    target = FolderTarget(tmp_path / "dump")
    manifest, done = await dump(place(kv), target, SeededIds(ManualClock(), 1), options())
    rows = by_name(sample_installation())
    assert manifest.rows == sum(map(len, rows.values()))
    assert (done.changed, len(done.strays)) == (0, 1)
    restored = await loaded(tmp_path / "dump")
    assert with_old_names(await contents(restored)) == rows
    await check_open(restored, INSTALLATION)
    await check_open(kv, INSTALLATION)


@pytest.mark.parametrize("level", [StoreLevel(), StoreLevel(LEVEL_MAX, LEVEL_MAX)])
async def test_a_dump_carries_the_level(level: StoreLevel, tmp_path: Path) -> None:
    kv = await (filled() if level == StoreLevel() else raised())
    await dumped(kv, tmp_path / "dump")
    assert await read_level(await loaded(tmp_path / "dump"), INSTALLATION) == level
    assert await read_level(kv, INSTALLATION) == level


async def test_a_dump_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    await dumped(await filled(), folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_other_tools_can_read_a_dump(tmp_path: Path) -> None:
    """As docs/formats/snapshot.md says, without code of Tarn."""
    await dumped(await filled(), tmp_path / "dump")

    def text(digest: str) -> bytes:
        data = (tmp_path / f"dump/content/{digest[:2]}/{digest}.zst").read_bytes()
        found: bytes = pa.decompress(data[8:], int.from_bytes(data[:8], "little"), "zstd", True)
        assert hashlib.sha256(found).hexdigest() == digest
        return found

    (manifest,) = (tmp_path / "dump/store").glob("*/manifest.json")
    rows: dict[str, list[tuple[bytes, bytes]]] = {}
    for digest in json.loads(manifest.read_text())["index"]:
        for line in map(json.loads, text(digest).splitlines()):
            name, kind, chunk = line[0], line[1], text(line[7])
            at = len(f"{kind} {len(name.encode())} {name}\n".encode())
            while at < len(chunk):
                key, value = struct.unpack_from("<II", chunk, at)
                at += 8
                row = chunk[at : at + key], chunk[at + key : at + key + value]
                rows.setdefault(name, []).append(row)
                at += key + value
    assert rows == by_name(sample_installation())


async def test_an_interrupted_dump_writes_nothing_twice(tmp_path: Path) -> None:
    """The dump fails at each range in turn; what is there is not written again, and the result is the same."""
    kv = await filled()
    folder = tmp_path / "dump"
    expected = by_name(sample_installation())
    attempts = 0
    kept: dict[Path, int] = {}
    while True:
        attempts += 1
        allowed = 6 + attempts
        seen = 0

        async def fail(partition: Partition) -> None:
            nonlocal seen
            seen += 1
            if seen > allowed:  # noqa: B023 - called before the next round
                raise TarnError(Kind.UNAVAILABLE, "UNAVAILABLE", "no node answers")  # type: ignore[arg-type]  # any reason

        kv.before_scan = fail
        try:
            await dumped(kv, folder)
            break
        except TarnError:
            await check_open(kv, INSTALLATION)  # a dump that fails opens the source again
            found = {
                path: path.stat().st_ino for path in (folder / "content").rglob("[0-9a-f]*.zst")
            }
            assert kept.items() <= found.items()
            kept = found
    assert attempts > 3
    assert kept
    assert with_old_names(await contents(await loaded(folder))) == expected
    assert len(await snapshot_ids(FolderTarget(folder), Scope.STORE)) == 1


async def test_a_killed_dump_is_continued_though_its_fence_is_there(tmp_path: Path) -> None:
    """The fence names the dump, and only the same dump may take over."""
    kv = await filled()
    folder = tmp_path / "dump"

    class Killed(BaseException):
        pass

    async def kill(partition: Partition) -> None:
        if partition == TOKEN:
            # As after SIGKILL: no code runs any more, so the fence stays.
            fence, predicate = await read_fence(kv, INSTALLATION)
            kv.before_scan = None
            await write_fence(kv, INSTALLATION, replace(fence, run_id="killed"), predicate)  # type: ignore[type-var]  # it is set
            raise Killed

    kv.before_scan = kill
    with pytest.raises(Killed):
        await dumped(kv, folder)
    with pytest.raises(TarnError, match="is closed while"):
        await check_open(kv, INSTALLATION)
    with pytest.raises(TarnError, match="is closed while"):
        await dumped(kv, tmp_path / "other", now=5)
    await dumped(kv, folder, now=5)
    await check_open(kv, INSTALLATION)
    assert with_old_names(await contents(await loaded(folder))) == by_name(sample_installation())
    assert not list(folder.rglob("begun.json"))


@pytest.mark.parametrize("installation", [INSTALLATION, "other"])
async def test_a_dump_continues_only_one_of_its_installation(
    installation: str, tmp_path: Path
) -> None:
    begun = "20261123T090000Z-0000000000"
    about = {"installation_id": installation}
    await begin_snapshot(FolderTarget(tmp_path), Scope.STORE, begun, 0, about)
    made = await dumped(await filled(), tmp_path)
    assert (made.snapshot_id == begun) == (installation == INSTALLATION)


async def test_a_chunk_that_an_interrupted_dump_lost_is_written_again(tmp_path: Path) -> None:
    kv = await filled()
    folder = tmp_path / "dump"
    await dumped(kv, folder)
    files = sorted((folder / "content").rglob("*.zst"))
    assert len(files) > 3
    for file in files:
        file.unlink()
        await dumped(kv, folder)
        assert with_old_names(await contents(await loaded(folder))) == by_name(
            sample_installation()
        ), file


async def test_a_second_dump_writes_what_is_new(tmp_path: Path) -> None:
    kv = await filled()
    folder = tmp_path / "dump"
    first = await dumped(kv, folder)
    await put(kv, TOKEN, b"key/raw/00031", b"changed")
    second = await dumped(kv, folder, now=1)
    assert (first.new_chunks, second.new_chunks) == (first.chunks, 1)
    assert with_old_names(await contents(await loaded(folder))) == await contents(kv)


async def test_a_row_that_changes_while_it_is_dumped_is_found(tmp_path: Path) -> None:
    kv = await filled()
    reads = 0

    async def change(partition: Partition) -> None:
        nonlocal reads
        reads += partition == TOKEN
        if reads == 2:  # the check after the dump
            await put(kv, TOKEN, b"key/raw/00031", b"changed")
            await put(kv, Partition(f"{INSTALLATION}/new", PartitionKind.PLAIN), b"k", b"new")

    kv.before_scan = change
    _, done = await dump(
        place(kv), FolderTarget(tmp_path / "dump"), SeededIds(ManualClock(), 1), options(1)
    )
    assert done.changed == 2
    kv.before_scan = None
    found = with_old_names(await contents(await loaded(tmp_path / "dump")))
    assert found == await contents(kv)
    assert dict(found[TOKEN.name])[b"key/raw/00031"] == b"changed"


async def test_a_store_that_does_not_come_to_rest_is_not_dumped(tmp_path: Path) -> None:
    kv = await filled()
    count = 0

    async def change(partition: Partition) -> None:
        nonlocal count
        if partition == TOKEN:
            count += 1
            await put(kv, TOKEN, b"key/raw/00031", b"%d" % count)

    kv.before_scan = change
    with pytest.raises(TarnError, match="the store keeps changing") as caught:
        await dumped(kv, tmp_path / "dump")
    assert caught.value.kind is Kind.CONFLICT
    with pytest.raises(TarnError, match="there is no finished dump"):
        await loaded(tmp_path / "dump")


async def test_the_source_is_closed_while_it_is_dumped_and_stays_so_if_asked(
    tmp_path: Path,
) -> None:
    kv = await filled()
    states = set()

    async def look(_partition: Partition) -> None:
        fence, _ = await read_fence(kv, INSTALLATION)
        states.add(fence and fence.state)

    kv.before_scan = look
    await dump(
        place(kv),
        FolderTarget(tmp_path / "dump"),
        SeededIds(ManualClock(), 1),
        options(),
        keep_closed=True,
    )
    assert states == {FenceState.HELD}
    with pytest.raises(TarnError, match="has moved elsewhere"):
        await check_open(kv, INSTALLATION)


async def test_two_dumps_of_one_store_do_not_run_at_once(tmp_path: Path) -> None:
    """Another dump is refused. Another attempt at the same dump takes over, and the first one stops."""
    kv, clock = await filled(), RestlessClock()
    shared = OpenStore(kv, INSTALLATION, "mem", is_shared=True)
    target = FolderTarget(tmp_path / "dump")

    async def dump_again() -> Manifest:
        work = TransferOptions(clock, RateLimiter(clock), 1)
        return (await dump(shared, target, SeededIds(clock, 2), work))[0]

    async def again(_partition: Partition) -> None:
        kv.before_scan = None
        with pytest.raises(TarnError, match="is closed while"):
            await dumped(kv, tmp_path / "other", now=5)
        await dump_again()

    kv.before_scan = again
    with pytest.raises(TarnError) as caught:
        await dump_again()
    assert caught.value.kind is Kind.UNAVAILABLE
    await check_open(kv, INSTALLATION)
    assert with_old_names(await contents(await loaded(tmp_path / "dump"))) == by_name(
        sample_installation()
    )


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


async def test_a_flipped_byte_in_any_file_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    await dumped(await filled(staged=9), folder)

    async def wrong() -> list[str]:
        try:
            return await check_files(
                await open_snapshot(FolderTarget(folder), Scope.STORE), options()
            )
        except TarnError as error:
            return [error.message] if error.kind is Kind.CORRUPT else []

    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        for at in {0, size // 3, size // 2, size - 2}:
            flip(path, at)
            assert await wrong(), (path, at)
            flip(path, at)
    assert await wrong() == []


async def test_an_index_that_was_edited_is_found(tmp_path: Path) -> None:
    """For example the number of buckets, which no digest of rows covers."""
    folder = tmp_path / "dump"
    manifest = await dumped(await filled(), folder)
    file = folder / content_file(manifest.index[0])
    text = unpack(file.read_bytes(), "the index")
    edited = text.replace(b'"plain",4,', b'"plain",5,')
    assert edited != text
    file.write_bytes(pack(edited))
    with pytest.raises(TarnError, match="was changed"):
        await loaded(folder)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, "\ud800"),
        (1, "other"),
        (2, True),
        (2, -1),
        (3, "x"),
        (5, None),
        (7, "0" * 63),
        (7, "../" + "0" * 61),
        (7, "0" * 64 + "\n"),
        (7, "\ud800"),
    ],
)
def test_a_line_of_the_index_that_no_snapshot_has_is_damaged(at: int, value: object) -> None:
    fields: list[object] = ["a", "plain", 1, "", None, 0, 0, "0" * 64]
    assert len(decode_index(json.dumps(fields).encode(), "i")) == 1
    fields[at] = value
    with pytest.raises(TarnError) as caught:
        decode_index(json.dumps(fields).encode(), "i")
    assert caught.value.kind is Kind.CORRUPT


def _index(text: bytes) -> object:
    return decode_index(text, "the index")


@pytest.mark.parametrize("decode", [_index, Manifest.decode])
@pytest.mark.parametrize("line", [b"\xff", b"null", b"[" * 60_000, b'{"a":' * 12_000])
def test_an_invalid_line_is_damaged(decode: Callable[[bytes], object], line: bytes) -> None:
    with pytest.raises(TarnError, match="cannot be read") as caught:
        decode(line)
    assert caught.value.kind is Kind.CORRUPT


async def test_a_missing_chunk_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    await dumped(await filled(), folder)
    snapshot = await open_snapshot(FolderTarget(folder), Scope.STORE)
    (folder / content_file(snapshot.lines[0].digest)).unlink()
    (found,) = await check_files(snapshot, options())
    assert "is missing" in found


async def test_a_dump_of_a_newer_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tarn.snapshot.files.manifest.VERSION", 2)
        await dumped(await raised(), tmp_path / "format")
    level = replace(await dumped(await raised(), tmp_path / "level"), level=LEVEL_MAX + 1)
    file = tmp_path / "level" / manifest_file(Scope.STORE, level.snapshot_id)
    file.write_bytes(level.encode())
    for name, why in (("format", "has format version 2, this Tarn reads"), ("level", "too old")):
        with pytest.raises(TarnError, match=why) as caught:
            await loaded(tmp_path / name)
        assert caught.value.kind is Kind.FAILED_PRECONDITION


async def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    kv = await filled()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(TarnError, match="is not empty"):
        await dumped(kv, tmp_path)
    assert os.listdir(tmp_path) == ["mine.txt"]  # noqa: PTH208 - beside a test's coroutine
    assert (tmp_path / "mine.txt").read_text() == "mine"
    with pytest.raises(TarnError, match="there is no finished dump"):
        await loaded(tmp_path / "absent")


async def test_a_dump_of_another_installation_is_not_loaded(tmp_path: Path) -> None:
    await dumped(await filled(), tmp_path)
    snapshot = await open_snapshot(FolderTarget(tmp_path), Scope.STORE)
    other = OpenStore(MemKv(), "other", "mem", is_shared=False)
    with pytest.raises(TarnError, match="of installation 'moved'"):
        await load(snapshot, other, SeededIds(ManualClock()), options())


async def test_progress_is_told_and_the_pace_is_kept(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    clock = ManualClock()
    waits: list[float] = []

    class Clock(ManualClock):
        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            self.advance(seconds)

    clock = Clock()

    def report(progress: TransferProgress) -> None:
        told.append((progress.phase, progress.rows))

    work = TransferOptions(clock, RateLimiter(clock, 10), 1, report)
    manifest, _ = await dump(
        place(await filled()), FolderTarget(tmp_path / "dump"), SeededIds(ManualClock(), 1), work
    )
    assert {phase for phase, _ in told} == {"dump", "check"}
    assert max(rows for _, rows in told) == manifest.rows
    assert sum(waits) == pytest.approx(2 * manifest.rows / 10, rel=0.2)
