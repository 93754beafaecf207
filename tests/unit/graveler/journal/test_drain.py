"""The drain of the journal, over the embedded store and local blocks: what was acknowledged is in files, and a token is
dropped only afterwards (docs/design/journal.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from drained_lake import Bucket, drain_of, events_of, held_events, record_events_of
from lake import Lake, Running, create_repository, ended, entry, reached
from lake_upload import seal_main

from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, pack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.journal.days import read_manifest
from tarn.journal.epochs import newest_epoch
from tarn.kv.drop_records import Drop
from tarn.kv.port import CompanionName, Partition
from tarn.kv.registrations import Registration, Registrations
from tarn_graveler.journal import passes, scanning
from tarn_graveler.journal.draining import Drain
from tarn_graveler.journal.scanning import BranchScan

NEW = WriteCondition(if_none_match=True)


async def test_acknowledged_writes_are_in_the_bucket_after_a_round(
    lake: Lake, bucket: Bucket
) -> None:
    """All of them, in the order of the store; a rebuild makes the same listing, with the file's own accounts whole."""
    await lake.put("before the epoch", 1)
    assert await drain_of(lake).round()
    await lake.put("a", 1)
    await lake.put("a", 2)
    await lake.put("b", 3)
    assert await lake.delete("a") == [None]
    assert await drain_of(lake).round()
    files = await bucket.read()
    assert files.sizes == [("before the epoch", 1), ("a", 1), ("a", 2), ("b", 3), ("a", None)]
    assert files.staged == {"main": {"a": None, "b": 3, "before the epoch": 1}}
    assert files.report is not None
    assert files.report.is_whole
    assert files.report.drained_until_us == lake.clock.now_us()


async def test_a_token_is_dropped_only_when_its_events_are_in_the_bucket(
    lake: Lake, bucket: Bucket
) -> None:
    """As long as the bucket refuses files it stays, with its rows; no round is needed before."""
    await lake.put("a", 1)
    token = await lake.staging_rows()
    await lake.commit()
    bucket.refuses = "_tarn/journal/"
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 1
    assert await lake.kv.scan(token, b"", None, 10)
    assert drain_of(lake).progress.failed_passes > 0
    bucket.refuses = "nothing"
    lake.clock.advance(700)
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 0
    assert not await lake.kv.scan(token, b"", None, 10)
    assert (await bucket.read()).sizes == [("a", 1)]
    assert drain_of(lake).progress.last_scans == 1


async def test_the_last_scan_of_a_branch_says_nothing_of_the_others(
    lake: Lake, bucket: Bucket
) -> None:
    """A rebuild promises what was acknowledged before the last pass over all branches, and no more."""
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    await lake.graveler.branches.create(lake.branch(BranchId("dev")), head)
    await lake.put("a", 1)
    await drain_of(lake).round()
    round_us = lake.clock.now_us()
    lake.clock.advance(5)
    await lake.graveler.staging.stage(lake.branch(BranchId("dev")), "left", entry(2))
    await lake.commit()
    await lake.drop_everything_removed()
    files = await bucket.read()
    assert drain_of(lake).progress.last_scans == 1
    assert files.report is not None
    assert ("left", 2) not in files.sizes
    assert files.report.branches["main"].drained_until_us > round_us
    assert files.report.drained_until_us == round_us


async def test_a_row_that_lands_late_in_a_sealed_token_is_in_the_last_scan(
    lake: Lake, bucket: Bucket, running: Running
) -> None:
    """Its writer is told to try again in the next token; both rows are in the files, with one id."""
    held = lake.kv.hold("set_many", lake.row_key("late"))
    writer = running.start(lake.put("late", 7))
    await reached(held)
    first = await lake.staging_rows()
    await lake.put("a", 1)
    await lake.commit()
    await drain_of(lake).round()
    held.open()
    await writer
    assert await events_of(lake, first) == 2
    await lake.drop_everything_removed()
    assert await events_of(lake, first) == 0
    await drain_of(lake).round()
    files = await bucket.read()
    late = [row for row in files.events if row.key == "late"]
    assert len({row.token for row in late}) == 2
    assert len({row.event_id for row in late}) == 1


