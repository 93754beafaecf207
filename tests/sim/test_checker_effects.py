"""How often a write takes effect: seven histories that an earlier checker accepted, each beside an allowed one."""

import pytest
from tests.sim.test_checker import Story, put_if
from tests.support.check.checker import check
from tests.support.check.history import ABSENT, GONE, Commit, OpKind, Outcome

INFO = Outcome.INFO


@pytest.fixture
def story() -> Story:
    return Story()


def test_an_unsettled_delete_takes_one_write_away(story: Story) -> None:
    story.delete(0, 1, INFO)
    story.put(1, 10, 11)
    story.get(ABSENT, 12, 13)
    assert story.broken() == []
    for time in (20, 30, 40):
        story.put(time, time, time + 1)
        story.get(ABSENT, time + 2, time + 3)
    assert story.broken() == ["I1"]


def test_an_unsettled_delete_takes_another_write_away_for_each_seal_that_it_met(
    story: Story,
) -> None:
    story.delete(0, 1, INFO)
    story.put(1, 10, 11)
    story.get(ABSENT, 12, 13)
    story.put(2, 20, 21)
    story.get(ABSENT, 22, 23)
    assert story.broken() == ["I1"]
    story.commit("c", {}, 12, 19)
    assert story.broken() == []


@pytest.mark.parametrize(
    ("commit", "other", "is_met"),
    [
        pytest.param((2, 3), (13, 14), True, id="the commit made the token plain"),
        pytest.param((2, 3), (4, 5), False, id="conditional again when the delete began"),
        pytest.param((-0.8, -0.6), (13, 14), False, id="no commit since the first one"),
        pytest.param((2, 12), (4, 5), True, id="the commit goes on beside the delete"),
        pytest.param((2, 3), (31, 32), False, id="the conditional write comes later"),
    ],
)
def test_a_write_meets_the_seal_of_the_first_conditional_write_after_a_commit(
    story: Story, commit: tuple[float, float], other: tuple[float, float], *, is_met: bool
) -> None:
    put_if(story, 1, ABSENT, 0, 1)
    story.commit("c", {"k": 1} if commit[0] > 0 else {}, *commit)
    put_if(story, 9, ABSENT, *other).key = "other"
    story.delete(10, 30)
    story.get(ABSENT, 11, 12)
    story.put(2, 15, 16)
    story.get(2, 17, 18)
    assert story.broken() == []
    story.get(ABSENT, 40, 41)
    assert story.broken() == ([] if is_met else ["I1"])


def test_a_write_meets_one_seal_of_the_conditional_writes_after_a_commit(story: Story) -> None:
    put_if(story, 1, ABSENT, 0, 1)
    story.commit("c", {"k": 1}, 2, 3)
    story.delete(10, 50)
    story.get(ABSENT, 11, 12)
    put_if(story, 9, ABSENT, 13, 14).key = "other"
    story.put(2, 15, 16)
    story.get(2, 17, 18)
    put_if(story, 8, 9, 19, 20).key = "other"
    story.get(ABSENT, 22, 23)
    story.put(3, 24, 25)
    story.get(3, 26, 27)
    assert story.broken() == []
    story.get(ABSENT, 60, 61)
    assert story.broken() == ["I1"], "the other ones found a conditional token"


def test_a_row_that_is_late_for_the_seal_of_a_conditional_write_comes_again(story: Story) -> None:
    """Its first row comes into the token that the conditional write sealed, its second one into the next token."""
    story.put(1, 0, 60)
    other = put_if(story, 9, ABSENT, 3, 4)
    story.get(1, 10, 11)
    story.put(2, 20, 21)
    story.get(2, 22, 23)
    story.get(1, 30, 31)
    assert story.broken() == ["I1"], "no conditional write of the branch seals its token"
    other.key = "other"
    assert story.broken() == []


def test_a_compaction_seals(story: Story) -> None:
    story.put(1, 0, 60)
    story.get(1, 2, 3)
    story.put(2, 10, 11)
    story.get(2, 12, 13)
    story.get(1, 22, 23)
    assert story.broken() == ["I1"]
    compaction = story.op(OpKind.COMPACT, None, 4, 5)
    assert story.broken() == []
    compaction.outcome, compaction.end = INFO, 4.5
    assert story.broken() == [], "a compaction without an answer seals later"


