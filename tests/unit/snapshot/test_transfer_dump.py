"""Dumps: complete, resumable, and never of a store that changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from installation_rows import INSTALLATION, by_name, contents, sample_installation, write_rows

from tarn.core.errors import Kind, TarnError
from tarn.core.levels import LEVEL_MAX, StoreLevel
from tarn.kv.fence import FenceState, check_open, read_fence, read_level, write_fence
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, PartitionKind
from tarn.snapshot.files import ranges
from tarn.snapshot.store import (
    OpenStore,
    RateLimiter,
    TransferOptions,
    TransferProgress,
    check_dump,
    dump,
    dumping,
    load,
    read_dump,
)
from tarn.snapshot.store.dump_format import Finished, IndexHeader, Part
from tarn.snapshot.store.parts import read_part
from tarn.testing.clock import ManualClock, SeededIds

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
    monkeypatch.setattr(ranges, "_CHUNK_ROWS", 8)
    monkeypatch.setattr(dumping, "_PART_BYTES", 100)


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


async def dumped(kv: MemKv, folder: Path) -> None:
    await dump(place(kv), folder, SeededIds(ManualClock(), 1), options())


async def put(kv: MemKv, partition: Partition, key: bytes, value: bytes) -> None:
    assert await kv.set_many(partition, [Group(key, ((key, value),))]) == [None]


async def loaded(folder: Path) -> MemKv:
    kv = MemKv()
    await load(read_dump(folder), place(kv), SeededIds(ManualClock()), options())
    return kv


async def test_a_dump_loads_to_what_it_was_made_of(tmp_path: Path) -> None:
    kv = await filled()
    manifest, done = await dump(
        place(kv), tmp_path / "dump", SeededIds(ManualClock(), 1), options()
    )
    rows = by_name(sample_installation())
    assert (manifest.rows, manifest.partitions) == (sum(map(len, rows.values())), len(rows))
    assert (done.changed, len(done.strays)) == (0, 1)
    target = await loaded(tmp_path / "dump")
    assert await contents(target) == rows
    await check_open(target, INSTALLATION)
    await check_open(kv, INSTALLATION)


@pytest.mark.parametrize("level", [StoreLevel(), StoreLevel(LEVEL_MAX, LEVEL_MAX)])
async def test_a_dump_carries_the_level(level: StoreLevel, tmp_path: Path) -> None:
    kv = await (filled() if level == StoreLevel() else raised())
    await dumped(kv, tmp_path / "dump")
    assert await read_level(await loaded(tmp_path / "dump"), INSTALLATION) == level
    assert await read_level(kv, INSTALLATION) == level
    about = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert about["version"] == level.level  # the last release loads version 1 and refuses the other


async def test_a_dump_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    await dumped(await filled(), folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_other_tools_can_read_the_parts(tmp_path: Path) -> None:
    await dumped(await filled(), tmp_path / "dump")
    table = pa.concat_tables(
        [pq.read_table(path) for path in sorted((tmp_path / "dump" / "parts").iterdir())]
    )
    rows = zip(*(table[name].to_pylist() for name in ("partition", "key", "value")), strict=True)
    expected = by_name(sample_installation())
    assert sorted(rows) == [(name, *row) for name in expected for row in expected[name]]


async def test_an_interrupted_dump_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """The dump fails at each range in turn: finished parts are not read again, and the result is the same."""
    kv = await filled()
    folder = tmp_path / "dump"
    expected = by_name(sample_installation())
    attempts = 0
    kept = 0
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
            finished = len(list((folder / "parts").glob("0*.parquet")))
            assert finished >= kept
            kept = finished
    assert attempts > 3
    assert await contents(await loaded(folder)) == expected


async def test_leftovers_of_a_killed_dump_are_removed(tmp_path: Path) -> None:
    """A killed dump leaves a part that the index does not name, and half a line of the index."""
    kv = await filled()
    folder = tmp_path / "dump"
    await dumped(kv, folder)
    (folder / "manifest.json").unlink()
    index = (folder / "index.jsonl").read_bytes()
    (folder / "index.jsonl").write_bytes(index[: len(index) - 30])
    (folder / "parts" / "99999999.parquet").write_bytes(b"half")
    await dumped(kv, folder)
    assert not (folder / "parts" / "99999999.parquet").exists()
    assert await contents(await loaded(folder)) == by_name(sample_installation())


async def test_a_dump_that_lost_a_part_reads_all_behind_it_again(tmp_path: Path) -> None:
    """Any file may be lost: a dump resumes after the last part before the gap."""
    kv = await filled()
    folder = tmp_path / "dump"
    await dumped(kv, folder)
    names = sorted(path.name for path in (folder / "parts").iterdir())
    assert len(names) > 3
    for name in names:
        (folder / "manifest.json").unlink()
        (folder / "parts" / name).unlink(missing_ok=True)
        await dumped(kv, folder)
        assert await contents(await loaded(folder)) == by_name(sample_installation()), name


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
    _, done = await dump(place(kv), tmp_path / "dump", SeededIds(ManualClock(), 1), options(1))
    assert done.changed == 2
    kv.before_scan = None
    found = await contents(await loaded(tmp_path / "dump"))
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
    with pytest.raises(TarnError, match="is not finished"):
        read_dump(tmp_path / "dump")


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
        place(kv), tmp_path / "dump", SeededIds(ManualClock(), 1), options(), keep_closed=True
    )
    assert states == {FenceState.HELD}
    with pytest.raises(TarnError, match="has moved elsewhere"):
        await check_open(kv, INSTALLATION)


async def test_two_dumps_of_one_store_do_not_run_at_once(tmp_path: Path) -> None:
    kv = await filled()

    async def again(_partition: Partition) -> None:
        kv.before_scan = None
        with pytest.raises(TarnError, match="another process is writing a dump"):
            await dump(place(kv), tmp_path / "dump", SeededIds(ManualClock(), 2), options())
        with pytest.raises(TarnError, match="is closed while"):
            await dump(place(kv), tmp_path / "other", SeededIds(ManualClock(5), 2), options())

    kv.before_scan = again
    await dumped(kv, tmp_path / "dump")
    await check_open(kv, INSTALLATION)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


async def test_a_flipped_byte_in_any_file_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    await dumped(await filled(staged=9), folder)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        size = path.stat().st_size
        for at in {0, size // 3, size // 2, size - 2}:
            flip(path, at)
            with pytest.raises(TarnError) as caught:
                await check_dump(read_dump(folder), options())
            assert caught.value.kind in {Kind.CORRUPT, Kind.FAILED_PRECONDITION}, (path, at)
            flip(path, at)
    await check_dump(read_dump(folder), options())


async def test_an_index_that_was_edited_is_found(tmp_path: Path) -> None:
    """For example the number of buckets, which no digest of rows covers."""
    folder = tmp_path / "dump"
    await dumped(await filled(), folder)
    index = folder / "index.jsonl"
    edited = index.read_text().replace('"plain",4,', '"plain",5,')
    assert edited != index.read_text()
    index.write_text(edited)
    with pytest.raises(TarnError, match="was changed after the dump"):
        read_dump(folder)


async def test_an_index_cut_off_in_its_first_line_is_damaged(tmp_path: Path) -> None:
    """The dump is unfinished, so no total digest protects the index."""
    folder = tmp_path / "dump"
    await dumped(await filled(), folder)
    (folder / "manifest.json").unlink()
    index = (folder / "index.jsonl").read_bytes()
    for left in (0, 1, index.index(b"\n")):
        (folder / "index.jsonl").write_bytes(index[:left])
        with pytest.raises(TarnError, match="cannot be read") as caught:
            await dumped(await filled(), folder)
        assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize(
    "changed",
    [
        {"part": "x.parquet"},
        {"part": "../00000001.parquet"},
        {"part": "00000001.parquet\n"},
        {"sha256": "\ud800"},
        {"ranges": [["\ud800", "plain", 1, "", None, 0, 0, ""]]},
        {"ranges": [["a", "plain", 1, "x", None, 0, 0, ""]]},
        {"ranges": [["a", "other", 1, "", None, 0, 0, ""]]},
        {"ranges": [["a", "plain", True, "", None, 0, 0, ""]]},
        {"ranges": {}},
        {"size_bytes": -1},
    ],
)
def test_a_line_of_the_index_that_no_dump_has_is_damaged(changed: dict[str, object]) -> None:
    fields = {"part": "00000001.parquet", "size_bytes": 1, "sha256": "", "ranges": []}
    Part.decode(json.dumps(fields).encode())
    with pytest.raises(TarnError) as caught:
        Part.decode(json.dumps(fields | changed).encode())
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize("decode", [IndexHeader.decode, Part.decode, Finished.decode])
@pytest.mark.parametrize("line", [b"", b"\xff", b"null", b"[" * 100_000, b'{"a":' * 100_000])
def test_an_invalid_line_is_damaged(decode: Callable[[bytes], object], line: bytes) -> None:
    with pytest.raises(TarnError, match="cannot be read") as caught:
        decode(line)
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"partition": ["a"], "key": [b"k"]}),
        pa.table({"partition": ["a"], "key": ["k"], "value": [b"v"]}),
        pa.table({"partition": ["a"], "key": [b"k"], "value": [1]}),
        None,
    ],
)
def test_a_part_without_rows_of_a_store_is_damaged(table: pa.Table | None, tmp_path: Path) -> None:
    """Its digest agrees with the index, so the same program wrote both."""
    path = tmp_path / "parts" / "00000001.parquet"
    path.parent.mkdir()
    if table is None:
        path.write_bytes(b"PAR1")
    else:
        pq.write_table(table, path)
    partition = Partition("a", PartitionKind.PLAIN)
    found = ranges.Range(partition, b"", None, 1, 2, "")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    part = Part("00000001.parquet", path.stat().st_size, sha256, (found,))
    with pytest.raises(TarnError) as caught:
        list(read_part(tmp_path, part))
    assert caught.value.kind is Kind.CORRUPT


async def test_a_missing_part_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    await dumped(await filled(), folder)
    next((folder / "parts").iterdir()).unlink()
    with pytest.raises(TarnError, match="is missing"):
        await check_dump(read_dump(folder), options())


@pytest.mark.parametrize("name", ["manifest.json", "index.jsonl"])
async def test_a_newer_version_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "dump"
    with monkeypatch.context() as patched:
        patched.setattr("tarn.snapshot.store.dump_format.VERSION", 3)
        await dumped(await raised(), folder)
    if name == "index.jsonl":  # an unfinished dump of a newer Tarn
        (folder / "manifest.json").unlink()
        read: Awaitable[object] = dumped(await filled(), folder)
    else:
        read = asyncio.to_thread(read_dump, folder)
    with pytest.raises(TarnError, match="has format version 3, this Tarn reads up to") as caught:
        await read
    assert caught.value.kind is Kind.FAILED_PRECONDITION


async def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    kv = await filled()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(TarnError, match="is not empty"):
        await dumped(kv, tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    folder = tmp_path / "dump"
    await dumped(kv, folder)
    with pytest.raises(TarnError, match="holds a finished dump"):
        await dumped(kv, folder)
    with pytest.raises(TarnError, match="there is no dump"):
        read_dump(tmp_path / "absent")


async def test_a_dump_of_another_installation_does_not_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    await dumped(await filled(), folder)
    (folder / "manifest.json").unlink()
    other = OpenStore(MemKv(), "other", "mem", is_shared=False)
    with pytest.raises(TarnError, match="of installation 'moved'"):
        await dump(other, folder, SeededIds(ManualClock(), 1), options())


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
        place(await filled()), tmp_path / "dump", SeededIds(ManualClock(), 1), work
    )
    assert {phase for phase, _ in told} == {"dump", "check"}
    assert max(rows for _, rows in told) == manifest.rows
    assert sum(waits) == pytest.approx(2 * manifest.rows / 10, rel=0.2)