async def test_an_event_is_written_to_files_once_while_nothing_fails(
    lake: Lake, bucket: Bucket
) -> None:
    """Rounds read ten minutes again, and remember what they have written; an idle round writes no file."""
    await lake.put("a", 1)
    for _ in range(3):
        await drain_of(lake).round()
        lake.clock.advance(30)
    await lake.put("b", 2)
    for _ in range(3):
        await drain_of(lake).round()
    files = await bucket.read()
    assert files.sizes == [("a", 1), ("b", 2)]
    assert files.report is not None
    assert files.report.files == 2
    lake.clock.advance(3_600)
    await lake.put("c", 3)
    await drain_of(lake).round()
    assert (await bucket.read()).sizes == [("a", 1), ("b", 2), ("c", 3)]


async def test_a_lost_answer_of_the_bucket_repeats_events_and_loses_none(
    lake: Lake, bucket: Bucket
) -> None:
    """The file may be there: another holder reads everything again. The feed has each event once."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    await lake.put("b", 2)
    bucket.loses = ".parquet"
    await drain_of(lake).round()
    assert drain_of(lake).progress.failed_passes == 1
    bucket.loses = "nothing"
    await lake.put("c", 3)
    await drain_of(lake).round()
    files = await bucket.read()
    assert sorted(set(files.sizes)) == [("a", 1), ("b", 2), ("c", 3)]
    assert len(files.sizes) == 5
    assert files.report is not None
    assert files.report.is_whole
    assert files.staged == {"main": {"a": 1, "b": 2, "c": 3}}


async def test_two_holders_repeat_events_and_lose_none(
    lake: Lake, other: Lake, bucket: Bucket
) -> None:
    """The lease only avoids double work: a replica whose lease has ended goes on, and drops what it has drained."""
    await lake.put("a", 1)
    token = await lake.staging_rows()
    assert await drain_of(lake).round()
    assert not await drain_of(other).round()
    lake.clock.advance(120)
    assert await drain_of(other).round()
    assert not await drain_of(lake).round()
    await lake.commit()
    for _ in range(3):
        lake.clock.advance(61)
        await lake.graveler.cleaner.drop_due()
        await other.graveler.cleaner.drop_due()
    assert await events_of(lake, token) == 0
    files = await bucket.read()
    assert set(files.sizes) == {("a", 1)}
    assert files.report is not None
    assert files.report.is_whole


async def test_a_holder_that_pauses_before_its_file_drops_nothing_that_is_not_in_it(
    lake: Lake, other: Lake, bucket: Bucket, running: Running
) -> None:
    """It reads a branch, and stops; rows that land meanwhile are in the file of the other one, or in the store."""
    await lake.put("a", 1)
    await drain_of(lake).round()
    await lake.put("b", 2)
    held = lake.kv.hold("get_many", lake.branch_key)
    paused = running.start(drain_of(lake).drain(drain_of(lake).place_of(lake.repository)))
    await reached(held)
    await lake.put("c", 3)
    await lake.commit()
    await lake.put("d", 4)
    for _ in range(3):
        lake.clock.advance(61)
        await other.graveler.cleaner.drop_due()
    held.open()
    await paused
    assert {path for path, _ in (await bucket.read()).sizes} == {"a", "b", "c", "d"}


async def test_a_record_that_changes_beside_the_scan_is_read_again(
    lake: Lake, bucket: Bucket
) -> None:
    """A row that hides another one is not missed where that is found; what was read before is kept."""
    await lake.put("x", 1)
    await drain_of(lake).round()
    scan, changes = BranchScan._read_tokens, 0

    async def beside(self: BranchScan, branch: object) -> None:
        nonlocal changes
        await scan(self, branch)  # type: ignore[arg-type]
        changes += 1
        if changes <= 2:
            await lake.put("x", 1 + changes)
            await lake.commit()
            await lake.put(f"new {changes}", 9)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BranchScan, "_read_tokens", beside)
        await drain_of(lake).round()
    assert changes == 3
    files = await bucket.read()
    assert ("new 2", 9) in files.sizes
    assert files.report is not None
    assert not files.report.branches["main"].is_unsettled


async def test_a_record_that_changes_all_the_time_is_told_to_be_unsettled(
    lake: Lake, bucket: Bucket
) -> None:
    """After 16 looks the pass goes on, and its file says so."""
    await drain_of(lake).round()
    lake.clock.advance(1)
    scan, changes = BranchScan._read_tokens, 0

    async def beside(self: BranchScan, branch: object) -> None:
        nonlocal changes
        await scan(self, branch)  # type: ignore[arg-type]
        changes += 1
        await lake.put("x", changes)
        await lake.commit()
        await lake.put("y", changes)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BranchScan, "_read_tokens", beside)
        await drain_of(lake).round()
    assert changes == scanning.LOOKS
    files = await bucket.read()
    assert files.report is not None
    assert files.report.branches["main"].is_unsettled


async def test_conditional_writes_and_other_branches_are_drained_too(
    lake: Lake, bucket: Bucket
) -> None:
    """Tokens of registers as plain ones, and each branch of a repository."""
    branch = await lake.graveler.branches.fresh(lake.main)
    dev = BranchId("dev")
    await lake.graveler.branches.create(lake.branch(dev), branch.branch.commit_id)
    packed = pack(Entry(5, 0, bytes(16), bytes(16), operation_id="op"))
    await lake.graveler.conditional.stage(lake.main, "new", packed, NEW)
    await lake.put("other", 6, branch=dev)
    await drain_of(lake).round()
    files = await bucket.read()
    assert sorted(files.sizes) == [("new", 5), ("other", 6)]
    assert files.staged == {"main": {"new": 5}, "dev": {"other": 6}}


async def test_a_pass_of_many_events_is_written_in_parts(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that memory is bounded; the parts count when the last one names them."""
    monkeypatch.setattr(passes, "_PART_ROWS", 10)
    monkeypatch.setattr(scanning, "_PAGE", 7)
    await drain_of(lake).round()
    for number in range(50):
        await lake.put(f"{number:03}", number)
    bucket.refuses = "-0000000004-"
    await drain_of(lake).round()
    files = await bucket.read()
    assert files.sizes == []
    assert files.report is not None
    assert len(files.report.unfinished) == 2
    bucket.refuses = "nothing"
    await drain_of(lake).round()
    files = await bucket.read()
    assert files.sizes == [(f"{number:03}", number) for number in range(50)]
    assert files.report is not None
    assert files.report.is_whole
    assert files.report.files >= 4


