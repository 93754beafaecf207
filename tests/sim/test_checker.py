"""The checker itself: hand-written histories that keep the promises, and others that break them."""

from collections.abc import Mapping

import pytest
from tests.support.check.checker import check
from tests.support.check.history import ABSENT, GONE, NEVER, Commit, History, Op, OpKind, Outcome

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


class Story:
    """A history of key `k` of one branch, which is empty at first."""

    def __init__(self) -> None:
        self.history = History()
        self.op(OpKind.CREATE, None, -2, -1)

    def op(
        self,
        kind: OpKind,
        value: int | None,
        inv: float,
        end: float,
        outcome: Outcome = OK,
        *,
        key: str | None = "k",
        commit_id: str = "",
        is_claim: bool = False,
    ) -> Op:
        is_whole = kind in {OpKind.COMMIT, OpKind.COMPACT, OpKind.CREATE, OpKind.REMOVE}
        made = Op(
            len(self.history.ops),
            "p",
            kind,
            "b",
            None if is_whole else key,
            value,
            inv,
            end if outcome is OK else NEVER,
            end,
            outcome,
            commit_id,
            is_claim,
        )
        made.reason = "UNAVAILABLE" if outcome is FAIL else ""
        self.history.ops.append(made)
        return made

    def put(self, value: int, inv: float, end: float, outcome: Outcome = OK) -> Op:
        return self.op(OpKind.PUT, value, inv, end, outcome)

    def delete(self, inv: float, end: float, outcome: Outcome = OK) -> Op:
        return self.op(OpKind.DELETE, ABSENT, inv, end, outcome)

    def get(self, value: int, inv: float, end: float) -> Op:
        return self.op(OpKind.GET, value, inv, end)

    def commit(
        self,
        commit_id: str,
        contents: Mapping[str, int],
        inv: float,
        end: float,
        outcome: Outcome = OK,
        *,
        parent: str = "",
    ) -> Op:
        made = self.op(OpKind.COMMIT, None, inv, end, outcome)
        if outcome is OK:
            made.commit_id = commit_id
        parents = (parent,) if parent else ()
        message = f"#{made.number}"
        self.history.commits[commit_id] = Commit(commit_id, message, parents, contents)
        return made

    def broken(self) -> list[str]:
        """Returns the violated invariants."""
        return [violation.invariant for violation in check(self.history).violations]


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_read_of_the_newest_write_is_fresh(story: Story) -> None:
    story.put(1, 1, 2)
    story.put(2, 3, 4)
    story.get(2, 5, 6)
    assert story.broken() == []


def test_a_read_of_an_overwritten_value_is_stale(story: Story) -> None:
    story.put(1, 1, 2)
    story.put(2, 3, 4)
    story.get(1, 5, 6)
    assert story.broken() == ["I1"]


def test_a_read_of_nothing_after_an_acknowledged_write_is_stale(story: Story) -> None:
    story.put(1, 1, 2)
    story.get(ABSENT, 3, 4)
    assert story.broken() == ["I1"]


def test_a_read_concurrent_with_a_write_may_see_either_value(story: Story) -> None:
    story.put(1, 1, 2)
    story.put(2, 3, 9)
    story.get(1, 4, 5)
    story.get(2, 6, 7)
    assert story.broken() == []


def test_a_write_that_was_seen_vanishes_only_with_a_seal(story: Story) -> None:
    story.put(1, 1, 2)
    story.put(2, 3, 12)
    story.get(2, 4, 5)
    story.get(1, 6, 7)
    assert story.broken() == ["I1"]
    story.commit("c", {"k": 1}, 5, 6)
    assert story.broken() == []
    story.get(2, 8, 9)
    assert story.broken() == [], "the sealed write is written again"


def test_concurrent_writes_end_in_one_order(story: Story) -> None:
    story.put(1, 1, 5)
    story.put(2, 2, 4)
    story.get(1, 10, 11)
    assert story.broken() == []
    story.get(2, 12, 13)
    assert story.broken() == ["I1"]


def test_concurrent_writes_may_go_back_and_forth_as_often_as_they_are_sealed(story: Story) -> None:
    story.commit("c", {"k": 2}, 1, 90)
    story.put(1, 2, 50)
    story.put(2, 3, 40)
    for time, value in enumerate((1, 2, 1, 2)):
        story.get(value, 10 + 2 * time, 11 + 2 * time)
    assert story.broken() == []
    assert check(story.history).statistics["reads that went back (B-A-N-A-N-A)"] == 2


