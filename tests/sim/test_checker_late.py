"""The checker on rows of conditional writes that came late for several merges, or beside a reset that did nothing."""

from __future__ import annotations

import pytest
from tests.sim.test_checker import put_if
from tests.sim.test_checker_moves import MoveStory
from tests.support.check.effects import Effect, Seals
from tests.support.check.history import Op, OpKind, Outcome
from tests.support.check.witness import explain

INFO = Outcome.INFO


@pytest.fixture
def story() -> MoveStory:
    """The branch has k = 1. One merge brings 5, another one 6 instead of 5."""
    story = MoveStory(k=1)
    story.add("s", "c0", k=5)
    story.add("s2", "s", k=6)
    return story


def merge(story: MoveStory, inv: float, end: float) -> Op:
    return story.merge("m", ("c0", "s"), inv, end, k=5)


def merge_again(story: MoveStory, inv: float, end: float) -> Op:
    return story.merge("n", ("m", "s2"), inv, end, k=6)


def reset(story: MoveStory, inv: float, end: float, part: str = "k") -> Op:
    op = story.reset(inv, end)
    op.part = part
    return op


# ---- a reset that finds nothing to discard


@pytest.mark.parametrize("part", ["k", ""])
def test_a_row_that_is_late_for_a_merge_may_come_after_a_reset_that_found_nothing(
    story: MoveStory, part: str
) -> None:
    """The reset of a part without rows changes nothing. A reset of all removes the token of the row."""
    merge(story, 1, 4)
    put_if(story, 2, 1, 2, 20, INFO)
    reset(story, 6, 7, part)
    story.get(5, 8, 9)
    story.get(2, 10, 11)
    assert story.broken() == ([] if part else ["I1"])


@pytest.mark.parametrize("end", [6, 9])
def test_a_row_does_not_come_after_a_reset_that_found_something(
    story: MoveStory, end: float
) -> None:
    """The reset removed the token of the row with that of the write that it discarded."""
    merge(story, 1, 4)
    put_if(story, 2, 1, 2, 20, INFO)
    story.put(3, 5, end)
    story.get(3, 5.5, end)
    reset(story, 7, 9.5)
    story.get(2, 10, 11)
    assert story.broken() == ["I1"]


def test_a_row_may_be_late_for_a_reset_and_come_after_one_that_found_nothing(
    story: MoveStory,
) -> None:
    story.put(3, 0, 1)
    reset(story, 2, 5)
    put_if(story, 2, 3, 3, 20, INFO)
    story.get(1, 6, 7)
    reset(story, 8, 9)
    story.get(2, 10, 11)
    assert story.broken() == []
    story.get(3, 12, 13)
    assert story.broken() == ["I1"], "what was discarded stays so"


def test_a_row_that_began_after_the_merge_does_not_come_after_such_a_reset(
    story: MoveStory,
) -> None:
    merge(story, 1, 4)
    put_if(story, 2, 1, 4.5, 20, INFO)
    reset(story, 6, 7)
    story.get(2, 10, 11)
    assert story.broken() == ["I1"]


def test_a_reset_that_found_nothing_discards_nothing(story: MoveStory) -> None:
    """An acknowledged write does not come back because a late row might."""
    merge(story, 1, 4)
    put_if(story, 2, 1, 2, 20, INFO)
    story.get(5, 4.5, 12)
    story.put(3, 5, 6)
    reset(story, 7, 9)
    story.get(3, 10, 11)
    assert story.broken() == ["I1"]


# ---- a row that is late for two merges


@pytest.mark.parametrize(("inv", "is_allowed"), [(3, True), (4.5, False)])
def test_a_row_may_be_late_for_merges_that_overlap(
    story: MoveStory, inv: float, *, is_allowed: bool
) -> None:
    """A merge that begins later removes the token that the first one replaced."""
    merge(story, 1, 4)
    put_if(story, 2, 1, 2, 20, INFO)
    merge_again(story, inv, 8)
    story.get(6, 9, 10)
    story.get(2, 11, 12)
    assert story.broken() == ([] if is_allowed else ["I1"])


