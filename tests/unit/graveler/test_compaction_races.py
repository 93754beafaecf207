"""Compactions beside writers, commits, merges, resets and other compactions, one interleaving at a time (rule 6)."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from lake import MAIN, Lake, Running, ended, keep_tokens, reached
from lake_merges import (
    NEW,
    branch_with,
    head,
    hold_change,
    merge,
    mine,
    record,
    refused,
    uncommitted,
)
from lake_parts import failing, listing, reset

from tarn.core.branch import TokenKind
from tarn.core.errors import Reason
from tarn.core.head_change import UNATTRIBUTED
from tarn.kv.port import OutcomeUnknownError, Predicate
from tarn_graveler.compaction.compacting import (
    CompactionOutcome,
    CompactionResult,
    running_since_us,
)


async def compact(lake: Lake, *, force: bool = False) -> CompactionResult:
    return await lake.graveler.compacting.compact(lake.main, force=force)


async def outcome(lake: Lake, *, force: bool = False) -> CompactionOutcome:
    return (await compact(lake, force=force)).outcome


async def test_rows_that_are_written_after_the_seal_stay_above_the_compacted_listing(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    await lake.put("b", 1)
    gate = hold_change(lake, 2)
    compacting = running.start(compact(other))
    await reached(gate)
    await lake.put("a", 2)
    await lake.delete("b")
    gate.open()
    assert (await compacting).outcome is CompactionOutcome.COMPACTED
    await lake.drop_everything_removed()
    assert await listing(lake) == {"a": 2}
    await lake.commit()
    assert await listing(lake, "main@") == {"a": 2}


async def test_newer_seals_stay_in_the_record(lake: Lake, other: Lake, running: Running) -> None:
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    compacting = running.start(compact(other))
    await reached(gate)
    await lake.put("b", 2)
    await lake.graveler.conditional.stage(lake.main, "c", mine(3, "three"), NEW)
    gate.open()
    done = await compacting
    assert done.outcome is CompactionOutcome.COMPACTED
    after = await record(lake)
    assert (len(after.sealed), after.staging.kind) == (1, TokenKind.CONDITIONAL)
    assert after.compacted_metarange_id == done.compacted
    await lake.drop_everything_removed()
    assert await listing(lake) == {"a": 1, "b": 2, "c": 3}


async def test_a_compaction_that_meets_a_commit_gives_up(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Its listing over the new head would bring the deleted object back."""
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    compacting = running.start(compact(other))
    await reached(gate)
    await lake.commit()
    await lake.delete("a")
    await lake.commit()
    gate.open()
    done = await compacting
    assert done.outcome is CompactionOutcome.SUPERSEDED
    assert (done.rows_read, done.tombstones_removed, done.tokens_taken) == (1, 0, 0)
    after = await record(lake)
    assert after.compacted_metarange_id is None
    assert not after.compaction_start_time_us
    assert await listing(lake) == {}


