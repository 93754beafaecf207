"""Resets and hard moves beside writers and commits, one interleaving at a time (docs/design/protocol.md, rule 10)."""

from typing import Any

import pytest
from lake import Lake, Running, reached
from lake_merges import NEW, head, hold_change, mine, refused

from tarn.core.errors import Reason
from tarn.core.ids import CommitId
from tarn.kv.port import OutcomeUnknownError, Predicate
from tarn_graveler.branch.head_moves import NewHead


async def test_a_reset_discards_what_is_uncommitted_and_nothing_else(lake: Lake) -> None:
    await lake.put("a", 1)
    made = await lake.commit()
    await lake.put("a", 2)
    await lake.put("b", 2)
    await lake.graveler.conditional.stage(lake.main, "c", mine(3, "c"), NEW)
    await lake.graveler.moves.reset(lake.main)
    assert [await lake.get(path) for path in "abc"] == [1, None, None]
    assert await head(lake) == made.commit_id
    await lake.put("b", 4)
    await lake.drop_everything_removed()
    assert await lake.get("b") == 4


async def test_a_put_beside_a_reset_is_kept_if_it_is_acknowledged_later(
    lake: Lake, other: Lake, running: Running
) -> None:
    gate = lake.kv.hold("set_many", lake.row_key("p"))
    put = running.start(lake.put("p", 1))
    await reached(gate)
    await other.graveler.moves.reset(lake.main)
    gate.open()
    await put
    assert await lake.get("p") == 1


async def test_a_reset_that_was_applied_late_does_not_discard_what_followed_it(
    lake: Lake, other: Lake, running: Running
) -> None:
    """The first attempt waits in a queue and lands; a put is acknowledged; then the repetition arrives."""
    await lake.put("old", 1)
    late = lake.kv.delay(lake.branch_key)
    gate = hold_change(lake, 2)
    reset = running.start(other.graveler.moves.reset(lake.main))
    await reached(gate)
    await late.land()
    assert late.landed
    await lake.put("new", 1)
    gate.open()
    await reset
    assert [await lake.get("old"), await lake.get("new")] == [None, 1]


async def test_a_commit_does_not_tell_discarded_changes_as_committed(
    lake: Lake, other: Lake, running: Running
) -> None:
    await lake.put("p", 1)
    gate = hold_change(lake, 2)
    commit = running.start(lake.commit())
    await reached(gate)
    await other.graveler.moves.reset(lake.main)
    gate.open()
    assert await refused(commit) is Reason.BRANCH_RESET
    assert await lake.get("p") is None


# ---- hard moves


async def moved(lake: Lake, to: CommitId, expected: CommitId, *, force: bool = False) -> None:
    new = NewHead(to, await lake.graveler.commits.get(lake.repository, to))
    await lake.graveler.moves.move_to(lake.main, new, expected, force=force)


@pytest.mark.parametrize("force", [False, True])
async def test_a_branch_moves_only_from_the_expected_head(lake: Lake, force: bool) -> None:
    first = await head(lake)
    await lake.put("a", 1)
    second = (await lake.commit()).commit_id
    assert await refused(moved(lake, first, first, force=force)) is Reason.REF_MOVED
    await moved(lake, first, second, force=force)
    assert await head(lake) == first
    assert await lake.get("a") is None


async def test_uncommitted_changes_refuse_a_move_unless_it_is_forced(lake: Lake) -> None:
    first = await head(lake)
    await lake.put("a", 1)
    second = (await lake.commit()).commit_id
    await lake.put("b", 1)
    assert await refused(moved(lake, first, second)) is Reason.BRANCH_DIRTY
    assert [await lake.get("a"), await lake.get("b")] == [1, 1]
    await moved(lake, first, second, force=True)
    assert [await lake.get("a"), await lake.get("b")] == [None, None]


async def test_a_forced_move_that_meets_a_commit_is_refused(
    lake: Lake, other: Lake, running: Running
) -> None:
    first = await head(lake)
    await lake.put("a", 1)
    second = (await lake.commit()).commit_id
    gate = hold_change(lake)
    moving = running.start(moved(other, first, second, force=True))
    await reached(gate)
    await lake.put("b", 1)
    third = (await lake.commit()).commit_id
    gate.open()
    assert await refused(moving) is Reason.REF_MOVED
    assert await head(lake) == third


async def test_a_commit_that_lost_its_tokens_to_a_move_does_not_name_the_target(
    lake: Lake, other: Lake, running: Running
) -> None:
    """Another commit publishes its rows, and a move takes the head back: nothing holds them any more."""
    first = await head(lake)
    await lake.put("p", 1)
    gate = hold_change(lake, 2)
    late = running.start(lake.commit())
    await reached(gate)
    made = await other.commit()
    await moved(other, first, made.commit_id)
    gate.open()
    assert await refused(late) is Reason.BRANCH_RESET


async def test_a_move_with_an_unknown_outcome_is_not_proved_by_an_old_ancestor(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is in the history of the head whether the move was made or not."""
    first = await head(lake)
    await lake.put("p", 1)
    second = (await lake.commit()).commit_id

    async def unanswered(*args: Any) -> Predicate:
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(lake.kv, "set_if", unanswered)
    assert await refused(moved(lake, first, second)) is Reason.OUTCOME_UNKNOWN
    assert await head(lake) == second