def test_a_row_is_not_late_for_a_merge_of_another_value(story: MoveStory) -> None:
    merge(story, 1, 4)
    put_if(story, 2, 7, 2, 20, INFO)
    merge_again(story, 3, 8)
    story.get(2, 11, 12)
    assert story.broken() == ["I1"]


# ---- a row that hides two merges


@pytest.mark.parametrize("outcome", [Outcome.OK, INFO])
@pytest.mark.parametrize(("inv", "is_allowed"), [(1.5, True), (6.5, False)])
def test_a_row_hides_merges_that_began_before_it(
    story: MoveStory, inv: float, outcome: Outcome, *, is_allowed: bool
) -> None:
    """A merge that begins after the row finds a dirty branch."""
    merge(story, 1, 6)
    put_if(story, 2, 1, 2, 4, outcome)
    story.get(2, 4.5, 5)
    merge_again(story, inv, 8)
    story.get(2, 9, 10)
    assert (story.broken() == []) == is_allowed


def test_a_row_hides_two_merges_although_it_was_overwritten(story: MoveStory) -> None:
    merge(story, 1, 6)
    put_if(story, 2, 1, 2, 4)
    put_if(story, 3, 2, 4.5, 5)
    second = merge_again(story, 1.5, 8)
    story.get(3, 9, 10)
    assert story.broken() == []
    second.inv = 6.5
    assert story.broken() != []


def test_a_row_that_is_acknowledged_after_two_merges_may_hide_both(story: MoveStory) -> None:
    """Its call writes the row once, and answers late."""
    merge(story, 1, 6)
    put_if(story, 2, 1, 2, 20)
    story.get(2, 4.5, 5)
    merge_again(story, 1.5, 8)
    story.get(2, 9, 10)
    assert story.broken() == []


@pytest.mark.parametrize("outcome", [Outcome.OK, INFO])
@pytest.mark.parametrize("end", [4, 20])
def test_a_row_hides_a_merge_on_one_that_is_answered_later_or_never(
    story: MoveStory, outcome: Outcome, end: float
) -> None:
    first = story.merge("m", ("c0", "s"), 1, 12, outcome, k=5)
    put_if(story, 2, 1, 2, end)
    second = merge_again(story, 1.5, 8)
    story.get(2, 9, 10)
    assert story.broken() == []
    first.outcome, first.ret, second.inv = Outcome.OK, 6, 6.5
    assert story.broken() != []


def test_a_row_hides_a_merge_only_on_what_another_one_left() -> None:
    """The search alone; for a history, the order of the heads shows it, too."""
    made = Op(0, "p", OpKind.CREATE, "b", "k", 1, -2, -1, -1, Outcome.OK)
    first = Op(1, "p", OpKind.MERGE, "b", None, None, 1, 6, 6, Outcome.OK)
    row = Op(2, "p", OpKind.PUT, "b", "k", 2, 2, 4, 4, Outcome.OK, expected=1)
    second = Op(3, "p", OpKind.MERGE, "b", None, None, 1.5, 8, 8, Outcome.OK)
    effects = [Effect(1, made), Effect(5, first, 1), Effect(2, row)]
    assert explain([*effects, Effect(6, second, 5)], [], Seals([])).failed is None
    assert explain([*effects, Effect(6, second, 9)], [], Seals([])).failed is second


def test_a_row_that_is_late_for_one_merge_hides_the_next(story: MoveStory) -> None:
    merge(story, 1, 6)
    put_if(story, 2, 1, 2, 20, INFO)
    story.get(5, 7, 8)
    second = merge_again(story, 1.5, 12)
    story.get(2, 9, 10)
    story.get(2, 13, 14)
    assert story.broken() == []
    second.inv = 8.5
    assert story.broken() != [], "it removes the token of the row, or finds a dirty branch"


def test_the_second_merge_is_not_hidden_beneath_a_row_that_lies_on_something_else(
    story: MoveStory,
) -> None:
    """The row replaced 1, and no merge had left a 5 beneath it."""
    merge(story, 1, 6).outcome = Outcome.FAIL
    put_if(story, 2, 1, 2, 4)
    merge_again(story, 1.5, 8)
    assert "I8" in story.broken()