def test_a_compaction_seals_at_most_twice(story: Story) -> None:
    story.put(1, 0, 60)
    story.get(1, 2, 3)
    story.op(OpKind.COMPACT, None, 4, 5)
    for time in (10, 20, 30):
        story.put(2, time, time + 1)
        story.get(2, time + 2, time + 3)
        story.get(1, time + 4, time + 5)
    assert story.broken() == ["I1"]
    story.op(OpKind.COMPACT, None, 6, 7)
    assert story.broken() == []


def test_a_compaction_makes_the_token_plain(story: Story) -> None:
    put_if(story, 1, ABSENT, 0, 1)
    story.delete(10, 30)
    story.get(ABSENT, 11, 12)
    put_if(story, 9, ABSENT, 13, 14).key = "other"
    story.put(2, 15, 16)
    story.get(2, 17, 18)
    story.get(ABSENT, 40, 41)
    assert story.broken() == ["I1"]
    story.op(OpKind.COMPACT, None, 2, 3)
    assert story.broken() == []


def test_an_upload_seals_whatever_its_outcome(story: Story) -> None:
    story.delete(0, 1, INFO)
    story.put(1, 10, 11)
    story.get(ABSENT, 12, 13)
    upload = story.put(3, 14, 15, Outcome.FAIL)
    story.put(2, 20, 21)
    story.get(ABSENT, 22, 23)
    assert story.broken() == ["I1"]
    upload.is_upload = True
    assert story.broken() == []


def test_an_unsettled_write_makes_at_most_eight_attempts(story: Story) -> None:
    story.put(1, 0, 1, INFO)
    for number in range(9):
        time = 10 + 10 * number
        story.commit(f"c{number}", {} if number == 0 else {"k": 1}, time, time + 1)
        story.put(2, time + 2, time + 3)
        story.get(1, time + 4, time + 5)
        assert story.broken() == ([] if number < 8 else ["I1"])


def test_an_unsettled_upload_makes_as_many_attempts_for_each_of_its_completions(
    story: Story,
) -> None:
    upload = story.put(1, 0, 1, INFO)
    for time in (10, 20):
        story.put(2, time, time + 1)
        story.get(1, time + 2, time + 3)
    assert story.broken() == ["I1"]
    upload.calls = 2
    assert story.broken() == []


def test_a_write_that_was_seen_may_hide_one_that_began_since(story: Story) -> None:
    story.put(1, 0, 20)
    story.get(1, 2, 3)
    story.put(2, 10, 30)
    story.get(1, 40, 41)
    assert story.broken() == ["I1"], "without a seal the write has no reason to be written again"
    story.commit("c", {"k": 1}, 4, 5)
    assert story.broken() == []


def test_an_unsettled_creation_vanishes_before_another_one_wins(story: Story) -> None:
    put_if(story, 1, ABSENT, 10, 11, INFO)
    story.commit("c", {"k": 1}, 12, 20)
    put_if(story, 2, ABSENT, 14, 15)
    story.get(2, 30, 31)
    assert story.broken() == [], "the creation's row was in the token that the commit sealed"
    story.get(1, 16, 17)
    assert story.broken() != [], "after the seal no reader sees the row"


@pytest.mark.parametrize(("end", "is_allowed"), [(50, True), (9, False)])
def test_two_conditional_writes_win_on_a_value_that_was_written_again_between_them(
    story: Story, end: float, *, is_allowed: bool
) -> None:
    """The one that wins first is answered last."""
    story.put(1, 0, end)
    story.get(1, 2, 3)
    story.commit("c", {"k": 1}, 4, 5)
    put_if(story, 2, 1, 10, 20)
    put_if(story, 3, 1, 15, 16)
    story.get(3, 30, 31)
    assert story.broken() == ([] if is_allowed else ["I6"])


def test_a_delete_that_two_creations_need_takes_effect_twice_before_its_answer(
    story: Story,
) -> None:
    """The first creation wins on the delete's first row, and the delete's second row removes it again."""
    put_if(story, 1, ABSENT, 0, 1)
    story.delete(10, 20)
    put_if(story, 2, ABSENT, 18, 30)
    put_if(story, 3, ABSENT, 24, 26)
    story.get(3, 32, 33)
    assert story.broken() != []  # without a seal, the delete takes effect once
    story.commit("c", {}, 11, 40)
    assert story.broken() == []


def test_a_delete_takes_effect_again_although_it_was_read_before_its_answer(story: Story) -> None:
    """Seed 70552 with compactors: a creation wins on the first row of a delete, and its second row removes it again.

    Reads and answers do not tell which row was read.
    """
    put_if(story, 1, ABSENT, 0, 1)
    story.delete(10, 20)
    story.get(ABSENT, 15, 16)
    put_if(story, 2, ABSENT, 11, 21)
    story.get(ABSENT, 30, 31)
    assert story.broken() == ["I1"], "the delete met no seal"
    story.commit("c", {}, 11, 40)
    assert story.broken() == []


