"""Decisions about the branch record: rules 4, 5 and 8 of docs/design/protocol.md."""

from dataclasses import replace

import pytest

from tarn.core.branch import (
    PINS_MAX,
    AfterLostRace,
    Branch,
    Pin,
    Settled,
    Token,
    TokenKind,
    after_lost_race,
    begin_compaction,
    discard_changes,
    end_compaction,
    finish_compaction,
    forget_sealed,
    move_head,
    pin_listing,
    publish_commit,
    removed_tokens,
    reset_part,
    seal,
    settle,
    with_oldest_of,
)
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import CommitId, MetarangeId, TokenId


def token(name: str) -> Token:
    return Token(TokenId(name), TokenKind.PLAIN, 4, 0)


PIN = Pin(b"pin", MetarangeId("m"))


def branch(*sealed: str, staging: str = "t0", commit: str = "c0") -> Branch:
    return Branch(b"life", token(staging), tuple(map(token, sealed)), CommitId(commit), 0)


def test_seal_puts_the_staging_token_in_front_of_the_sealed_ones() -> None:
    sealed = seal(branch("t-1"), token("t1"), b"op")
    assert [t.token_id for t in sealed.tokens] == ["t1", "t0", "t-1"]
    assert sealed.recent_op_ids[0] == b"op"


def test_seal_remembers_only_the_last_eight_operations() -> None:
    now = branch()
    for number in range(12):
        now = seal(now, token(f"n{number}"), bytes([number]))
    assert now.recent_op_ids == tuple(bytes([number]) for number in range(11, 3, -1))


def test_finish_takes_exactly_the_tokens_that_were_built_from() -> None:
    built_from = branch("a", "b")
    newer = seal(built_from, token("t1"), b"seal")
    after = publish_commit(built_from, newer, CommitId("c1"), b"finish")
    assert [t.token_id for t in after.sealed] == ["t0"]
    assert after.staging == token("t1")
    assert after.commit_id == "c1"
    assert removed_tokens(newer, after) == (token("a"), token("b"))


def test_finish_clears_what_compaction_had_made() -> None:
    compacted = replace(branch("a"), compacted_metarange_id=MetarangeId("m"))
    assert publish_commit(compacted, compacted, CommitId("c1"), b"x").compacted_metarange_id is None


def test_forgetting_sealed_tokens_keeps_the_commit_and_forgets_what_they_undid() -> None:
    compacted = replace(
        branch("a"), compacted_metarange_id=MetarangeId("m"), compaction_start_time_us=7
    )
    after = forget_sealed(compacted, compacted, b"x")
    assert (after.sealed, after.commit_id, after.compacted_metarange_id) == ((), "c0", None)
    assert after.compaction_start_time_us == 0, "the compaction that runs has lost its tokens"


def test_a_lost_finish_is_reused_when_only_newer_seals_came() -> None:
    built_from = branch("a", "b")
    assert after_lost_race(built_from, branch("n", "a", "b")) is AfterLostRace.REUSE


def test_a_lost_finish_is_recomputed_when_the_commit_moved_and_tokens_are_left() -> None:
    assert after_lost_race(branch("a", "b"), branch("a", commit="c1")) is AfterLostRace.RECOMPUTE


def test_a_lost_finish_is_recomputed_when_a_compaction_came_between() -> None:
    current = replace(branch("a"), compacted_metarange_id=MetarangeId("m"))
    assert after_lost_race(branch("a"), current) is AfterLostRace.RECOMPUTE


def test_a_lost_finish_is_taken_when_another_commit_has_all_tokens() -> None:
    assert after_lost_race(branch("a"), branch("n", commit="c1")) is AfterLostRace.TAKEN


def test_tokens_that_vanished_without_a_commit_are_not_taken_for_committed() -> None:
    assert after_lost_race(branch("a"), branch("n")) is AfterLostRace.RECOMPUTE


def test_a_branch_of_another_life_is_never_reused() -> None:
    current = replace(branch("n", "a"), incarnation=b"other")
    assert after_lost_race(branch("a"), current) is AfterLostRace.RECOMPUTE


def test_an_operation_in_the_record_was_applied() -> None:
    base = branch()
    assert settle(base, b"op", seal(base, token("t1"), b"op")) is Settled.APPLIED


