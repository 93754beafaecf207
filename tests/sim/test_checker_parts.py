"""The checker on resets of a prefix or of one object: I5 for the keys of the part only."""

from __future__ import annotations

import pytest
from tests.sim.test_checker import put_if
from tests.sim.test_checker_moves import MoveStory
from tests.support.check.history import ABSENT


@pytest.fixture
def story() -> MoveStory:
    return MoveStory()


def part(story: MoveStory, part: str, inv: float, end: float, *, is_prefix: bool = False) -> None:
    op = story.reset(inv, end)
    op.part, op.is_prefix = part, is_prefix


@pytest.mark.parametrize(
    ("name", "is_prefix", "is_in"),
    [("k", False, True), ("k", True, True), ("k/", True, False), ("ke", False, False)],
)
def test_a_reset_of_a_part_discards_the_changes_of_its_keys_only(
    story: MoveStory, name: str, *, is_prefix: bool, is_in: bool
) -> None:
    story.put(1, 1, 2)
    part(story, name, 3, 4, is_prefix=is_prefix)
    story.get(1, 5, 6)
    assert story.broken() == (["I1"] if is_in else [])
    story.history.ops[-1].value = ABSENT
    assert story.broken() == ([] if is_in else ["I1"])


@pytest.mark.parametrize("inv", [4, 1.5])
def test_a_reset_of_a_part_may_be_hidden_by_a_condition_on_what_it_discards(
    story: MoveStory, inv: float
) -> None:
    """The row came after the seal, and the value that it expects was discarded beneath it."""
    story.put(1, 1, 1.2)
    part(story, "k", 3, 8)
    end = 5 if inv == 4 else 2
    put_if(story, 2, 1, inv, end)
    story.get(2, 9, 10)
    assert story.broken() == ([] if inv == 4 else ["I1"]), "one that ended before is discarded"


def test_a_condition_on_what_a_reset_of_a_part_discarded_does_not_hold_after_it(
    story: MoveStory,
) -> None:
    story.put(1, 1, 2)
    part(story, "k", 3, 4)
    put_if(story, 2, 1, 5, 6)
    assert story.broken() == ["I6"]