def test_an_upload_that_was_written_over_does_not_come_back(story: Story) -> None:
    write = story.put(1, 0, 50)
    story.get(1, 3, 4)
    story.commit("c", {"k": 1}, 5, 6)
    story.put(2, 10, 11)
    story.get(1, 20, 21)
    assert story.broken() == [], "a write whose token was sealed is written again"
    write.is_upload = True
    assert story.broken() == ["I1"]


def test_an_upload_that_was_not_read_may_land_over_a_newer_write(story: Story) -> None:
    write = story.put(1, 0, 50)
    write.is_upload = True
    story.put(2, 10, 11)
    story.get(1, 20, 21)
    assert story.broken() == []


def test_an_upload_did_not_begin_with_a_record_that_was_cached(story: Story) -> None:
    story.commit("c", {}, 0, 1)
    write = story.put(1, 2, 50)
    story.get(1, 3, 4)
    story.get(ABSENT, 5, 6)
    story.get(1, 7, 8)
    assert story.broken() == []
    write.is_upload = True
    assert story.broken() == ["I1"]


def test_an_unsettled_write_rises_over_one_acknowledged_write(story: Story) -> None:
    story.put(1, 0, 1, INFO)
    story.put(2, 10, 11)
    story.get(1, 12, 13)
    assert story.broken() == []
    story.get(2, 14, 15)
    assert story.broken() == ["I1"], "once it is on top, it does not vanish again"


def test_an_unsettled_write_does_not_rise_over_four_acknowledged_ones(story: Story) -> None:
    story.put(1, 0, 1, INFO)
    for value, time in ((2, 10), (3, 20), (4, 30), (5, 40)):
        story.put(value, time, time + 1)
        story.get(1, time + 2, time + 3)
        story.get(value, time + 4, time + 5)
    assert story.broken() == ["I1"]
    story.commit("c", {"k": 2}, 13, 14)
    assert story.broken() == ["I1"], "one seal explains one more effect, not three"


def test_get_and_list_agree_at_the_quiet_end(story: Story) -> None:
    story.put(1, 1, 5)
    story.put(2, 2, 4)
    for time in range(10, 40, 4):
        story.get(1, time, time + 1)
        story.op(OpKind.LIST, 2, time + 2, time + 3)
    assert story.broken() == ["I1"]


def quiet(story: Story, time: float) -> None:
    story.history.quiet_at = time


def test_nothing_takes_effect_at_the_quiet_end(story: Story) -> None:
    story.put(1, 1, 2, INFO)
    story.put(2, 3, 4)
    story.get(2, 10, 11)
    story.op(OpKind.LIST, 1, 12, 13)
    assert story.broken() == []
    quiet(story, 9)
    assert story.broken() == ["I4"]


def test_an_unsettled_write_may_have_taken_effect_before_the_quiet_end(story: Story) -> None:
    story.put(1, 1, 2, INFO)
    story.put(2, 3, 4)
    quiet(story, 9)
    story.get(1, 10, 11)
    story.op(OpKind.LIST, 1, 12, 13)
    story.history.heads["b"] = story.commit("c", {"k": 1}, 14, 15).commit_id
    story.get(1, 16, 17)
    assert story.broken() == []


@pytest.mark.parametrize("committed", [1, 2])
def test_the_commit_of_the_quiet_end_equals_the_reads(story: Story, committed: int) -> None:
    story.put(1, 1, 5)
    story.put(2, 2, 4)
    quiet(story, 9)
    story.get(1, 10, 11)
    story.history.heads["b"] = story.commit("c", {"k": committed}, 12, 13).commit_id
    assert story.broken() == ([] if committed == 1 else ["I4"])


def test_the_head_equals_the_reads_at_the_quiet_end(story: Story) -> None:
    story.put(1, 1, 2)
    quiet(story, 9)
    story.get(1, 10, 11)
    story.commit("c1", {"k": 1}, 12, 13)
    story.history.commits["c2"] = Commit("c2", "", ("c1",), {})
    story.history.heads["b"] = "c2"
    assert story.broken() == ["I4"]