def test_an_operation_that_a_remembering_record_does_not_hold_was_not_applied() -> None:
    base = seal(branch(), token("t1"), b"before")
    assert settle(base, b"op", seal(base, token("t2"), b"other")) is Settled.NOT_APPLIED


def test_an_operation_on_a_record_that_has_not_changed_may_still_be_applied() -> None:
    base = seal(branch(), token("t1"), b"before")
    assert settle(base, b"op", base) is Settled.PENDING


def test_a_token_is_never_sealed_beneath_itself() -> None:
    base = seal(branch(), token("t1"), b"before")
    with pytest.raises(TarnError) as raised:
        seal(base, token("t1"), b"op")
    assert raised.value.kind is Kind.CORRUPT


def test_after_eight_other_operations_the_outcome_is_unknown() -> None:
    base = seal(branch(), token("t1"), b"before")
    now = base
    for number in range(8):
        now = seal(now, token(f"n{number}"), bytes([number]))
    assert settle(base, b"op", now) is Settled.UNDECIDABLE


def test_a_re_created_branch_says_nothing_about_the_former_one() -> None:
    base = branch()
    assert settle(base, b"op", replace(base, incarnation=b"x")) is Settled.UNDECIDABLE
    assert settle(base, b"op", None) is Settled.UNDECIDABLE


def test_layers_differ_by_any_part_that_a_reader_reads() -> None:
    base = branch("a")
    for other in (
        replace(base, staging=token("x")),
        replace(base, sealed=()),
        replace(base, commit_id=CommitId("c1")),
        replace(base, compacted_metarange_id=MetarangeId("m")),
        replace(base, incarnation=b"x"),
        replace(base, is_deleted=True),
    ):
        assert not base.same_layers(other)
    assert base.same_layers(replace(base, recent_op_ids=(b"op",), compaction_start_time_us=5))


@pytest.mark.parametrize(
    "change",
    [
        {"incarnation": b"next"},
        {"staging": token("t1")},
        {"sealed": (token("a"),)},
        {"sealed": (token("b"), token("a"))},
        {"commit_id": CommitId("c1")},
        {"compacted_metarange_id": MetarangeId("m")},
        {"is_deleted": True},
    ],
    ids=str,
)
def test_layers_differ_in_whatever_a_reader_could_see(change: dict[str, object]) -> None:
    one = branch("a", "b")
    other = replace(one, **change)  # type: ignore[arg-type]
    assert not one.same_layers(other)
    assert not other.same_layers(one)
    again = replace(one, create_time_us=7, recent_op_ids=(b"op",), compaction_start_time_us=3)
    assert one.same_layers(again)


def test_a_record_takes_rows_for_its_staging_token_in_this_life_only() -> None:
    one = branch("a")
    assert replace(one, commit_id=CommitId("c1"), sealed=()).takes_writes_as(one)
    assert not seal(one, token("t1"), b"op").takes_writes_as(one)
    assert not replace(one, incarnation=b"next").takes_writes_as(one)
    assert not replace(one, is_deleted=True).takes_writes_as(one)


def test_moving_the_head_replaces_the_staging_token_and_keeps_its_rows() -> None:
    built_from = branch("a", "b")
    newer = seal(built_from, token("t1"), b"seal")
    after = move_head(built_from, newer, CommitId("c1"), token("t2"), b"merge", now_us=9)
    assert [t.token_id for t in after.tokens] == ["t2", "t1", "t0"]
    assert after.commit_id == "c1"
    assert after.recent_op_ids[0] == b"merge"
    assert removed_tokens(newer, after) == (token("a"), token("b"))


def test_moving_the_head_refuses_a_token_that_the_record_names() -> None:
    with pytest.raises(TarnError) as caught:
        move_head(branch(), branch(), CommitId("c1"), token("t0"), b"merge", now_us=9)
    assert caught.value.kind is Kind.CORRUPT