async def test_what_a_holder_remembers_is_bounded(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it writes events again, which changes nothing; it forgets tokens that left their record."""
    monkeypatch.setattr(passes, "_SEEN_MAX", 4)
    for number in range(10):
        await lake.put(f"{number}", number)
    for _ in range(3):
        await drain_of(lake).round()
    files = await bucket.read()
    assert set(files.sizes) == {(f"{number}", number) for number in range(10)}
    journal = drain_of(lake)._journals.passes.values()
    assert sum(len(k.seen) for one in journal for t in one._known.values() for k in t.values()) <= 4
    for number in range(3):
        await lake.put("x", number)
        await lake.commit()
        await drain_of(lake).round()
    one = drain_of(lake)._journals.passes[drain_of(lake).place_of(lake.repository).root]
    assert [len(tokens) for tokens in one._known.values()] == [1]


async def test_a_compaction_frees_the_store_of_overwrites(lake: Lake, bucket: Bucket) -> None:
    """One row with many events is folded; then they leave the store with their token, and are all in the bucket."""
    await drain_of(lake).round()
    for size in range(1, 6):
        await lake.put("a", size)
    token = await lake.staging_rows()
    assert await events_of(lake, token) == 5
    await lake.graveler.compacting.compact(lake.main)
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 0
    assert await lake.get("a") == 5
    assert (await bucket.read()).sizes == [("a", size) for size in range(1, 6)]


# ---- events of records


async def test_events_of_records_are_removed_when_they_are_in_the_bucket(
    lake: Lake, bucket: Bucket
) -> None:
    """Not before: while the bucket refuses files they stay, with their registrations."""
    await drain_of(lake).round()
    assert await held_events(lake) == set()
    await lake.put("a", 1)
    await lake.commit()
    events = await held_events(lake)
    assert events
    bucket.refuses = ".parquet"
    await drain_of(lake).round()
    assert await held_events(lake) == events
    bucket.refuses = "nothing"
    await drain_of(lake).round()
    assert await held_events(lake) == set()
    told = record_events_of(await bucket.read())
    assert {("branches/main", event_id) for event_id in events} <= told
    assert (await bucket.read()).branches.keys() == {"branches/main"}


async def test_exactly_the_events_of_the_file_are_removed(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that lands while the file is written is in the next one."""
    await drain_of(lake).round()
    await lake.put("a", 1)
    await lake.commit()
    first = await held_events(lake)

    async def beside() -> None:
        await lake.put("b", 2)
        await lake.commit()

    bucket.beside = beside
    await drain_of(lake).round()
    later = await held_events(lake)
    assert later
    assert not later & first
    await drain_of(lake).round()
    assert await held_events(lake) == set()
    told = {event_id for _, event_id in record_events_of(await bucket.read())}
    assert later | first <= told


async def test_events_that_a_crash_left_are_removed_by_the_next_replica(
    lake: Lake, other: Lake, bucket: Bucket, running: Running
) -> None:
    """Between the file and the removal; they are written to no second file."""
    await drain_of(lake).round()
    await lake.put("a", 1)
    await lake.commit()
    events = await held_events(lake)
    held = lake.kv.hold("delete_companions")
    dying = running.start(drain_of(lake).round())
    await reached(held)
    dying.cancel()
    await ended(dying)
    held.open()
    assert await held_events(lake) == events
    lake.clock.advance(120)
    await drain_of(other).round()
    assert await held_events(lake) == set()
    rows = [row for row in (await bucket.read()).events if row.event_id in events]
    assert len(rows) == len(events)


async def test_a_store_that_keeps_events_does_not_hold_up_the_files(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the bucket is drained. The next round removes it."""
    await drain_of(lake).round()
    await lake.put("a", 1)
    await lake.commit()
    events = await held_events(lake)

    async def refuse(partition: Partition, names: Sequence[CompanionName]) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store refuses removals")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drain_of(lake)._records._kv, "delete_companions", refuse)
        lake.clock.advance(60)
        await drain_of(lake).round()
    assert await held_events(lake) == events
    assert drain_of(lake).progress.failed_passes == 1
    assert drain_of(lake).progress.greatest_lag_us(lake.clock.now_us()) == 0
    await drain_of(lake).round()
    assert await held_events(lake) == set()


async def test_a_round_reads_the_registrations_of_each_repository_once(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys tell who has some; then it reads of each repository only its own."""
    for number in range(3):
        await create_repository(lake.graveler, f"more{number}")
    read: list[str] = []
    registered = Registrations.registered

    def counted(self: Registrations, hour: int, root: str = "") -> AsyncIterator[Registration]:
        async def found() -> AsyncIterator[Registration]:
            async for each in registered(self, hour, root):
                read.append(each.event_id.hex())
                yield each

        return found()

    monkeypatch.setattr(Registrations, "registered", counted)
    await drain_of(lake).round()
    assert read
    assert {read.count(event_id) for event_id in read} == {1}


# ---- the life of repositories, and progress


async def test_a_deleted_branch_is_drained_before_its_tokens_are_dropped(
    lake: Lake, bucket: Bucket
) -> None:
    dev = lake.branch(BranchId("dev"))
    head = (await lake.graveler.branches.fresh(lake.main)).branch.commit_id
    made = await lake.graveler.branches.create(dev, head)
    await lake.put("gone", 1, branch=dev.branch_id)
    token = lake.graveler.repositories.keys_of(lake.repository).token(dev.branch_id, made.staging)
    await lake.graveler.branches.delete(
        dev, lambda tokens: lake.graveler.drops.announce(dev, tokens)
    )
    await lake.drop_everything_removed()
    assert await events_of(lake, token) == 0
    assert (await bucket.read()).sizes == [("gone", 1)]


async def test_a_repository_whose_bucket_refuses_does_not_stop_the_others(
    lake: Lake, bucket: Bucket
) -> None:
    """Its lag grows, and only its own."""
    second = await create_repository(lake.graveler, "second")
    other = replace(lake, repository=second)
    drain = drain_of(lake)
    await drain.round()
    await other.put("b", 2)
    await lake.put("a", 1)
    bucket.closed = lake.repository.storage_namespace
    lake.clock.advance(300)
    await drain.round()
    now_us = lake.clock.now_us()
    assert drain.progress.lag_us(drain.place_of(second).root, now_us) == 0
    assert drain.progress.lag_us(drain.place_of(lake.repository).root, now_us) == 300_000_000
    assert drain.progress.greatest_lag_us(now_us) == 300_000_000
    bucket.closed = ""
    await drain.round()
    assert drain.progress.greatest_lag_us(now_us) == 0


async def test_a_past_day_gets_a_manifest(lake: Lake, other: Lake, bucket: Bucket) -> None:
    """An hour after its end, once, also by another process than that which wrote its files; it shows a lost file."""
    await drain_of(lake).round()
    for path in ("a", "b"):
        await lake.put(path, 1)
        await drain_of(lake).round()
    lake.clock.advance(2 * 86_400)
    epoch = await newest_epoch(bucket.blocks, lake.repository.storage_namespace)
    assert epoch is not None
    bucket.refuses = "manifest.json"
    assert await drain_of(other).round()
    assert await bucket.paths("manifest.json") == []
    bucket.refuses = "nothing"
    await lake.put("c", 1)
    for _ in range(2):
        assert await drain_of(other).round()
    (path,) = await bucket.paths("manifest.json")
    assert (await bucket.read()).report.is_whole  # type: ignore[union-attr]
    day = path.rsplit("/", 2)[1]
    namespace = lake.repository.storage_namespace
    manifest = await read_manifest(bucket.blocks, namespace, epoch.folder, day)
    files = [each for each in await bucket.paths(".parquet") if f"/{day}/" in each]
    assert len(manifest.files) == len(files) >= 2
    await bucket.blocks.delete_many(namespace, [max(files)])
    report = (await bucket.read()).report
    assert report is not None
    assert not report.is_whole


# ---- guards that are switched off: each test above, or here, would notice


async def _late_row_beside_the_scan(lake: Lake, running: Running) -> None:
    """A row that is never acknowledged lands in a sealed token, beneath a newer row, while the token is scanned."""
    await lake.put("x", 1)
    await drain_of(lake).round()
    first = await lake.staging_rows()
    late = lake.kv.hold("set_many", lake.row_key("x"))
    writer = running.start(lake.put("x", 7))
    await reached(late)
    scan = BranchScan._read

    async def beside(self: BranchScan, token_id: str, partition: Partition, since_us: int) -> None:
        if partition == first and not writer.done():
            await seal_main(lake)
            await lake.put("x", 2)
            check = lake.kv.hold("get_many", lake.branch_key)
            late.open()
            await reached(check)
            writer.cancel()
            await ended(writer)
        await scan(self, token_id, partition, since_us)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BranchScan, "_read", beside)
        await drain_of(lake).round()
    assert writer.cancelled()
    assert await events_of(lake, first) == 2


async def test_a_late_row_that_was_never_visible_is_not_rebuilt(
    lake: Lake, bucket: Bucket, running: Running
) -> None:
    await _late_row_beside_the_scan(lake, running)
    assert (await bucket.read()).staged == {"main": {"x": 2}}


async def test_without_the_second_read_of_the_record_it_is_rebuilt(
    lake: Lake, bucket: Bucket, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_same", lambda *_: True)
    await _late_row_beside_the_scan(lake, running)
    assert (await bucket.read()).staged == {"main": {"x": 7}}


async def test_without_the_last_scan_an_event_is_lost(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the holder counts as drained what its file does not hold."""

    async def not_at_all(self: Drain, drops: Sequence[Drop]) -> list[Drop]:
        return list(drops)

    await lake.put("a", 1)
    await lake.commit()
    monkeypatch.setattr(Drain, "last_scans", not_at_all)
    await lake.drop_everything_removed()
    await drain_of(lake).round()
    assert (await bucket.read()).sizes == []