def test_an_unsettled_write_may_come_late(story: Story) -> None:
    story.put(1, 1, 2, INFO)
    story.put(2, 3, 4)
    for time, value in enumerate((2, 1, 1)):
        story.get(value, 10 + 2 * time, 11 + 2 * time)
    assert story.broken() == []
    assert check(story.history).statistics["reads of unsettled writes"] == 2


def test_an_unsettled_write_that_was_seen_vanishes_only_with_a_seal(story: Story) -> None:
    story.put(1, 1, 2, INFO)
    story.put(2, 3, 4)
    for time, value in enumerate((2, 1, 2)):
        story.get(value, 10 + 2 * time, 11 + 2 * time)
    assert story.broken() == ["I1"]
    story.commit("c", {"k": 2}, 5, 6)
    assert story.broken() == []


def test_a_failed_write_must_not_be_seen(story: Story) -> None:
    story.put(1, 1, 2, FAIL)
    story.get(1, 3, 4)
    assert story.broken() == ["I2"]


def test_an_unsettled_delete_does_not_excuse_an_older_value(story: Story) -> None:
    story.put(1, 1, 2)
    story.put(2, 3, 4)
    story.delete(5, 6, INFO)
    story.get(1, 7, 8)
    assert story.broken() == ["I1"]


def test_a_value_that_was_never_written_is_reported(story: Story) -> None:
    story.get(7, 3, 4)
    assert story.broken() == ["I2"]


def test_a_value_that_is_read_before_it_was_written_is_reported(story: Story) -> None:
    story.get(1, 1, 2)
    story.put(1, 3, 4)
    assert story.broken() == ["I2"]


def test_a_value_that_was_written_twice_counts_from_the_later_one(story: Story) -> None:
    story.put(1, 1, 2)
    story.put(2, 3, 4)
    story.put(1, 5, 6)
    story.get(1, 7, 8)
    assert story.broken() == []


def test_a_deleted_value_must_not_come_back(story: Story) -> None:
    story.put(1, 1, 2)
    story.delete(3, 4)
    story.get(1, 5, 6)
    assert story.broken() == ["I1"]


def test_a_line_of_a_listing_is_a_read(story: Story) -> None:
    story.put(1, 1, 2)
    story.op(OpKind.LIST, ABSENT, 3, 4)
    assert story.broken() == ["I1"]


def test_a_commit_must_hold_what_was_acknowledged_before_it(story: Story) -> None:
    story.put(1, 1, 2)
    story.commit("c1", {}, 3, 4)
    story.history.heads["b"] = "c1"
    assert story.broken() == ["I3"]


def test_a_commit_may_hold_a_concurrent_write(story: Story) -> None:
    story.put(1, 1, 2)
    story.put(2, 3, 9)
    story.commit("c1", {"k": 2}, 4, 5)
    story.history.heads["b"] = "c1"
    assert story.broken() == []


def test_nothing_to_commit_is_a_claim_about_a_commit(story: Story) -> None:
    story.commit("c1", {}, 1, 2)
    story.put(1, 3, 4)
    story.op(OpKind.COMMIT, None, 5, 6, commit_id="c1", is_claim=True)
    story.history.heads["b"] = "c1"
    assert story.broken() == ["I3"]


def test_an_acknowledged_commit_must_be_in_the_history(story: Story) -> None:
    story.commit("c1", {}, 1, 2)
    story.commit("c2", {}, 3, 4)
    story.history.heads["b"] = "c2"
    assert story.broken() == ["I4"]


def test_commits_lie_in_the_order_in_which_they_were_made(story: Story) -> None:
    story.commit("c1", {}, 1, 2, parent="c2")
    story.commit("c2", {}, 3, 4)
    story.history.heads["b"] = "c1"
    assert story.broken() == ["I4"]


def test_a_failed_commit_must_not_be_in_the_history(story: Story) -> None:
    story.commit("c1", {}, 1, 2, FAIL)
    story.history.heads["b"] = "c1"
    assert story.broken() == ["I4"]


def test_a_commit_whose_answer_was_lost_is_held_to_its_contents(story: Story) -> None:
    story.put(1, 1, 2)
    story.commit("c1", {}, 3, 4, INFO)
    story.history.heads["b"] = "c1"
    assert story.broken() == ["I3"]