def test_a_reset_of_a_part_replaces_the_staging_token_and_keeps_newer_rows() -> None:
    built_from = branch("a", "b")
    newer = seal(built_from, token("t1"), b"seal")
    newer = pin_listing(newer, PIN, b"pins")
    after = reset_part(built_from, newer, PIN, token("t2"), b"reset", now_us=9)
    assert [t.token_id for t in after.tokens] == ["t2", "t1", "t0"]
    assert (after.commit_id, after.compacted_metarange_id) == ("c0", "m")
    assert (after.reset_count, after.move_time_us, after.recent_op_ids[0]) == (1, 9, b"reset")
    assert removed_tokens(newer, after) == (token("a"), token("b"))
    again = reset_part(after, after, None, token("t3"), b"again", now_us=9)
    assert (again.compacted_metarange_id, again.reset_count, again.move_time_us) == (None, 2, 10)


def test_a_reset_of_a_part_refuses_a_token_that_the_record_names() -> None:
    with pytest.raises(TarnError) as caught:
        reset_part(branch(), branch(), None, token("t0"), b"reset", now_us=9)
    assert caught.value.kind is Kind.CORRUPT


def test_a_commit_builds_again_on_what_the_reset_of_a_part_left() -> None:
    built_from = branch("a")
    pinned = pin_listing(built_from, PIN, b"pins")
    folded = reset_part(built_from, pinned, PIN, token("t1"), b"r", now_us=9)
    assert after_lost_race(built_from, folded) is AfterLostRace.RECOMPUTE
    emptied = reset_part(built_from, built_from, None, token("t1"), b"r", now_us=9)
    assert after_lost_race(built_from, emptied) is AfterLostRace.RESET


def test_a_commit_builds_again_on_tokens_that_the_reset_of_a_part_did_not_take() -> None:
    built_from = branch("a")
    ours = seal(built_from, token("t1"), b"seal")
    emptied = reset_part(built_from, ours, None, token("t2"), b"r", now_us=9)
    assert after_lost_race(ours, emptied) is AfterLostRace.RECOMPUTE


def test_a_compaction_marks_the_record_and_replaces_only_what_it_folded() -> None:
    begun = begin_compaction(branch("a", "b"), token("t1"), b"begin", now_us=5)
    assert [t.token_id for t in begun.tokens] == ["t1", "t0", "a", "b"]
    assert (begun.compaction_start_time_us, begun.recent_op_ids) == (5, (b"begin",))
    newer = pin_listing(seal(begun, token("t2"), b"seal"), PIN, b"pins")
    after = finish_compaction(begun, newer, PIN, b"finish", now_us=9)
    assert [t.token_id for t in after.tokens] == ["t2", "t1"]
    assert (after.commit_id, after.compacted_metarange_id) == ("c0", "m")
    assert (after.compaction_start_time_us, after.compaction_end_time_us) == (0, 9)
    assert (after.reset_count, after.move_time_us) == (0, 0)
    assert after_lost_race(begun, after) is AfterLostRace.RECOMPUTE
    undone = finish_compaction(begun, newer, None, b"finish", now_us=9)
    assert undone.compacted_metarange_id is None


def test_a_compaction_of_sealed_tokens_only_leaves_the_staging_token() -> None:
    begun = begin_compaction(branch("a"), None, b"begin", now_us=5)
    assert [t.token_id for t in begun.tokens] == ["t0", "a"]
    assert (begun.compaction_start_time_us, begun.recent_op_ids) == (5, (b"begin",))
    with pytest.raises(TarnError):
        begin_compaction(branch("a"), token("a"), b"begin", now_us=5)


def test_a_failed_compaction_takes_only_its_own_mark_away() -> None:
    begun = begin_compaction(branch("a"), None, b"begin", now_us=5)
    assert end_compaction(begun, begun, b"end").compaction_start_time_us == 0
    for other in (
        replace(begun, compaction_start_time_us=6),
        replace(begun, compaction_start_time_us=0),
        replace(begun, incarnation=b"another"),
    ):
        assert end_compaction(begun, other, b"end") is other


def test_tokens_that_a_compaction_may_have_folded_are_not_taken_for_committed() -> None:
    """Another commit moved the head and left our token; then a compaction folded it."""
    built_from, later = branch("a", "b"), branch(commit="c1")
    assert after_lost_race(built_from, later) is AfterLostRace.TAKEN
    compacted = replace(later, compacted_metarange_id=MetarangeId("m"))
    assert after_lost_race(built_from, compacted) is AfterLostRace.RECOMPUTE


