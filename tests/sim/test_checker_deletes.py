"""What the checker says of conditional deletes (I6, I11)."""

import pytest
from tests.sim.test_checker import FAIL, INFO, OK, Story, put_if
from tests.support.check.history import ABSENT, Op, Outcome

from tarn.core.errors import Reason


def delete_if(story: Story, expected: int, inv: float, end: float, outcome: Outcome = OK) -> Op:
    op = story.delete(inv, end, outcome)
    op.expected = expected
    return op


@pytest.fixture
def story() -> Story:
    story = Story()
    story.put(1, 1, 2)
    return story


def test_one_version_is_deleted_once(story: Story) -> None:
    delete_if(story, 1, 3, 6)
    assert story.broken() == []
    delete_if(story, 1, 4, 7)
    assert story.broken() == ["I6"]


def test_one_version_is_deleted_or_replaced(story: Story) -> None:
    delete_if(story, 1, 3, 6)
    put_if(story, 2, 1, 4, 7)
    assert story.broken() == ["I6"]


def test_a_version_that_came_back_is_deleted_again(story: Story) -> None:
    delete_if(story, 1, 3, 4)
    story.put(1, 5, 6)
    delete_if(story, 1, 7, 8)
    assert story.broken() == []


def test_a_creation_comes_after_the_delete(story: Story) -> None:
    delete_if(story, 1, 3, 4)
    put_if(story, 2, ABSENT, 5, 6)
    delete_if(story, 2, 7, 8)
    story.get(ABSENT, 9, 10)
    assert story.broken() == []
    story.get(2, 11, 12)
    assert story.broken() == ["I1"]


def test_another_version_is_not_deleted(story: Story) -> None:
    story.put(2, 3, 4)
    delete_if(story, 1, 5, 6)
    assert story.broken() == ["I6"]


def test_a_delete_without_an_answer_may_have_been_made_or_not(story: Story) -> None:
    delete_if(story, 1, 3, 4, INFO)
    story.get(1, 5, 6)
    assert story.broken() == []
    story.get(ABSENT, 7, 8)
    assert story.broken() == []


@pytest.mark.parametrize(
    ("reason", "observed", "is_right"),
    [
        (Reason.PRECONDITION_FAILED, 2, True),
        (Reason.PRECONDITION_FAILED, 1, False),
        (Reason.ENTRY_NOT_FOUND, ABSENT, False),
    ],
)
def test_a_refused_delete_has_read_what_it_tells(
    story: Story, reason: Reason, observed: int, is_right: bool
) -> None:
    story.put(2, 3, 4)
    op = delete_if(story, 1, 5, 6, FAIL)
    op.reason, op.observed = reason, observed
    assert (story.broken() == []) is is_right


def test_a_plain_delete_is_never_refused_for_a_condition(story: Story) -> None:
    story.delete(3, 4, FAIL).reason = Reason.PRECONDITION_FAILED
    assert story.broken() == ["I11"]