def test_a_commit_may_be_gone_with_its_branch(story: Story) -> None:
    story.commit("c1", {}, 1, 2)
    story.op(OpKind.REMOVE, None, 3, 4)
    story.op(OpKind.CREATE, None, 5, 6)
    assert story.broken() == []


def test_a_removed_branch_is_empty_and_a_new_one_of_its_name_holds_its_source(story: Story) -> None:
    story.put(1, 1, 2)
    story.history.commits["c"] = Commit("c", "", (), {"k": 5})
    story.op(OpKind.REMOVE, None, 3, 4)
    story.get(GONE, 5, 6)
    story.op(OpKind.CREATE, None, 7, 8, commit_id="c")
    story.get(5, 9, 10)
    assert story.broken() == []
    story.get(1, 11, 12)
    assert story.broken() == ["I1"]


def test_a_missing_block_is_reported(story: Story) -> None:
    story.history.dangling.append("commit c, path k: no block")
    assert story.broken() == ["I9"]


def test_a_violation_shows_the_history_of_its_key(story: Story) -> None:
    story.put(1, 1, 2)
    story.op(OpKind.PUT, 9, 1, 2, key="other")
    story.get(ABSENT, 3, 4)
    (violation,) = check(story.history).violations
    assert "get has nothing" in violation.text
    assert any(line.startswith("→") for line in violation.story)
    assert not any("other" in line for line in violation.story)


def put_if(
    story: Story, value: int, expected: int, inv: float, end: float, outcome: Outcome = OK
) -> Op:
    op = story.put(value, inv, end, outcome)
    op.expected = expected
    return op


def test_two_creations_need_a_delete_between_them(story: Story) -> None:
    put_if(story, 1, ABSENT, 1, 4)
    story.delete(2, 3)
    put_if(story, 2, ABSENT, 2, 5)
    assert story.broken() == []


def test_a_delete_that_was_over_before_the_first_creation_does_not_count(story: Story) -> None:
    story.put(9, 0, 1)
    story.delete(2, 3)
    put_if(story, 1, ABSENT, 4, 8)
    put_if(story, 2, ABSENT, 5, 9)
    assert story.broken() == ["I6"]


def test_one_value_is_replaced_once(story: Story) -> None:
    story.put(1, 1, 2)
    put_if(story, 2, 1, 3, 6)
    assert story.broken() == []
    put_if(story, 3, 1, 4, 7)
    assert story.broken() == ["I6"]


def test_a_value_that_was_written_again_is_replaced_again(story: Story) -> None:
    story.put(1, 1, 2)
    put_if(story, 2, 1, 3, 4)
    story.put(1, 5, 6)
    put_if(story, 3, 1, 7, 8)
    assert story.broken() == []


def test_a_write_that_meets_a_seal_may_come_back_once(story: Story) -> None:
    story.put(1, 1, 8)
    put_if(story, 2, 1, 3, 4)
    put_if(story, 3, 1, 9, 10)
    assert story.broken() == [], "the first conditional write seals"
    put_if(story, 4, 1, 5, 6)
    assert story.broken() == ["I6"], "later conditional writes do not seal"
    story.commit("c", {"k": 1}, 2, 5)
    assert story.broken() == [], "a commit seals"
    put_if(story, 5, 1, 9.5, 12)
    assert story.broken() == ["I6"], "an acknowledged write takes no further effect"


def test_a_conditional_write_does_not_come_back(story: Story) -> None:
    put_if(story, 1, ABSENT, 1, 8)
    story.commit("c", {"k": 1}, 2, 5)
    put_if(story, 2, 1, 3, 4)
    put_if(story, 3, 1, 9, 10)
    assert story.broken() == ["I6"]


def test_a_conditional_write_does_not_see_an_overwritten_value(story: Story) -> None:
    story.put(1, 1, 2)
    story.put(2, 3, 4)
    put_if(story, 3, 1, 5, 6)
    assert story.broken() == ["I6"]


def test_a_refused_conditional_write_is_a_read(story: Story) -> None:
    story.put(1, 1, 2)
    story.delete(3, 4)
    op = put_if(story, 2, ABSENT, 5, 6, FAIL)
    op.observed = 1
    assert story.broken() == ["I1"]


def test_a_refused_conditional_write_has_no_effect(story: Story) -> None:
    story.put(1, 1, 2)
    op = put_if(story, 2, ABSENT, 3, 4, FAIL)
    op.observed = 1
    assert story.broken() == []
    story.get(2, 5, 6)
    assert story.broken() == ["I2"]
