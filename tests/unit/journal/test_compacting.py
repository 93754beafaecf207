"""Compactions and retention: whatever dies when, readers see the same, and what is missing stays told."""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from journals import (
    State,
    branch_record,
    model,
    random_events,
    random_journal,
    record,
    row,
    state_of,
)
from tests.support.clock import ManualClock, SeededIds

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal import compacting, writing
from tarn.journal.accounts import Accounts, Report
from tarn.journal.compacting import Compacted, InProcess, compact
from tarn.journal.compactions import newest_compaction
from tarn.journal.days import write_manifest
from tarn.journal.epochs import Epoch, EpochCause, begin_epoch, newest_epoch, next_epoch
from tarn.journal.events import EventRow, rows_of, table_of
from tarn.journal.names import EPOCHS, FOLDER, compaction_path, pass_name
from tarn.journal.reading import EpochReader
from tarn.journal.replay import Replay
from tarn.journal.retention import GRACE_US, retire
from tarn.journal.writing import BranchPass, JournalWriter, write_base

LAKE = "mem://lake"
HOUR = 3_600_000_000
DAY = 24 * HOUR
LONG = 100 * 365 * DAY
MAIN = "branches/main"


class DeathError(Exception):
    """The process was killed."""


class Store(MemBlockStore):
    """Dies at a request, before or after its effect, and calls a reader after each change."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.left = -1
        self.after = False
        self.changes: list[str] = []

    def _count(self, *, is_after: bool) -> None:
        if self.left == 0 and self.after == is_after:
            raise DeathError
        if is_after and self.left > 0:
            self.left -= 1

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        self._count(is_after=False)
        await super().put(key, body)
        self.changes.append(key.path)
        self._count(is_after=True)

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        self._count(is_after=False)
        await super().delete_many(namespace, paths)
        self.changes += paths
        self._count(is_after=True)


class Journal:
    """A journal, and what is done with it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ids = SeededIds(self.clock)
        self.blocks = Store(self.clock)

    async def compact(
        self, *, keep_us: int = LONG, erased: Sequence[bytes] = ()
    ) -> Compacted | None:
        with tempfile.TemporaryDirectory() as folder:

            def rows(epoch: Epoch) -> InProcess:
                return InProcess(self.blocks, LAKE, epoch, self.ids, Path(folder) / "runs")

            return await compact(
                self.blocks, LAKE, rows, self.clock, keep_us=keep_us, erased=erased
            )

    async def retire(self, *, keep_epochs_us: int = LONG) -> tuple[int, int]:
        found = await retire(self.blocks, LAKE, self.clock, keep_epochs_us=keep_epochs_us)
        return found.replaced, found.former

    async def read(self) -> tuple[State, Report]:
        epoch = await newest_epoch(self.blocks, LAKE)
        assert epoch is not None
        accounts = Accounts(epoch.number, epoch.begin_time_us)
        reader = EpochReader(self.blocks, LAKE, epoch, accounts)
        with tempfile.TemporaryDirectory() as folder:
            replayed = Replay(Path(folder))
            for tables in (reader.base(), reader.passes()):
                async for table in tables:
                    for batch in table.to_batches():
                        replayed.add(batch)
            state = state_of(replayed.results())
            replayed.close()
        return state, accounts.report()

    async def events(self) -> list[EventRow]:
        epoch = await newest_epoch(self.blocks, LAKE)
        assert epoch is not None
        reader = EpochReader(self.blocks, LAKE, epoch, Accounts(epoch.number, 0))
        tables = [table async for table in reader.base()]
        tables += [table async for table in reader.passes()]
        return [each for table in tables for each in rows_of(table)]

    async def paths(self, prefix: str = FOLDER) -> list[str]:
        return [each.path for each in await self.blocks.list_page(LAKE, prefix, "", 10_000)]

    def pass_grace(self) -> None:
        self.clock.advance(GRACE_US / 1_000_000 + 1)


@pytest.fixture
def journal() -> Journal:
    return Journal()


async def begun(journal: Journal, base: list[EventRow]) -> Epoch:
    parent = await newest_epoch(journal.blocks, LAKE)
    epoch = next_epoch(parent, f"{len(journal.blocks.changes):032x}", EpochCause.RESTORE, HOUR)

    async def tables() -> AsyncIterator[pa.Table]:
        yield table_of(base)

    files = await write_base(journal.blocks, LAKE, epoch.folder, tables())
    epoch = msgspec.structs.replace(epoch, base=files)
    await begin_epoch(journal.blocks, LAKE, epoch)
    return epoch


