"""Decisions about entries of a reflog (docs/design/reflog.md)."""

from dataclasses import replace

from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.head_change import Cause, HeadChange, HeadOperation
from tarn.core.ids import CommitId, TokenId
from tarn.core.reflog import (
    DeletionJudge,
    begin_reflog,
    deletion_of,
    leave_outbox,
    note_head_change,
)

TOKEN = Token(TokenId("0" * 32), TokenKind.PLAIN, 4, 0)
CAUSE = Cause(HeadOperation.COMMIT, "ann")


def branch(commit: str = "c0") -> Branch:
    return Branch(b"life", TOKEN, (), CommitId(commit), 0, recent_op_ids=(b"op0",))


def moved(before: Branch, commit: str, op_id: bytes) -> Branch:
    return replace(before, commit_id=CommitId(commit), recent_op_ids=(op_id, *before.recent_op_ids))


def entry(
    sequence: int, new: str | None, incarnation: bytes = b"a", entry_id: bytes = b"x"
) -> HeadChange:
    head = None if new is None else CommitId(new)
    operation = HeadOperation.DELETE if new is None else HeadOperation.COMMIT
    return HeadChange(entry_id, sequence, sequence, operation, "", incarnation, CommitId("c"), head)


def test_only_a_change_of_the_head_is_noted() -> None:
    before = branch()
    sealed = replace(before, reset_count=1)
    assert note_head_change(before, sealed, CAUSE, now_us=5) is sealed
    after = note_head_change(before, moved(before, "c1", b"op1"), CAUSE, now_us=5)
    (noted,) = after.outbox
    assert (noted.entry_id, noted.sequence, noted.time_us) == (b"op1", 1, 5)
    assert (noted.old_commit_id, noted.new_commit_id) == ("c0", "c1")
    assert (after.head_sequence, after.head_time_us) == (1, 5)


def test_equal_and_earlier_times_are_put_in_order() -> None:
    before = begin_reflog(branch(), CAUSE, None, entry_id=b"0", now_us=100)
    for number, now_us in enumerate((100, 100, 7, 102, 500)):
        after = note_head_change(
            before, moved(before, f"c{number + 1}", b"%d" % number), CAUSE, now_us=now_us
        )
        assert after.outbox[-1].old_since_us == before.head_time_us
        before = after
    assert [each.time_us for each in before.outbox] == [100, 101, 102, 103, 104, 500]
    assert deletion_of(before, CAUSE, entry_id=b"d", now_us=3).time_us == 501
    newest = before.outbox[-1]
    again = begin_reflog(branch(), CAUSE, newest, entry_id=b"1", now_us=3)
    assert (again.head_sequence, again.head_time_us) == (newest.sequence + 1, 501)


def test_an_entry_leaves_the_outbox_when_its_row_is_durable() -> None:
    before = begin_reflog(branch(), CAUSE, None, entry_id=b"0", now_us=1)
    after = note_head_change(before, moved(before, "c1", b"op1"), CAUSE, now_us=2)
    assert [each.entry_id for each in after.outbox] == [b"0", b"op1"]
    assert leave_outbox(after, frozenset()) is after
    left = leave_outbox(after, frozenset({b"0"}))
    assert [each.entry_id for each in left.outbox] == [b"op1"]
    assert (left.head_sequence, left.head_time_us) == (2, 2)


def counted(
    found: list[HeadChange], live: bytes | None, last: bytes | None = None
) -> list[HeadChange]:
    judge = DeletionJudge(live, last)
    return [each for each in found if judge.counts(each)]


def test_a_deletion_counts_only_if_its_branch_is_gone_and_did_not_change_afterwards() -> None:
    first, gone = entry(1, "c1"), entry(2, None)
    assert counted([gone, first], None) == [gone, first]
    assert counted([gone, first], b"other") == [gone, first]
    assert counted([gone, first], b"a") == [first]
    second = entry(2, "c2")
    assert counted([second, gone, first], None) == [second, first]
    later = entry(3, None)
    assert counted([later, second, gone, first], None) == [later, second, first]


def test_attempts_at_one_deletion_count_once() -> None:
    attempts = [entry(2, None, entry_id=b"x"), entry(2, None, entry_id=b"y")]
    first = entry(1, "c1")
    assert counted([*attempts, first], None) == [attempts[0], first]
    next_life = entry(3, "c3", b"b")
    assert counted([next_life, *attempts, first], b"b") == [next_life, attempts[0], first]
    assert counted([attempts[1], first], b"b", last=b"a") == [first], "on the next page"


def test_an_attempt_that_the_next_creation_did_not_find_does_not_count() -> None:
    made = replace(entry(2, None, entry_id=b"x"), time_us=20)
    late = replace(made, entry_id=b"y", time_us=21)
    first = replace(entry(1, "c1"), time_us=10)
    next_life = replace(entry(3, "c3", b"b"), time_us=21, old_since_us=20)
    assert counted([next_life, late, made, first], b"b") == [next_life, made, first]
    on_the_next_page = DeletionJudge(b"b", b"b", since_us=20)
    assert [on_the_next_page.counts(each) for each in (late, made, first)] == [False, True, True]
