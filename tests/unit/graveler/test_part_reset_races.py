"""Resets of a part beside writers, commits and merges, one interleaving at a time (rule 10)."""

from typing import Any

import pytest
from lake import Lake, Running, reached
from lake_merges import NEW, branch_with, head, hold_change, merge, mine, record, refused
from lake_parts import failing, listing, reset, reset_path

from tarn.core.branch import TokenKind
from tarn.core.errors import Reason, TarnError
from tarn.kv.port import OutcomeUnknownError, Predicate


async def test_a_put_that_is_acknowledged_after_the_seal_stays(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("raw/1", 1)
    await lake.put("rest", 1)
    gate = hold_change(lake, 2)
    resetting = running.start(reset(other, "raw/"))
    await reached(gate)
    await lake.put("raw/2", 2)
    await lake.put("rest", 2)
    gate.open()
    await resetting
    assert await listing(lake) == {"raw/2": 2, "rest": 2}
    await lake.drop_everything_removed()
    assert await listing(lake) == {"raw/2": 2, "rest": 2}


async def test_a_reset_keeps_newer_seals_and_its_result(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("raw/1", 1)
    await lake.put("rest", 1)
    gate = hold_change(lake, 2)
    resetting = running.start(reset(other, "raw/"))
    await reached(gate)
    await lake.graveler.conditional.stage(lake.main, "raw/9", mine(9, "nine"), NEW)
    assert (await record(lake)).staging.kind is TokenKind.CONDITIONAL
    gate.open()
    await resetting
    assert (await record(lake)).staging.kind is TokenKind.CONDITIONAL
    assert await listing(lake) == {"raw/9": 9, "rest": 1}


async def test_a_reset_that_meets_a_commit_does_not_bring_old_content_back(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("raw/1", 1)
    await lake.put("rest", 1)
    gate = hold_change(lake, 2)
    resetting = running.start(reset(other, "raw/"))
    await reached(gate)
    await lake.commit()
    await lake.delete("rest")
    await lake.commit()
    gate.open()
    await resetting
    assert await listing(lake) == {"raw/1": 1}


async def test_a_commit_that_meets_a_reset_takes_what_it_left(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("raw/1", 1)
    await lake.put("rest", 1)
    gate = hold_change(lake, 2)
    commit = running.start(lake.commit())
    await reached(gate)
    await reset(other, "raw/")
    gate.open()
    made = await commit
    assert made.commit_id == await head(lake)
    assert await listing(lake, "main@") == {"rest": 1}


async def test_a_commit_whose_changes_were_all_reset_does_not_tell_them_as_committed(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("raw/1", 1)
    gate = hold_change(lake, 2)
    commit = running.start(lake.commit())
    await reached(gate)
    await reset(other, "raw/")
    gate.open()
    assert await refused(commit) is Reason.BRANCH_RESET
    assert await listing(lake) == {}


async def test_a_commit_whose_rest_another_one_took_is_told_so(
    lake: Lake, other: Lake, running: Running
) -> None:
    """A reset folds the rows outside its part, and another commit takes them: "nothing was committed" is not true."""
    await lake.put("raw/1", 1)
    await lake.put("rest", 1)
    gate = hold_change(lake, 2)
    commit = running.start(lake.commit())
    await reached(gate)
    await reset(other, "raw/")
    made = await other.commit()
    gate.open()
    with pytest.raises(TarnError) as raised:
        await commit
    assert raised.value.reason is Reason.BRANCH_RESET
    assert raised.value.metadata["commit_id"] == made.commit_id == await head(lake)
    assert "this commit was not made" in raised.value.message
    assert f"another commit took them. Look at the log, now at {made.commit_id}" in (
        raised.value.message
    )
    assert await listing(lake, "main@") == {"rest": 1}


async def test_a_commit_takes_rows_that_were_written_after_the_seal_of_a_reset(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The reset leaves no compacted listing, but a token that the commit sealed."""
    await lake.put("raw/1", 1)
    gate = hold_change(lake, 2)
    resetting = running.start(reset(other, "raw/"))
    await reached(gate)
    await lake.put("rest", 1)
    late = hold_change(lake, 2)
    commit = running.start(lake.commit())
    await reached(late)
    gate.open()
    await resetting
    late.open()
    made = await commit
    assert made.commit_id == await head(lake)
    assert await listing(lake, "main@") == {"rest": 1}


async def test_two_resets_at_the_same_time_both_take_effect(
    lake: Lake, other: Lake, running: Running
) -> None:
    for path in ("x", "y", "z"):
        await lake.put(path, 1)
    gate = hold_change(lake, 2)
    late = running.start(reset(other, "x"))
    await reached(gate)
    await reset(lake, "y")
    gate.open()
    await late
    assert await listing(lake) == {"z": 1}


async def test_a_reset_finds_rows_that_another_one_folded_while_it_looked(
    lake: Lake, other: Lake, running: Running
) -> None:
    """It finds its tokens dropped and empty; the rows that it must discard are in the compacted listing."""
    await lake.put("x", 1)
    await lake.put("y", 1)
    gate = hold_change(lake, 2)
    late = running.start(reset(other, "x"))
    await reached(gate)
    await reset(lake, "y")
    await lake.drop_everything_removed()
    gate.open()
    await late
    assert await listing(lake) == {}


async def test_dropped_tokens_do_not_look_like_nothing_to_discard(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the seal and the look, another reset folds the row and its token is dropped."""
    await lake.put("x", 1)
    await lake.put("y", 1)
    resets = other.graveler.part_resets
    look, looks = resets._is_changed, 0

    async def late(*args: Any) -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            await reset(lake, "y")
            await lake.drop_everything_removed()
            assert not await look(*args)
        return await look(*args)

    monkeypatch.setattr(resets, "_is_changed", late)
    await reset(other, "x")
    assert looks > 1
    assert await listing(lake) == {}


async def test_a_merge_that_meets_a_reset_judges_what_it_left(
    lake: Lake, other: Lake, running: Running
) -> None:
    source = await branch_with(lake, {"s": 1})
    await lake.put("tmp", 1)
    await lake.delete("tmp")
    gate = hold_change(lake, 2)
    merging = running.start(merge(lake, source))
    await reached(gate)
    await other.put("raw/1", 1)
    await other.put("rest", 1)
    await reset(other, "raw/")
    gate.open()
    assert await refused(merging) is Reason.BRANCH_DIRTY
    assert await listing(lake) == {"rest": 1}


async def test_a_creation_judged_before_a_reset_does_not_win_over_what_comes_back(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The path is deleted; a creation verifies that, after the seal; the reset brings the commit's object back."""
    await lake.put("raw/1", 1)
    await lake.commit()
    await lake.graveler.conditional.stage(lake.main, "other", mine(1, "first"), NEW)
    await lake.delete("raw/1")
    hold = hold_change(lake, 2)
    resetting = running.start(reset(other, "raw/"))
    await reached(hold)
    gate = lake.kv.hold("set_if", lake.row_key("raw/1"))
    stage = lake.graveler.conditional.stage(lake.main, "raw/1", mine(5, "second"), NEW)
    creating = running.start(stage)
    await reached(gate)
    hold.open()
    await resetting
    gate.open()
    assert await refused(creating) in {Reason.OUTCOME_UNKNOWN, Reason.PRECONDITION_FAILED}


async def test_a_reset_that_was_applied_late_does_not_discard_what_followed_it(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The first attempt waits in a queue and lands; a put is acknowledged; then the repetition arrives."""
    await lake.put("raw/old", 1)
    await lake.put("rest", 1)
    sealing = hold_change(lake, 2)
    resetting = running.start(reset(other, "raw/"))
    await reached(sealing)
    late = lake.kv.delay(lake.branch_key)
    gate = hold_change(lake)
    sealing.open()
    await reached(gate)
    await late.land()
    assert late.landed
    await lake.put("raw/new", 1)
    gate.open()
    await resetting
    assert await listing(lake) == {"raw/new": 1, "rest": 1}


async def test_an_unknown_outcome_is_told_as_unknown(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("raw/1", 1)
    set_if = lake.kv.set_if

    async def unanswered(*args: Any, **named: Any) -> Predicate:
        if args[1] != lake.branch_key or (await record(lake)).sealed == ():
            return await set_if(*args, **named)
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(lake.kv, "set_if", unanswered)
    assert await refused(reset(lake, "raw/")) is Reason.OUTCOME_UNKNOWN
    assert await lake.get("raw/1") == 1


async def test_resets_that_fail_do_not_pile_up_layers(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = lake.graveler.part_resets._builder.build
    monkeypatch.setattr(lake.graveler.part_resets._builder, "build", failing)
    for number in range(20):
        await lake.put("raw/1", number)
        assert await refused(reset(lake, "raw/")) is Reason.UNAVAILABLE
    assert len((await record(lake)).sealed) == 8
    monkeypatch.setattr(lake.graveler.part_resets._builder, "build", build)
    await reset(lake, "raw/")
    assert await listing(lake) == {}


async def test_a_reset_of_a_branch_that_changes_all_the_time_gives_up(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lake.put("raw/1", 1)
    resets = lake.graveler.part_resets
    publish, seals = resets._publish, 0

    async def overtaken(*args: Any) -> Any:
        nonlocal seals
        seals += 1
        await lake.put(f"other/{seals}", 1)
        await reset_other(f"other/{seals}")
        return await publish(*args)

    async def reset_other(path: str) -> None:
        monkeypatch.setattr(resets, "_publish", publish)
        await lake.put("kept", seals)
        await reset_path(lake, path)
        monkeypatch.setattr(resets, "_publish", overtaken)

    monkeypatch.setattr(resets, "_publish", overtaken)
    assert await refused(reset(lake, "raw/")) is Reason.TOO_MANY_RETRIES
    monkeypatch.setattr(resets, "_publish", publish)
    assert await listing(lake) == {"kept": seals, "raw/1": 1}