async def write(
    writer: JournalWriter, time_us: int, rows: list[EventRow], *branches: BranchPass
) -> list[str]:
    return await writer.write(time_us, table_of(rows), branches, is_full=False, until_us=time_us)


BASE = [record("tags/v1", b"x", 0), record(MAIN, branch_record(["t0"]), 0), row("a", b"p", 0)]
COMMITTED = record(MAIN, branch_record(["t1"], commit="d"), 5)


async def committed(journal: Journal) -> tuple[Epoch, JournalWriter]:
    """The token t0 is committed and over; t1 takes its place."""
    epoch = await begun(journal, BASE)
    writer = JournalWriter(journal.blocks, LAKE, epoch, "a" * 32)
    await write(writer, 2 * HOUR, [row("a", b"q", 1)], BranchPass("main", 0, ["t0"]))
    rows = [COMMITTED, row("b", b"r", 2, token="t1")]
    await write(writer, 3 * HOUR, rows, BranchPass("main", 5, ["t1"]))
    await write(writer, 4 * HOUR, [row("a", b"q", 1)], BranchPass("main", 5, ["t1"], ["t0"]))
    return epoch, writer


@pytest.mark.parametrize("seed", range(6))
async def test_a_compaction_changes_nothing_that_is_rebuilt_or_told(
    journal: Journal, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(writing, "FILE_ROWS", rng.choice((5, 100)))
    monkeypatch.setattr(compacting, "FILE_ROWS", 50)
    events = random_events(rng)
    epoch, paths = await random_journal(journal.blocks, LAKE, rng, events)
    days = sorted({name.day for each in paths if (name := pass_name(epoch.folder, each))})
    for day in days:
        await write_manifest(journal.blocks, LAKE, epoch.folder, day)
    if seed % 2:
        for path in rng.sample(paths, min(2, len(paths))):
            body = await journal.blocks.read(BlockKey(LAKE, path))
            await journal.blocks.delete_many(LAKE, [path])
            if rng.random() < 0.5:
                await journal.blocks.put(BlockKey(LAKE, path), body[:-9] + bytes(9))
    state, report = await journal.read()
    if not seed % 2:
        assert state == model(events)
    assert await journal.compact()
    for _ in range(2):
        found, told = await journal.read()
        assert found == state
        assert list(told.lines()) == list(report.lines())
        assert told.branches == report.branches
        journal.pass_grace()
        await journal.retire()
    await journal.compact(keep_us=0)
    found, told = await journal.read()
    assert found == state
    assert (told.missing, told.damaged, told.branches) == (
        report.missing,
        report.damaged,
        report.branches,
    )


async def test_events_of_tokens_that_are_over_go_and_records_stay(journal: Journal) -> None:
    await committed(journal)
    state, _ = await journal.read()
    assert state == ({"tags/v1": b"x", MAIN: COMMITTED.payload}, {"main": {"b": b"r"}})
    done = await journal.compact(keep_us=0)
    assert done == Compacted(1, 1, 1, 4, 4, 1, ())
    assert (await journal.read())[0] == state
    events = await journal.events()
    assert sorted((each.key, each.order) for each in events if not each.token) == [
        (MAIN, 0),
        (MAIN, 5),
        ("tags/v1", 0),
    ]
    assert [each.token for each in events if each.token] == ["t1"]


async def test_events_of_a_token_stay_for_a_time_after_its_last_scan(journal: Journal) -> None:
    await committed(journal)
    age = journal.clock.now_us() - 4 * HOUR
    assert await journal.compact(keep_us=age + DAY)
    assert [each.order for each in await journal.events() if each.token == "t0"] == [0, 1]
    assert await journal.compact(keep_us=age + DAY) is None, "nothing is new"
    journal.clock.advance(2 * DAY / 1_000_000)
    assert await journal.compact(keep_us=age + DAY)
    assert not [each for each in await journal.events() if each.token == "t0"]


async def test_a_token_stays_while_the_newest_record_that_is_there_names_it(
    journal: Journal,
) -> None:
    """The file with the newest record is lost: a rebuild takes the one before."""
    await committed(journal)
    (lost,) = [each for each in await journal.paths() if "-0000000002-" in each]
    await journal.blocks.delete_many(LAKE, [lost])
    state, report = await journal.read()
    assert state[1] == {"main": {"a": b"q"}}
    assert await journal.compact(keep_us=0)
    found, told = await journal.read()
    assert found == state
    assert list(told.lines()) == list(report.lines())
    assert told.branches["main"].is_stale


async def test_a_damaged_branch_stays_told_until_a_pass_can_read_it(journal: Journal) -> None:
    """Also when a compaction has replaced the pass that says so; a pass without damage has nothing more in its file."""
    _, writer = await committed(journal)
    sound = await journal.read()
    damaged = BranchPass("main", 5, ["t1"], damage="why " * 100)
    (path,) = await write(writer, 5 * HOUR, [], damaged)
    assert b'"damage":"why why' in await journal.blocks.read(BlockKey(LAKE, path))
    before = await journal.read()
    assert (before[0], before[1].is_whole, sound[1].is_whole) == (sound[0], False, True)
    (line,) = before[1].lines()
    assert "branch main was damaged in the store (why why" in line
    assert len(line) < 400
    assert await journal.compact(keep_us=0)
    assert list((await journal.read())[1].lines()) == [line]
    today = journal.clock.now_us()
    (path,) = await write(writer, today, [], BranchPass("main", 5, ["t1"]))
    assert b"damage" not in await journal.blocks.read(BlockKey(LAKE, path))
    assert (await journal.read())[1].is_whole


async def test_the_tokens_of_a_branch_that_cannot_be_read_stay(journal: Journal) -> None:
    """All of them: an older record that can be read does not say which ones the newest names. Other branches' go."""
    _, writer = await committed(journal)
    other = BranchPass("dev", 7, ["d1"], ["d0"])
    rows = [
        record("branches/dev", branch_record(["d1"]), 7),
        row("x", b"p", 3, branch="dev", token="d0"),
        record(MAIN, b"\xff damaged", 9),
    ]
    await write(writer, 5 * HOUR, rows, other, BranchPass("main", 9, ["t1"]))
    state, _ = await journal.read()
    assert state[1] == {}, "the older record of main is not taken for its newest one"
    erased = [bytes(32)]  # so that a run has something to do
    done = await journal.compact(keep_us=0, erased=erased)
    assert done is not None
    assert done.tokens == 1, "d0 of dev"
    kept = {(each.branch, each.token, each.key) for each in await journal.events() if each.token}
    assert kept == {("main", "t0", "a"), ("main", "t1", "b")}
    assert (await journal.read())[0] == state
    # Also in the next run, and when a record that can be read comes at last.
    journal.clock.advance(DAY / 1_000_000)
    await journal.compact(keep_us=0, erased=erased)
    assert {each.token for each in await journal.events() if each.branch == "main"} == {
        "",
        "t0",
        "t1",
    }
    today = journal.clock.now_us() - DAY
    mended = record(MAIN, branch_record(["t1"], commit="e"), 11)
    await write(writer, today, [mended], BranchPass("main", 11, ["t1"]))
    assert await journal.compact(keep_us=0)
    assert (await journal.read())[0][1] == {"main": {"b": b"r"}}
    assert {each.token for each in await journal.events() if each.branch == "main"} == {"", "t1"}


async def test_a_pass_after_a_compaction_goes_on_with_its_counts(journal: Journal) -> None:
    _, writer = await committed(journal)
    assert await journal.compact(keep_us=0)
    today = journal.clock.now_us()
    await write(writer, today, [row("c", b"s", 7, token="t1")], BranchPass("main", 5, ["t1"]))
    state, report = await journal.read()
    assert state[1] == {"main": {"b": b"r", "c": b"s"}}
    assert list(report.lines()) == []
    assert await journal.compact(keep_us=0) is None, "the day is not over"
    journal.clock.advance(DAY / 1_000_000)
    assert await journal.compact(keep_us=0)
    assert (await journal.read())[0] == state
    journal.pass_grace()
    assert (await journal.retire())[0] > 0
    assert (await journal.read())[0] == state
    path = await write(writer, today + DAY, [], BranchPass("main", 9, ["t1"]))
    await journal.blocks.delete_many(LAKE, path)
    await write(writer, today + DAY, [], BranchPass("main", 9, ["t1"]))
    told = "\n".join((await journal.read())[1].lines())
    assert "files 5 to 5" in told
    assert "order 5 instead of 9" in told


async def test_a_run_that_dies_at_any_request_is_repeated(journal: Journal) -> None:
    await committed(journal)
    state, report = await journal.read()
    for after in (False, True):
        for at in range(100):
            other = Journal()
            await committed(other)
            other.blocks.left, other.blocks.after = at, after
            try:
                await other.compact(keep_us=0)
                other.pass_grace()
                await other.retire()
            except DeathError:
                other.blocks.left = -1
                found, told = await other.read()
                assert found == state
                assert list(told.lines()) == list(report.lines())
                await other.compact(keep_us=0)
                other.pass_grace()
                await other.retire()
                assert (await other.read())[0] == state
                assert len(await other.paths(f"{FOLDER}0000000001")) == 2, "the file and its note"
                continue
            break
        assert at >= 3


async def test_readers_see_the_same_after_each_change(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "FILE_ROWS", 2)
    await committed(journal)
    state, _ = await journal.read()
    seen = []

    def watched(name: str) -> Callable[..., object]:
        call = getattr(Store, name)

        async def then_read(*arguments: object) -> None:
            await call(journal.blocks, *arguments)
            assert (await journal.read())[0] == state
            seen.append(name)

        return then_read

    for name in ("put", "delete_many"):
        monkeypatch.setattr(journal.blocks, name, watched(name))
    assert await journal.compact(keep_us=0)
    journal.pass_grace()
    await journal.retire()
    assert {*seen} == {"put", "delete_many"}


async def test_a_reader_that_began_before_a_compaction_ends_with_the_files_of_then(
    journal: Journal,
) -> None:
    epoch, _ = await committed(journal)
    accounts = Accounts(epoch.number, 0)
    reader = EpochReader(journal.blocks, LAKE, epoch, accounts)
    tables = [table async for table in reader.base()]
    assert await journal.compact(keep_us=0)
    await journal.retire()
    tables += [table async for table in reader.passes()]
    assert sum(map(len, tables)) == 7
    assert accounts.report().is_whole


async def test_of_two_runs_beside_each_other_one_counts(journal: Journal) -> None:
    await committed(journal)
    state, _ = await journal.read()
    put = journal.blocks.put

    async def late(key: BlockKey, body: bytes) -> None:
        if key.path.endswith(".json"):
            journal.blocks.put = put  # type: ignore[method-assign]
            assert await journal.compact(keep_us=LONG)
        await put(key, body)

    journal.blocks.put = late  # type: ignore[method-assign,assignment]
    with pytest.raises(TarnError, match="run it again") as caught:
        await journal.compact(keep_us=0)
    assert (caught.value.kind, caught.value.reason) == (Kind.CONFLICT, Reason.REF_MOVED)
    assert (await journal.read())[0] == state
    journal.pass_grace()
    assert await journal.compact(keep_us=0)
    journal.pass_grace()
    await journal.retire()
    assert (await journal.read())[0] == state
    assert len(await journal.paths(f"{FOLDER}0000000001")) == 2, (
        "also the files of the one that lost"
    )


async def test_a_run_of_more_than_a_day_publishes_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await committed(journal)
    finish = compacting.CompactedWriter.finish

    async def slow(writer: compacting.CompactedWriter) -> None:
        await finish(writer)
        journal.clock.advance(DAY / 1_000_000 + 1)

    monkeypatch.setattr(compacting.CompactedWriter, "finish", slow)
    with pytest.raises(TarnError, match="more than a day"):
        await journal.compact()
    epoch = await newest_epoch(journal.blocks, LAKE)
    assert epoch is not None
    assert await newest_compaction(journal.blocks, LAKE, epoch) is None


async def test_a_damaged_file_of_a_compaction_is_told_by_its_branches_for_ever(
    journal: Journal,
) -> None:
    _, writer = await committed(journal)
    await journal.compact()
    (path,) = [each for each in await journal.paths() if "/compacted/" in each]
    body = await journal.blocks.read(BlockKey(LAKE, path))
    await journal.blocks.delete_many(LAKE, [path])
    for damaged in (None, body[:-9] + bytes(9)):
        if damaged is not None:
            await journal.blocks.put(BlockKey(LAKE, path), damaged)
        (_, staged), report = await journal.read()
        assert staged == {}
        assert [each for each, _ in report.damaged] == [path]
        assert "of branches '' to 'main'" in "\n".join(report.lines())
        assert report.branches["main"].is_stale
    await write(writer, 9 * HOUR, [record("tags/v2", b"y", 9)])
    assert await journal.compact()
    journal.pass_grace()
    await journal.retire()
    (records, _), report = await journal.read()
    assert records == {"tags/v2": b"y"}
    assert [each for each, _ in report.damaged] == [path]


async def test_a_damaged_compaction_ends_readers_and_deletes_nothing(journal: Journal) -> None:
    epoch, _ = await committed(journal)
    await journal.compact()
    path = compaction_path(epoch.folder, 1)
    body = await journal.blocks.read(BlockKey(LAKE, path))
    for damaged in (
        b"{}",
        body.replace(b'"epoch":1', b'"epoch":2'),
        body.replace(b"[[1,3]]", b"[[3,1]]"),
    ):
        assert damaged != body
        await journal.blocks.delete_many(LAKE, [path])
        await journal.blocks.put(BlockKey(LAKE, path), damaged)
        journal.pass_grace()
        before = await journal.paths()
        for call in (journal.read, journal.compact, journal.retire):
            with pytest.raises(TarnError, match=path) as caught:
                await call()
            assert caught.value.kind is Kind.CORRUPT
        assert await journal.paths() == before


async def test_parts_of_a_pass_that_did_not_end_stay_for_the_end_that_may_come(
    journal: Journal,
) -> None:
    epoch, _ = await committed(journal)
    writer = JournalWriter(journal.blocks, LAKE, epoch, "b" * 32)
    await writer.write_part(5 * HOUR, table_of([row("late", b"s", 8, token="t1")]))
    assert await journal.compact()
    journal.pass_grace()
    await journal.retire()
    assert (await journal.read())[1].unfinished
    await write(writer, 5 * HOUR, [], BranchPass("main", 5, ["t1"]))
    (_, staged), report = await journal.read()
    assert staged == {"main": {"b": b"r", "late": b"s"}}
    assert report.is_whole


async def test_replaced_files_stay_for_the_grace_time(journal: Journal) -> None:
    await committed(journal)
    before = await journal.paths()
    assert await journal.retire() == (0, 0)
    await journal.compact()
    assert await journal.retire() == (0, 0)
    assert {*before} <= {*await journal.paths()}
    journal.pass_grace()
    assert await journal.retire() == (4, 0), "a base and three passes"
    assert await journal.retire() == (0, 0)


async def test_former_epochs_go_long_after_the_newest_one_began(journal: Journal) -> None:
    first, _ = await committed(journal)
    stray = f"{FOLDER}{2:010d}-{'f' * 32}/base/{1:010d}.parquet"
    coming = f"{FOLDER}{3:010d}-{'f' * 32}/base/{1:010d}.parquet"
    for path in (stray, coming):
        await journal.blocks.put(BlockKey(LAKE, path), b"an attempt to begin an epoch")
    journal.clock.advance(40 * DAY / 1_000_000)
    second = await begun(journal, BASE)
    state, _ = await journal.read()
    before = await journal.paths()
    journal.clock.advance(29 * DAY / 1_000_000)
    assert await journal.retire(keep_epochs_us=30 * DAY) == (0, 0)
    assert await journal.paths() == before
    journal.clock.advance(2 * DAY / 1_000_000)
    assert await journal.retire(keep_epochs_us=30 * DAY) == (0, 5)
    left = await journal.paths()
    assert not [each for each in left if first.folder in each or each == stray]
    assert coming in left
    assert [each for each in left if second.folder in each]
    assert len([each for each in left if each.startswith(EPOCHS)]) == 2
    assert (await journal.read())[0] == state


async def test_events_of_erased_objects_go_when_their_token_is_over(journal: Journal) -> None:
    def entry(address: bytes) -> bytes:
        return bytes(18) + address + bytes(34)

    gone, stays = entry(b"e" * 16), entry(b"s" * 16)
    epoch = await begun(journal, BASE)
    writer = JournalWriter(journal.blocks, LAKE, epoch, "a" * 32)
    rows = [row("x", gone, 1), row("x", stays, 2), COMMITTED, row("y", gone, 3, token="t1")]
    await write(writer, 2 * HOUR, rows, BranchPass("main", 5, ["t1"], ["t0"]))
    state, _ = await journal.read()
    assert await journal.compact(erased=[b"e" * 16, b"z" * 16])
    left = [(each.key, each.token, each.payload) for each in await journal.events() if each.token]
    assert left == [("a", "t0", b"p"), ("x", "t0", stays), ("y", "t1", gone)]
    assert (await journal.read())[0] == state