def test_only_the_oldest_sealed_tokens_are_those_of_an_operation() -> None:
    ours = with_oldest_of(branch("a", "b"), branch("n", "a"))
    assert ours.sealed == (token("a"),)


def test_a_reset_leaves_one_empty_token_and_the_chosen_commit() -> None:
    compacted = replace(branch("a"), compacted_metarange_id=MetarangeId("m"))
    after = discard_changes(compacted, CommitId("c0"), token("t1"), b"reset", now_us=9)
    assert after.tokens == (token("t1"),)
    assert (after.commit_id, after.compacted_metarange_id, after.reset_count) == ("c0", None, 1)
    assert removed_tokens(compacted, after) == (token("t0"), token("a"))


def test_a_commit_tells_tokens_that_were_discarded_from_tokens_that_were_committed() -> None:
    built_from = seal(branch(), token("t1"), b"seal")
    hard = discard_changes(built_from, CommitId("c1"), token("t2"), b"reset", now_us=9)
    committed = publish_commit(built_from, built_from, CommitId("c1"), b"finish")
    assert after_lost_race(built_from, hard) is AfterLostRace.RESET
    assert after_lost_race(built_from, committed) is AfterLostRace.TAKEN


def test_each_move_of_a_head_has_a_later_time_although_clocks_go_back() -> None:
    first = move_head(branch(), branch(), CommitId("c1"), token("t1"), b"m1", now_us=9)
    second = move_head(first, first, CommitId("c2"), token("t2"), b"m2", now_us=5)
    third = discard_changes(second, CommitId("c2"), token("t3"), b"r", now_us=5)
    assert [each.move_time_us for each in (first, second, third)] == [9, 10, 11]


def test_a_pin_changes_nothing_but_the_pins() -> None:
    pinned = pin_listing(branch("a"), PIN, b"op")
    assert (pinned.pins, pinned.recent_op_ids) == ((PIN,), (b"op",))
    assert replace(pinned, pins=(), recent_op_ids=()) == branch("a")
    assert pinned.same_layers(branch("a"))
    assert after_lost_race(branch("a"), pinned) is AfterLostRace.REUSE


def test_newer_pins_push_the_oldest_out() -> None:
    now = pin_listing(branch(), PIN, b"op")
    for number in range(PINS_MAX - 1):
        now = pin_listing(now, Pin(bytes([number]), MetarangeId("n")), b"op")
    assert PIN in now.pins
    now = pin_listing(now, Pin(b"last", MetarangeId("n")), b"op")
    assert (len(now.pins), PIN in now.pins) == (PINS_MAX, False)


def test_a_listing_is_reused_only_while_its_own_pin_is_in_the_record() -> None:
    """The same listing under another pin may have been unpinned, and deleted, in between."""
    built_from = branch("a")
    pinned = pin_listing(built_from, PIN, b"op")
    assert after_lost_race(built_from, pinned, PIN) is AfterLostRace.REUSE
    for other in (built_from, pin_listing(built_from, replace(PIN, pin_id=b"other"), b"op")):
        assert after_lost_race(built_from, other, PIN) is AfterLostRace.RECOMPUTE
        with pytest.raises(AssertionError):
            finish_compaction(built_from, other, PIN, b"op", now_us=9)
        with pytest.raises(AssertionError):
            reset_part(built_from, other, PIN, token("t1"), b"op", now_us=9)


def test_whatever_is_published_clears_the_pins() -> None:
    """No other operation can publish its listing over that; what the pins name may be deleted."""
    at = pin_listing(branch("a"), PIN, b"op")
    c1, t1 = CommitId("c1"), token("t1")
    for after in (
        publish_commit(at, at, c1, b"op"),
        forget_sealed(at, at, b"op"),
        move_head(at, at, c1, t1, b"op", now_us=9),
        discard_changes(at, at.commit_id, t1, b"op", now_us=9),
        finish_compaction(at, at, PIN, b"op", now_us=9),
        reset_part(at, at, None, t1, b"op", now_us=9),
    ):
        assert after.pins == ()
    for after in (seal(at, t1, b"op"), begin_compaction(at, t1, b"op", now_us=5)):
        assert after.pins == (PIN,)
