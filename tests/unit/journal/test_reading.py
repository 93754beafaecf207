"""Epochs, passes and manifests in a block store: what is written is read; what is missing is told."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from journals import branch_record, record, row, state_of
from tests.support.clock import ManualClock

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockStore
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal import writing
from tarn.journal.accounts import Accounts, LostEvents, MissingFiles, Report
from tarn.journal.days import read_manifest, write_manifest
from tarn.journal.epochs import (
    Epoch,
    EpochCause,
    begin_epoch,
    newest_epoch,
    next_epoch,
    require_newest,
)
from tarn.journal.events import EventRow, table_of
from tarn.journal.names import epoch_path, pass_name
from tarn.journal.reading import EpochReader
from tarn.journal.replay import REPLAYED, Record, Replay, StagedRows
from tarn.journal.writing import BranchPass, JournalWriter, write_base

LAKE = "mem://lake"
HOUR = 3_600_000_000
MAIN = "branches/main"


@pytest.fixture
def blocks() -> BlockStore:
    return MemBlockStore(ManualClock())


async def tables(*rows: list[EventRow]) -> AsyncIterator[pa.Table]:
    for each in rows:
        yield table_of(each)


async def begun(
    blocks: BlockStore, parent: Epoch | None = None, base: list[EventRow] | None = None
) -> Epoch:
    epoch = next_epoch(parent, "e" * 32, EpochCause.ENABLED, HOUR)
    files = await write_base(blocks, LAKE, epoch.folder, tables(base or []))
    epoch = msgspec.structs.replace(epoch, base=files)
    await begin_epoch(blocks, LAKE, epoch)
    return epoch


Found = tuple[tuple[dict[str, bytes], dict[str, dict[str, bytes]]], Report]


async def read(blocks: BlockStore, epoch: Epoch) -> Found:
    """Replays an epoch, from all columns of its files and from those that a replay needs, which is the same."""
    found = await read_columns(blocks, epoch, REPLAYED)
    assert found == await read_columns(blocks, epoch, None)
    return found


async def read_columns(blocks: BlockStore, epoch: Epoch, columns: Sequence[str] | None) -> Found:
    accounts = Accounts(epoch.number, epoch.begin_time_us)
    reader = EpochReader(blocks, LAKE, epoch, accounts, columns)
    with tempfile.TemporaryDirectory() as folder:
        replayed = Replay(Path(folder))
        async for table in reader.base():
            for batch in table.to_batches():
                replayed.add(batch)
        async for table in reader.passes():
            for batch in table.to_batches():
                replayed.add(batch)
        results: list[Record | StagedRows] = list(replayed.results())
        replayed.close()
    return state_of(results), accounts.report()


async def write(
    writer: JournalWriter, time_us: int, rows: list[EventRow], *branches: BranchPass
) -> list[str]:
    return await writer.write(time_us, table_of(rows), branches, is_full=False, until_us=time_us)


async def remove(blocks: BlockStore, path: str) -> None:
    await blocks.delete_many(LAKE, [path])


FIRST = [record(MAIN, branch_record(["t0"]), 1), row("a", b"p", 1)]
SECOND = [record(MAIN, branch_record(["t1", "t0"]), 5), row("a", b"q", 1, token="t1")]


async def three_passes(blocks: BlockStore) -> tuple[Epoch, list[str]]:
    """Passes of one holder: a put, a seal with another put, and a put."""
    epoch = await begun(blocks)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    paths = await write(writer, 2 * HOUR, FIRST, BranchPass("main", 1, ["t0"]))
    paths += await write(writer, 3 * HOUR, SECOND, BranchPass("main", 5, ["t1", "t0"]))
    last = [row("b", b"r", 2, token="t1")]
    paths += await write(writer, 4 * HOUR, last, BranchPass("main", 5, ["t1", "t0"]))
    return epoch, paths


async def test_what_is_written_is_rebuilt(blocks: BlockStore) -> None:
    epoch, _ = await three_passes(blocks)
    (records, staged), report = await read(blocks, epoch)
    assert records == {MAIN: branch_record(["t1", "t0"])}
    assert staged == {"main": {"a": b"q", "b": b"r"}}
    assert report.is_whole
    assert list(report.lines()) == []
    assert (report.files, report.events) == (3, 5)
    assert report.lag_us(5 * HOUR) == HOUR
    assert report.branches["main"].drained_until_us == 4 * HOUR


async def test_a_base_is_part_of_the_state(blocks: BlockStore) -> None:
    epoch = await begun(blocks, base=FIRST)
    writer = JournalWriter(blocks, LAKE, epoch, "b" * 32)
    await write(writer, 3 * HOUR, [row("b", b"q", 1)], BranchPass("main", 1, ["t0"]))
    (_, staged), report = await read(blocks, epoch)
    assert staged == {"main": {"a": b"p", "b": b"q"}}
    assert report.is_whole


async def test_a_file_in_the_middle_is_missed_by_its_number_tokens_and_record(
    blocks: BlockStore,
) -> None:
    epoch, paths = await three_passes(blocks)
    await remove(blocks, paths[1])
    (records, _), report = await read(blocks, epoch)
    assert not report.is_whole
    assert report.missing == (MissingFiles("a" * 32, 2, 2),)
    of_records = LostEvents("a" * 32, "", "", 1)
    assert report.lost == (of_records, LostEvents("a" * 32, "main", "t1", 1))
    assert report.branches["main"].is_stale
    assert records == {MAIN: branch_record(["t0"])}
    text = "\n".join(report.lines())
    assert "files 2 to 2" in text
    assert "token t1 of branch main" in text
    assert "order 1 instead of 5" in text


async def test_a_lost_record_shows_in_the_count_of_a_later_one(blocks: BlockStore) -> None:
    epoch = await begun(blocks)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    paths = await write(writer, 2 * HOUR, [record("tags/v1", b"x", 1)])
    await write(writer, 3 * HOUR, [record("tags/v2", b"x", 1)])
    await remove(blocks, paths[0])
    _, report = await read(blocks, epoch)
    assert report.lost == (LostEvents("a" * 32, "", "", 1),)


async def test_a_file_at_the_end_is_missed_by_the_manifest_of_its_day(blocks: BlockStore) -> None:
    epoch, paths = await three_passes(blocks)
    manifest = await write_manifest(blocks, LAKE, epoch.folder, "1970-01-01")
    assert [each.number for each in manifest.files] == [1, 2, 3]
    assert await write_manifest(blocks, LAKE, epoch.folder, "1970-01-01") == manifest
    assert await read_manifest(blocks, LAKE, epoch.folder, "1970-01-01") == manifest
    await remove(blocks, paths[2])
    _, report = await read(blocks, epoch)
    assert report.missing == (MissingFiles("a" * 32, 3, 3),)
    assert report.drained_until_us == 3 * HOUR


async def test_a_manifest_is_written_once(blocks: BlockStore) -> None:
    """A holder that paused writes to a past day; its file counts, and the manifest stays."""
    epoch, _ = await three_passes(blocks)
    manifest = await write_manifest(blocks, LAKE, epoch.folder, "1970-01-01")
    late = JournalWriter(blocks, LAKE, epoch, "f" * 32)
    await write(late, 2 * HOUR, [row("late", b"l", 9)], BranchPass("main", 5, ["t0"]))
    assert await write_manifest(blocks, LAKE, epoch.folder, "1970-01-01") == manifest
    (_, staged), report = await read(blocks, epoch)
    assert staged["main"]["late"] == b"l"
    assert report.is_whole


async def test_a_damaged_file_is_told_and_left_out(blocks: BlockStore) -> None:
    epoch, paths = await three_passes(blocks)
    body = await blocks.read(BlockKey(LAKE, paths[2]))
    await remove(blocks, paths[2])
    await blocks.put(BlockKey(LAKE, paths[2]), body[:-20] + bytes(20))
    (_, staged), report = await read(blocks, epoch)
    assert staged == {"main": {"a": b"q"}}
    assert [path for path, _ in report.damaged] == [paths[2]]
    assert report.missing == (MissingFiles("a" * 32, 3, 3),)


async def test_a_file_in_the_place_of_another_is_damaged(blocks: BlockStore) -> None:
    epoch, paths = await three_passes(blocks)
    body = await blocks.read(BlockKey(LAKE, paths[0]))
    await remove(blocks, paths[2])
    await blocks.put(BlockKey(LAKE, paths[2]), body)
    _, report = await read(blocks, epoch)
    assert [path for path, _ in report.damaged] == [paths[2]]


async def test_of_two_files_of_one_number_one_counts_and_the_other_is_told(
    blocks: BlockStore,
) -> None:
    epoch, paths = await three_passes(blocks)
    twin = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    other = await write(twin, 2 * HOUR, [row("a", b"z", 9)], BranchPass("main", 1, ["t0"]))
    _, report = await read(blocks, epoch)
    ((told, why),) = report.damaged
    assert told in (paths[0], other[0])
    assert "another file has its number" in why
    assert report.missing == ()
    # What the manifest of the day names counts, in whatever order they come.
    await remove(blocks, other[0])
    await write_manifest(blocks, LAKE, epoch.folder, "1970-01-01")
    await write(
        JournalWriter(blocks, LAKE, epoch, "a" * 32),
        2 * HOUR,
        [row("a", b"z", 9)],
        BranchPass("main", 1, ["t0"]),
    )
    (_, staged), report = await read(blocks, epoch)
    assert [path for path, _ in report.damaged] == other
    assert staged == {"main": {"a": b"q", "b": b"r"}}


async def test_a_missing_or_damaged_base_ends_the_rebuild(blocks: BlockStore) -> None:
    epoch = await begun(blocks, base=FIRST)
    path = f"_tarn/journal/{epoch.folder}/base/0000000001.parquet"
    body = await blocks.read(BlockKey(LAKE, path))
    for wrong in (None, body[:-1]):
        await remove(blocks, path)
        if wrong is not None:
            await blocks.put(BlockKey(LAKE, path), wrong)
        with pytest.raises(TarnError, match=path) as caught:
            await read(blocks, epoch)
        assert caught.value.kind is Kind.CORRUPT


async def test_parts_count_when_the_last_names_them(
    blocks: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "FILE_ROWS", 1)
    epoch = await begun(blocks)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    rows = [*FIRST, row("b", b"q", 1)]
    paths = await write(writer, 2 * HOUR, rows, BranchPass("main", 1, ["t0"]))
    assert len(paths) == 3
    (_, staged), report = await read(blocks, epoch)
    assert staged == {"main": {"a": b"p", "b": b"q"}}
    assert report.is_whole
    # The holder died before the last part: its events are still in the store.
    await remove(blocks, paths[2])
    (records, staged), report = await read(blocks, epoch)
    assert (records, staged) == ({}, {})
    assert report.unfinished == tuple(paths[:2])
    # A part was lost afterwards.
    await remove(blocks, paths[0])
    again = JournalWriter(blocks, LAKE, epoch, "b" * 32)
    paths = await write(again, 2 * HOUR, rows, BranchPass("main", 1, ["t0"]))
    await remove(blocks, paths[1])
    _, report = await read(blocks, epoch)
    assert MissingFiles("b" * 32, 2, 2) in report.missing
    assert sum(each.count for each in report.lost) == 1


async def test_repeated_events_are_counted_by_their_holder(blocks: BlockStore) -> None:
    epoch, _ = await three_passes(blocks)
    other = JournalWriter(blocks, LAKE, epoch, "b" * 32)
    await write(other, 5 * HOUR, SECOND, BranchPass("main", 5, ["t1"], ["t0"]))
    await write(other, 6 * HOUR, SECOND, BranchPass("main", 5, ["t1"]))
    (_, staged), report = await read(blocks, epoch)
    assert staged == {"main": {"a": b"q", "b": b"r"}}
    assert report.is_whole


async def test_an_unsettled_pass_is_told_until_the_next_one(blocks: BlockStore) -> None:
    epoch = await begun(blocks)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    await write(writer, 2 * HOUR, FIRST, BranchPass("main", 1, ["t0"], is_unsettled=True))
    _, report = await read(blocks, epoch)
    assert not report.is_whole
    assert "changes to its end" in "\n".join(report.lines())
    await write(writer, 3 * HOUR, [], BranchPass("main", 1, ["t0"]))
    _, report = await read(blocks, epoch)
    assert report.is_whole


async def test_rows_of_no_token_of_the_pass_are_refused(blocks: BlockStore) -> None:
    """Rows without the record that names their token would be in a file of their own."""
    epoch = await begun(blocks)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)
    with pytest.raises(TarnError, match="no token of the pass"):
        await write(writer, HOUR, FIRST, BranchPass("main", 1, ["t9"]))
    await write(writer, HOUR, FIRST, BranchPass("main", 1, ["t0"]))


async def test_a_writer_that_failed_does_not_go_on(
    blocks: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await begun(blocks)
    writer = JournalWriter(blocks, LAKE, epoch, "a" * 32)

    async def refused(key: BlockKey, body: bytes) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(blocks, "put", refused)
        with pytest.raises(TarnError, match="no answer"):
            await write(writer, HOUR, FIRST, BranchPass("main", 1, ["t0"]))
    with pytest.raises(TarnError, match="new holder"):
        await write(writer, HOUR, FIRST, BranchPass("main", 1, ["t0"]))


async def test_the_newest_epoch_alone_is_read(blocks: BlockStore) -> None:
    """Rows of the lost store, also those that a paused holder writes late, are not read."""
    old, _ = await three_passes(blocks)
    epoch = await begun(blocks, old, base=[record(MAIN, branch_record(["n0"]), 1)])
    late = JournalWriter(blocks, LAKE, old, "d" * 32)
    await write(late, 9 * HOUR, [row("a", b"x", 9, token="n0")], BranchPass("main", 9, ["n0"]))
    found = await newest_epoch(blocks, LAKE)
    assert found == epoch
    (_, staged), report = await read(blocks, epoch)
    assert staged == {}
    assert report.is_whole
    await require_newest(blocks, LAKE, epoch)
    with pytest.raises(TarnError, match="another store continues this bucket") as caught:
        await require_newest(blocks, LAKE, old)
    assert caught.value.kind is Kind.FAILED_PRECONDITION


async def test_two_stores_that_continue_one_epoch_the_second_is_told(blocks: BlockStore) -> None:
    old = await begun(blocks)
    ours = next_epoch(old, "1" * 32, EpochCause.RESTORE, HOUR)
    theirs = next_epoch(old, "2" * 32, EpochCause.REBUILD, HOUR)
    await begin_epoch(blocks, LAKE, ours)
    await begin_epoch(blocks, LAKE, ours)  # its answer was lost
    with pytest.raises(TarnError, match="begun by restore") as caught:
        await begin_epoch(blocks, LAKE, theirs)
    assert caught.value.kind is Kind.FAILED_PRECONDITION
    assert await newest_epoch(blocks, LAKE) == ours


async def test_an_epoch_that_never_began_does_not_count(blocks: BlockStore) -> None:
    old = await begun(blocks)
    dead = next_epoch(old, "9" * 32, EpochCause.RESTORE, HOUR)
    await write_base(blocks, LAKE, dead.folder, tables(FIRST))
    assert await newest_epoch(blocks, LAKE) == old
    with pytest.raises(TarnError):
        await require_newest(blocks, LAKE, dead)
    assert await newest_epoch(blocks, "mem://other") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda body: b"[" * 5000 + body,
        lambda body: body[:-1],
        lambda body: body.replace(b'"number":1', b'"number":2'),
        lambda body: body.replace(b'"parent":0', b'"parent":1'),
        lambda body: body.replace(b"0000000001-", b"../../../x-"),
        lambda body: body.replace(b'"version":1', b'"version":2'),
        lambda body: body.replace(b'"enabled"', b'"guessed"'),
    ],
)
async def test_a_damaged_epoch_is_named_and_no_older_one_read(
    blocks: BlockStore, change: Callable[[bytes], bytes]
) -> None:
    await begun(blocks)
    path = epoch_path(1)
    body = await blocks.read(BlockKey(LAKE, path))
    await remove(blocks, path)
    await blocks.put(BlockKey(LAKE, path), change(body))
    with pytest.raises(TarnError, match=path) as caught:
        await newest_epoch(blocks, LAKE)
    assert caught.value.kind is Kind.CORRUPT


def test_paths_of_other_things_are_no_names() -> None:
    folder = f"0000000001-{'e' * 32}"
    good = f"_tarn/journal/{folder}/2026-11-29/{'a' * 32}-0000000007-{'b' * 64}.parquet"
    name = pass_name(folder, good)
    assert name is not None
    assert name.path(folder) == good
    for wrong in (
        good.replace("0000000007", "0000000000"),
        good + "x",
        good.replace("a", "A", 1),
        good.replace(f"-{'b' * 64}", ""),
    ):
        assert pass_name(folder, wrong) is None