@pytest.mark.parametrize("second", [1, 2])
def test_two_commits_with_nothing_between_them_are_equal(story: Story, second: int) -> None:
    story.put(1, 1, 5)
    story.put(2, 2, 4)
    story.commit("c1", {"k": 1}, 10, 11)
    story.commit("c2", {"k": second}, 12, 13, parent="c1")
    story.history.heads["b"] = "c2"
    story.get(1, 20, 21)
    assert story.broken() == ([] if second == 1 else ["I3"])


def test_an_unsettled_removal_alone_loses_no_commit(story: Story) -> None:
    story.op(OpKind.REMOVE, None, 0, 1, INFO)
    story.put(1, 2, 3)
    story.commit("c1", {"k": 1}, 10, 11)
    story.history.commits["c0"] = Commit("c0", "root", (), {})
    story.history.heads["b"] = "c0"
    assert story.broken() == ["I4"]
    story.op(OpKind.CREATE, None, 12, 13, INFO)
    assert story.broken() == [], "with a creation it may: the branch then has another history"


def test_a_call_that_made_a_commit_does_not_answer_nothing_to_commit(story: Story) -> None:
    story.put(1, 1, 2)
    op = story.commit("c1", {"k": 1}, 3, 4)
    story.history.heads["b"] = "c1"
    assert story.broken() == []
    op.is_claim = True
    assert story.broken() == ["I4"]


@pytest.mark.parametrize("count", [2, 3])
def test_an_unsettled_delete_makes_room_for_one_creation(story: Story, count: int) -> None:
    story.delete(0, 1, INFO)
    for value in range(1, count + 1):
        put_if(story, value, ABSENT, 10 * value, 10 * value + 1)
    assert story.broken() == ([] if count == 2 else ["I6"])


def test_a_conditional_write_takes_effect_only_on_what_it_expects(story: Story) -> None:
    story.put(1, 1, 2)
    put_if(story, 2, 7, 3, 4, INFO)
    story.get(2, 5, 6)
    assert story.broken() == ["I1"]
    story.put(7, 2.5, 4.5, INFO)
    assert story.broken() == []


def test_a_branch_removed_with_its_repository_may_vanish_earlier_on_some_replicas(
    story: Story,
) -> None:
    removal = story.op(OpKind.REMOVE, None, 1, 10)
    story.get(GONE, 2, 3)
    story.put(1, 4, 5)
    story.get(GONE, 6, 7)
    assert story.broken() == ["I1"]
    removal.is_stepwise = True
    assert story.broken() == []


def test_a_line_that_occurs_twice_is_reported(story: Story) -> None:
    pairs = [("a", 1), ("b", 2), ("b", 3), ("a", 1), ("c", 4)]
    assert story.history.lines("a page", pairs) == {"a": 1, "b": 3, "c": 4}
    told = [violation.text for violation in check(story.history).violations]
    assert told == ["a page: 'b' = v3 comes after 'b'", "a page: 'a' = v1 comes after 'b'"]
    assert story.broken() == ["I2", "I2"]


def test_a_concurrent_read_may_see_a_value_that_was_on_top_between_two_other_writes(
    story: Story,
) -> None:
    """An unsettled write was seen and vanished, then another write took effect; a slow read saw the state between."""
    story.put(1, 0, 1)
    story.commit("c", {"k": 1}, 2, 30)
    story.put(2, 3, 4, INFO)
    story.get(2, 5, 6)
    story.get(1, 7, 20)
    story.put(3, 10, 11)
    story.get(3, 12, 13)
    assert story.broken() == []
    story.get(1, 14, 21)
    assert story.broken() == ["I1"]


def test_a_write_that_was_seen_may_vanish_before_its_call_writes_it_again(story: Story) -> None:
    """Its row landed after the scan of a commit; "nothing to commit" read between its two rows."""
    story.put(1, 0, 1)
    story.commit("c", {"k": 1}, 2, 10)
    story.put(2, 3, 12)
    story.get(2, 5, 6)
    claim = story.op(OpKind.COMMIT, None, 7, 20, commit_id="c", is_claim=True)
    story.get(2, 14, 15)
    assert story.broken() == []
    claim.inv = 13
    assert story.broken() == ["I3"], "an acknowledged call does not write again"


def test_a_write_that_lies_beneath_another_one_may_be_written_again_after_both_vanish(
    story: Story,
) -> None:
    story.put(1, 0, 1)
    story.commit("c", {"k": 1}, 2, 30)
    story.put(2, 3, 12)
    story.get(2, 5, 6)
    story.put(3, 4, 40, INFO)
    story.get(3, 7, 8)
    story.get(1, 9, 20)
    story.get(2, 14, 15)
    assert story.broken() == []