async def test_a_commit_that_meets_a_compaction_takes_what_it_folded(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    commit = running.start(lake.commit())
    await reached(gate)
    assert await outcome(other) is CompactionOutcome.COMPACTED
    await lake.drop_everything_removed()
    gate.open()
    made = await commit
    assert made.commit_id == await head(lake)
    assert await listing(lake, "main@") == {"a": 1}
    assert (made.built.added, made.built.updated, made.built.removed) == (1, 0, 0)


async def test_a_commit_that_sealed_nothing_and_meets_a_compaction_clears_no_listing_unseen(
    lake: Lake, other: Lake, running: Running
) -> None:
    """All its changes were in the compacted listing. The newer one holds a write that was acknowledged meanwhile."""
    await lake.put("a", 1)
    await compact(lake)
    gate = hold_change(lake)
    commit = running.start(lake.commit())
    await reached(gate)
    await other.put("b", 1)
    assert await outcome(other) is CompactionOutcome.COMPACTED
    gate.open()
    await commit
    assert await listing(lake, "main@") == await listing(lake) == {"a": 1, "b": 1}


async def test_a_merge_that_sealed_nothing_and_meets_a_compaction_is_refused(
    lake: Lake, other: Lake, running: Running
) -> None:
    source = await branch_with(lake, {"s": 1})
    gate = hold_change(lake)
    merging = running.start(merge(lake, source))
    await reached(gate)
    await other.put("b", 1)
    assert await outcome(other) is CompactionOutcome.COMPACTED
    gate.open()
    assert await refused(merging) is Reason.BRANCH_DIRTY
    assert await listing(lake) == {"b": 1}


async def test_the_reset_of_a_part_that_sealed_nothing_and_meets_a_compaction_keeps_its_rest(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("raw/1", 1)
    await lake.put("rest", 1)
    await compact(lake)
    gate = hold_change(lake)
    resetting = running.start(reset(lake, "raw/"))
    await reached(gate)
    await other.put("rest", 2)
    assert await outcome(other) is CompactionOutcome.COMPACTED
    gate.open()
    await resetting
    assert await listing(lake) == {"rest": 2}


async def test_seals_keep_the_compacted_listing(lake: Lake) -> None:
    await lake.put("a", 1)
    await compact(lake)
    await lake.graveler.conditional.stage(lake.main, "b", mine(5, "b"), NEW)
    await lake.put("c", 1)
    await lake.drop_everything_removed()
    assert (await record(lake)).compacted_metarange_id is not None
    assert await listing(lake) == {"a": 1, "b": 5, "c": 1}
    assert await uncommitted(lake) == ["a", "b", "c"]


async def test_tokens_that_a_compaction_folded_are_not_taken_for_committed(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Another commit has moved the head, and the tokens are gone; but no commit holds their rows."""
    await lake.put("a", 1)
    first_end = hold_change(lake, 2)
    first = running.start(lake.commit("first"))
    await reached(first_end)
    await lake.put("b", 1)
    second_end = hold_change(lake, 2)
    second = running.start(other.commit("second"))
    await reached(second_end)
    first_end.open()
    await first
    again = hold_change(lake)
    second_end.open()
    await reached(again)
    assert await outcome(lake) is CompactionOutcome.COMPACTED
    again.open()
    made = await second
    assert made.commit_id == await head(lake)
    assert await listing(lake, "main@") == {"a": 1, "b": 1}


async def test_a_compaction_that_meets_a_reset_does_not_bring_changes_back(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    compacting = running.start(compact(other))
    await reached(gate)
    await lake.graveler.moves.reset(lake.main)
    gate.open()
    assert (await compacting).outcome is CompactionOutcome.SUPERSEDED
    assert await listing(lake) == {}


async def test_a_reset_discards_what_was_compacted(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("raw/1", 1)
    await compact(lake)
    await reset(lake, "raw/")
    assert await listing(lake) == {"a": 1}
    await compact(lake)
    await lake.graveler.moves.reset(lake.main)
    assert await listing(lake) == {}
    assert (await record(lake)).compacted_metarange_id is None


async def test_the_reset_of_a_part_that_meets_a_compaction_discards_what_it_folded(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("raw/1", 1)
    await lake.put("rest", 1)
    gate = hold_change(lake, 2)
    resetting = running.start(reset(other, "raw/"))
    await reached(gate)
    assert await outcome(lake) is CompactionOutcome.COMPACTED
    await lake.drop_everything_removed()
    gate.open()
    await resetting
    assert await listing(lake) == {"rest": 1}


async def test_a_merge_refuses_a_compacted_branch_and_one_that_is_compacted_meanwhile(
    lake: Lake, other: Lake, running: Running
) -> None:
    source = await branch_with(lake, {"s": 1})
    await lake.put("a", 1)
    await compact(lake)
    assert await refused(merge(lake, source)) is Reason.BRANCH_DIRTY
    await lake.delete("a")
    await compact(lake)
    assert (await record(lake)).compacted_metarange_id is None
    await lake.put("tmp", 1)
    await lake.delete("tmp")
    gate = hold_change(lake, 2)
    merging = running.start(merge(lake, source))
    await reached(gate)
    await other.put("b", 1)
    assert await outcome(other) is CompactionOutcome.COMPACTED
    gate.open()
    assert await refused(merging) is Reason.BRANCH_DIRTY
    assert await listing(lake) == {"b": 1}


async def test_a_creation_and_a_delete_read_through_the_compacted_listing(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.commit()
    await lake.put("b", 1)
    await lake.delete("a")
    await compact(lake)
    await lake.drop_everything_removed()
    stage = lake.graveler.conditional.stage
    assert await refused(stage(lake.main, "b", mine(5, "b"), NEW)) is Reason.PRECONDITION_FAILED
    await stage(lake.main, "a", mine(5, "a"), NEW)
    await lake.delete("b")
    assert await listing(lake) == {"a": 5}


async def test_a_creation_whose_row_was_folded_is_acknowledged_once_and_committed(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Its token is sealed before its re-check; it finds its own row in the compacted listing and writes it again."""
    await lake.graveler.conditional.stage(lake.main, "other", mine(1, "first"), NEW)
    row = lake.kv.hold("set_if", lake.row_key("a"), after=True)
    creating = running.start(
        lake.graveler.conditional.stage(lake.main, "a", mine(5, "second"), NEW)
    )
    await reached(row)
    before = await record(lake)
    assert await outcome(other) is CompactionOutcome.COMPACTED
    await lake.drop_everything_removed()
    row.open()
    await creating
    assert (await record(lake)).move_time_us == before.move_time_us
    await lake.commit()
    assert await listing(lake, "main@") == {"a": 5, "other": 1}


async def test_two_compactions_at_once_fold_everything_once(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    late = running.start(compact(other))
    await reached(gate)
    busy = await compact(lake)
    assert busy.outcome is CompactionOutcome.RUNNING
    assert busy.running_since_us == (await record(lake)).compaction_start_time_us
    await lake.put("b", 1)
    assert await outcome(lake, force=True) is CompactionOutcome.COMPACTED
    gate.open()
    assert (await late).outcome is CompactionOutcome.SUPERSEDED
    assert await listing(lake) == {"a": 1, "b": 1}
    assert not (await record(lake)).compaction_start_time_us


async def test_the_mark_of_a_compaction_expires(lake: Lake, other: Lake, running: Running) -> None:
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    dead = running.start(compact(other))
    await reached(gate)
    lake.clock.advance(599.0)
    assert await outcome(lake) is CompactionOutcome.RUNNING
    lake.clock.advance(2.0)
    assert await outcome(lake) is CompactionOutcome.COMPACTED
    gate.open()
    assert (await dead).outcome is CompactionOutcome.SUPERSEDED


async def test_a_mark_from_the_future_keeps_no_compaction_away(lake: Lake) -> None:
    branch = replace(await record(lake), compaction_start_time_us=2_000_000_000_000_000)
    for now_us, is_running in (
        (2_000_000_000_000_000 - 599_000_000, True),
        (2_000_000_000_000_000 - 601_000_000, False),
        (2_000_000_000_000_000 + 599_000_000, True),
        (2_000_000_000_000_000 + 601_000_000, False),
    ):
        assert bool(running_since_us(branch, now_us)) is is_running


async def test_compactions_that_fail_pile_up_no_layers_and_block_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = lake.graveler.compacting._listings._builder.build
    monkeypatch.setattr(lake.graveler.compacting._listings._builder, "build", failing)
    for number in range(20):
        await lake.put(f"{number}", 1)
        assert await refused(compact(lake)) is Reason.UNAVAILABLE
    after = await record(lake)
    assert len(after.sealed) == 8
    assert not after.compaction_start_time_us
    monkeypatch.setattr(lake.graveler.compacting._listings._builder, "build", build)
    done = await compact(lake)
    assert (done.rows_read, done.tokens_taken) == (20, 9)
    after = await record(lake)
    assert after.sealed == ()
    assert await lake.kv.scan(await lake.staging_rows(), b"", None, 1) == []
    assert len(await listing(lake)) == 20


async def test_compactions_that_begin_together_add_one_layer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has read the record before another one sealed it; the seal of an empty token would be a layer more."""
    await lake.put("a", 1)
    monkeypatch.setattr(lake.graveler.compacting._listings._builder, "build", failing)
    gate = lake.kv.hold("scan")
    async with asyncio.TaskGroup() as group:
        all_of_them = [group.create_task(refused(compact(lake, force=True))) for _ in range(12)]
        await reached(gate)
        gate.open()
    assert {task.result() for task in all_of_them} == {Reason.UNAVAILABLE}
    assert len((await record(lake)).sealed) == 1


async def test_a_cancelled_compaction_leaves_no_mark(lake: Lake, running: Running) -> None:
    """Its caller's deadline has passed, or its replica stops. The next compaction need not wait ten minutes."""
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    compacting = running.start(compact(lake))
    await reached(gate)
    compacting.cancel()
    await ended(compacting)
    gate.open()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not (await record(lake)).compaction_start_time_us
    assert await outcome(lake) is CompactionOutcome.COMPACTED
    assert await listing(lake) == {"a": 1}


async def test_a_compaction_ends_with_its_branch(lake: Lake, other: Lake, running: Running) -> None:
    """Also if another branch has its name now: that one keeps its content."""
    await lake.put("a", 1)
    gate = hold_change(lake, 2)
    compacting = running.start(compact(other))
    await reached(gate)
    head_id = await head(lake)
    await lake.graveler.branches.delete(lake.main, keep_tokens, UNATTRIBUTED)
    await lake.graveler.names.release(lake.repository, MAIN)
    await lake.graveler.branches.create(lake.main, head_id, UNATTRIBUTED)
    await lake.put("b", 2)
    gate.open()
    assert await refused(compacting) is Reason.BRANCH_NOT_FOUND
    assert await listing(lake) == {"b": 2}


async def test_an_unknown_outcome_is_told_and_leaves_the_same_content(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("a", 1)
    set_if = lake.kv.set_if

    async def unanswered(*args: Any, **named: Any) -> Predicate:
        if args[1] != lake.branch_key or not (await record(lake)).sealed:
            return await set_if(*args, **named)
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(lake.kv, "set_if", unanswered)
    assert await refused(compact(lake)) is Reason.OUTCOME_UNKNOWN
    monkeypatch.setattr(lake.kv, "set_if", set_if)
    assert await listing(lake) == {"a": 1}
    assert await uncommitted(lake) == ["a"]


async def test_a_lost_answer_is_settled(lake: Lake, running: Running) -> None:
    """Whether the last step was applied or not, its repetition folds nothing twice."""
    for applied in (True, False):
        await lake.put("a", 1 + applied)
        gate = hold_change(lake, 2)
        compacting = running.start(compact(lake))
        await reached(gate)
        lake.kv.lose("set_if", lake.branch_key, applied=applied)
        gate.open()
        assert (await compacting).outcome is CompactionOutcome.COMPACTED
        after = await record(lake)
        assert after.sealed == ()
        assert await listing(lake) == {"a": 1 + applied}


async def test_tokens_stay_when_their_announcement_fails(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("a", 1)
    announce = lake.graveler.drops.announce
    monkeypatch.setattr(lake.graveler.drops, "announce", failing)
    assert await refused(compact(lake)) is Reason.UNAVAILABLE
    monkeypatch.setattr(lake.graveler.drops, "announce", announce)
    after = await record(lake)
    assert len(after.sealed) == 1
    assert after.compacted_metarange_id is None
    await compact(lake)
    assert await lake.drop_everything_removed() > 0
    assert await listing(lake) == {"a": 1}


async def test_a_page_of_a_listing_survives_a_compaction_between_its_reads(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The reader has begun with the tokens; they are folded and dropped before it reads them (rule 2)."""
    await lake.put("a", 1)
    await lake.get("a")
    gate = lake.kv.hold("scan")
    reading = running.start(listing(lake))
    await reached(gate)
    await compact(other)
    await other.drop_everything_removed()
    gate.open()
    assert await reading == {"a": 1}
