"""The collection record: which run may work, and when."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tarn.core.address_age import check_address_age, is_young
from tarn.core.collection import (
    BATCH_IDS_MAX,
    LIMITS,
    NEVER,
    Collection,
    Disturbance,
    Phase,
    Totals,
    begin,
    begin_batch,
    disturbance,
    end,
    end_batch,
    hold,
    renew,
    require_run,
)
from tarn.core.erasure import is_old_enough
from tarn.core.errors import Reason, TarnError
from tarn.kv.collection_records import decode_collection, encode_collection

A, B, C = "a" * 32, "b" * 32, "c" * 32
RANGE, OTHER = "1" * 64, "2" * 64
NOW = 1_790_000_000_000_000
SECOND = 1_000_000


def refused(function: Callable[..., object], *arguments: object, **named: object) -> Reason:
    with pytest.raises(TarnError) as raised:
        function(*arguments, **named)
    return raised.value.reason


def marked() -> Collection:
    """A complete mark."""
    return end(begin(NEVER, A, Phase.MARK, "", NOW, LIMITS), A, Totals(A), NOW, is_complete=True)


def sweeping() -> tuple[Collection, int]:
    """A sweep that has just begun, and its time."""
    now = NOW + LIMITS.grace_us
    return begin(marked(), B, Phase.SWEEP, A, now, LIMITS), now


def test_the_time_limits_of_a_collection_leave_room_between_them() -> None:
    """A block that a mark judges cannot be staged, built upon or read any more, with an hour for every clock."""
    hour = 3_600 * SECOND
    assert LIMITS.cutoff_us >= LIMITS.staging_us + 12 * hour
    assert LIMITS.grace_us >= hour
    assert LIMITS.batch_us > 15 * 60 * SECOND
    assert LIMITS.lease_us < LIMITS.batch_us


def test_a_run_keeps_others_away_until_its_lease_has_ended() -> None:
    record = begin(NEVER, A, Phase.MARK, "", NOW, LIMITS)
    assert record.cutoff_us == NOW - LIMITS.cutoff_us
    last = NOW + LIMITS.lease_us - 1
    assert refused(begin, record, B, Phase.MARK, "", last, LIMITS) is Reason.COLLECTION_RUNNING
    taken = begin(record, B, Phase.MARK, "", last + 1, LIMITS)
    assert taken.run_id == B
    for change in (
        lambda: renew(taken, A, last + 1, LIMITS),
        lambda: begin_batch(taken, A, [RANGE], last + 1, LIMITS),
        lambda: end_batch(taken, A, last + 1, LIMITS),
        lambda: end(taken, A, Totals(A), last + 1, is_complete=True),
        lambda: require_run(taken, A, last + 1),
    ):
        assert refused(change) is Reason.COLLECTION_LOST


def test_an_erasure_is_told_and_is_never_a_mark_that_can_be_swept() -> None:
    record = begin(marked(), B, Phase.MARK, "", NOW, LIMITS, is_erasure=True)
    assert (record.phase, record.is_erasure, record.work) == (Phase.MARK, True, "erasure")
    with pytest.raises(TarnError, match=f"erasure {B} is running"):
        begin(record, C, Phase.MARK, "", NOW, LIMITS)
    ended = end(record, B, Totals(B), NOW, is_complete=False)
    assert ended == marked(), "the last mark stays as it was"
    done = Totals(B)
    assert refused(end, record, B, done, NOW, is_complete=True) is Reason.INVALID_ARGUMENT
    swept = (marked(), C, Phase.SWEEP, A, NOW + LIMITS.grace_us, LIMITS)
    assert refused(begin, *swept, is_erasure=True) is Reason.INVALID_ARGUMENT


def test_a_mark_after_an_erasure_that_an_older_release_ended_is_no_erasure() -> None:
    """It keeps the field, which it does not know, when the run ends and another one begins."""
    record = begin(NEVER, A, Phase.MARK, "", NOW, LIMITS, is_erasure=True)
    kept = replace(record, run_id=B)
    assert not kept.is_erasure
    assert not replace(record, phase=Phase.IDLE, run_id="").is_erasure
    assert end(kept, B, Totals(B), NOW, is_complete=True).mark_run_id == B
    assert not begin(replace(kept, lease_until_us=0), C, Phase.MARK, "", NOW, LIMITS).is_erasure


def test_an_erasure_that_an_older_replica_began_goes_on() -> None:
    record = begin(NEVER, A, Phase.MARK, "", NOW, LIMITS)
    assert begin(record, A, Phase.MARK, "", NOW, LIMITS, is_erasure=True).is_erasure


def test_a_run_whose_lease_has_ended_must_begin_again() -> None:
    record = begin(NEVER, A, Phase.MARK, "", NOW, LIMITS)
    late = NOW + LIMITS.lease_us
    assert refused(renew, record, A, late, LIMITS) is Reason.COLLECTION_LOST
    assert refused(end, record, A, Totals(A), late, is_complete=True) is Reason.COLLECTION_LOST
    again = begin(record, A, Phase.MARK, "", late, LIMITS)
    assert again.cutoff_us == record.cutoff_us
    assert renew(again, A, late + SECOND, LIMITS).lease_until_us == late + SECOND + LIMITS.lease_us


def test_a_mark_is_swept_once_and_not_before_its_grace_is_over() -> None:
    record = marked()
    assert (record.phase, record.mark_run_id) == (Phase.IDLE, A)
    early = NOW + LIMITS.grace_us - 1
    assert refused(begin, record, B, Phase.SWEEP, A, early, LIMITS) is Reason.COLLECTION_TOO_EARLY
    assert refused(begin, record, B, Phase.SWEEP, C, early, LIMITS) is Reason.COLLECTION_NO_MARK
    assert refused(begin, record, B, Phase.SWEEP, "", early, LIMITS) is Reason.COLLECTION_NO_MARK
    sweep = begin(record, B, Phase.SWEEP, A, early + 1, LIMITS)
    assert sweep.cutoff_us == NOW - LIMITS.cutoff_us
    done = end(sweep, B, Totals(B, deleted_count=7), early + 2, is_complete=True)
    assert done.mark_run_id == ""
    assert done.last_sweep is not None
    assert (done.last_sweep.deleted_count, done.last_sweep.begin_us) == (7, early + 1)
    assert refused(begin, done, C, Phase.SWEEP, A, early + 3, LIMITS) is Reason.COLLECTION_NO_MARK


def test_a_sweep_judges_by_the_begin_of_its_mark_however_long_that_took() -> None:
    """What was written while the mark read its roots may be missing in them."""
    begun = begin(NEVER, A, Phase.MARK, "", NOW, LIMITS)
    late = NOW + LIMITS.lease_us - 1
    done = end(begun, A, Totals(A), late, is_complete=True)
    assert (done.mark_end_us, done.mark_cutoff_us) == (late, NOW - LIMITS.cutoff_us)
    sweep = begin(done, B, Phase.SWEEP, A, late + LIMITS.grace_us, LIMITS)
    assert sweep.cutoff_us == NOW - LIMITS.cutoff_us


def test_a_run_that_stopped_counts_for_nothing() -> None:
    record = begin(NEVER, A, Phase.MARK, "", NOW, LIMITS)
    stopped = end(record, A, Totals(A, live_count=3), NOW, is_complete=False)
    assert (stopped.phase, stopped.mark_run_id, stopped.last_mark) == (Phase.IDLE, "", None)


def test_sweeps_are_counted_for_ever() -> None:
    """Once each: not when they continue, nor when they end. Marks do not count."""
    assert marked().sweep_count == 0
    record, now = sweeping()
    assert record.sweep_count == 1
    assert begin(record, B, Phase.SWEEP, A, now + SECOND, LIMITS).sweep_count == 1
    stopped = end(record, B, Totals(B), now, is_complete=False)
    taken = begin(stopped, C, Phase.SWEEP, A, now, LIMITS)
    done = end(taken, C, Totals(C), now, is_complete=True)
    assert (taken.sweep_count, done.sweep_count) == (2, 2)
    assert begin(done, B, Phase.MARK, "", now, LIMITS).sweep_count == 2


def test_a_build_is_disturbed_by_a_sweep_that_began_and_by_a_batch_that_may_name_its_blocks() -> (
    None
):
    record, now = sweeping()
    opened = begin_batch(record, B, [RANGE], now, LIMITS)
    closed = end_batch(opened, B, now, LIMITS)
    next_one = begin_batch(closed, B, [OTHER], now, LIMITS)
    over = now + LIMITS.batch_us
    for before, after, when, found in (
        (record, record, now, Disturbance.NONE),
        (marked(), record, now, Disturbance.SWEEP),
        (marked(), opened, now, Disturbance.SWEEP),
        (record, opened, now, Disturbance.BATCH),
        (record, closed, now, Disturbance.BATCH),
        (opened, opened, now, Disturbance.BATCH),
        (opened, closed, now, Disturbance.BATCH),
        (opened, opened, over, Disturbance.NONE),
        (closed, closed, now, Disturbance.NONE),
        (closed, next_one, now, Disturbance.NONE),
        (record, next_one, now, Disturbance.BATCH),
    ):
        assert disturbance(before, after, [RANGE], when) is found


def test_the_fence_count_outlives_its_run() -> None:
    record, now = sweeping()
    opened = begin_batch(record, B, [RANGE], now, LIMITS)
    assert (opened.fence_count, opened.is_batch_open(now)) == (1, True)
    closed = end_batch(opened, B, now, LIMITS)
    assert (closed.fence_count, closed.is_batch_open(now)) == (1, False)
    done = end(closed, B, Totals(B), now, is_complete=True)
    assert begin(done, C, Phase.MARK, "", now, LIMITS).fence_count == 1


def test_an_open_batch_names_its_blocks_and_keeps_the_next_one_waiting() -> None:
    record, now = sweeping()
    opened = begin_batch(record, B, [RANGE], now, LIMITS)
    assert opened.may_delete([OTHER, RANGE], now)
    assert not opened.may_delete([OTHER], now)
    assert begin_batch(opened, B, [RANGE], now + 1, LIMITS) == opened
    assert refused(begin_batch, opened, B, [OTHER], now, LIMITS) is Reason.COLLECTION_RUNNING
    assert refused(end, opened, B, Totals(B), now, is_complete=True) is Reason.INVALID_ARGUMENT


def test_a_batch_that_was_never_ended_outlives_its_run_until_no_deletion_can_be_under_way() -> None:
    record, now = sweeping()
    opened = begin_batch(record, B, [RANGE], now, LIMITS)
    stopped = end(opened, B, Totals(B), now, is_complete=False)
    assert stopped.may_delete([RANGE], now + LIMITS.batch_us - 1)
    later = begin(stopped, C, Phase.SWEEP, A, now + SECOND, LIMITS)
    assert (
        refused(begin_batch, later, C, [OTHER], now + SECOND, LIMITS) is Reason.COLLECTION_RUNNING
    )
    over = now + LIMITS.batch_us
    assert not stopped.is_batch_open(over)
    last = begin_batch(begin(stopped, C, Phase.SWEEP, A, over, LIMITS), C, [OTHER], over, LIMITS)
    assert last.fence_count == 2


def test_a_hold_stops_a_run_and_keeps_others_from_beginning() -> None:
    record, now = sweeping()
    opened = begin_batch(record, B, [RANGE], now, LIMITS)
    held = hold(opened, 60, now)
    for change in (
        lambda: renew(held, B, now, LIMITS),
        lambda: begin_batch(held, B, [RANGE], now, LIMITS),
        lambda: require_run(held, B, now),
        lambda: begin(held, B, Phase.SWEEP, A, now, LIMITS),
    ):
        assert refused(change) is Reason.COLLECTION_HELD
    assert not end_batch(held, B, now, LIMITS).is_batch_open(now)
    assert renew(held, B, now + 60 * SECOND, LIMITS).run_id == B
    assert hold(held, 0, now).hold_until_us == 0
    assert refused(hold, held, 7 * 86_400 + 1, now) is Reason.INVALID_ARGUMENT
    assert refused(hold, held, -1, now) is Reason.INVALID_ARGUMENT


def test_a_change_whose_answer_was_lost_is_made_again_without_another_effect() -> None:
    first = begin(NEVER, A, Phase.MARK, "", NOW, LIMITS)
    assert begin(first, A, Phase.MARK, "", NOW, LIMITS) == first
    ended = marked()
    assert end(ended, A, Totals(A), NOW, is_complete=True) == ended
    record, now = sweeping()
    assert begin(record, B, Phase.SWEEP, A, now, LIMITS) == record
    closed = end_batch(begin_batch(record, B, [RANGE], now, LIMITS), B, now, LIMITS)
    assert end_batch(closed, B, now, LIMITS) == closed


def test_ids_and_phases_are_checked() -> None:
    record, now = sweeping()
    for run_id in ("", "A" * 32, "a" * 31, "a" * 33):
        assert refused(begin, NEVER, run_id, Phase.MARK, "", NOW, LIMITS) is Reason.INVALID_ARGUMENT
    assert refused(begin, NEVER, A, Phase.IDLE, "", NOW, LIMITS) is Reason.INVALID_ARGUMENT
    assert refused(begin, record, B, Phase.MARK, "", now, LIMITS) is Reason.INVALID_ARGUMENT
    for ids in ([], ["x"], [f"{number:064x}" for number in range(BATCH_IDS_MAX + 1)]):
        assert refused(begin_batch, record, B, ids, now, LIMITS) is Reason.INVALID_ARGUMENT
    mark = begin(NEVER, A, Phase.MARK, "", NOW, LIMITS)
    assert refused(begin_batch, mark, A, [RANGE], NOW, LIMITS) is Reason.INVALID_ARGUMENT
    long = Totals(A, note="x" * 1001)
    assert refused(end, mark, A, long, NOW, is_complete=True) is Reason.INVALID_ARGUMENT


def test_a_batch_that_was_never_ended_says_until_when_it_is_open() -> None:
    """It outlives the lease of its run: S3 takes its deletions for 15 minutes."""
    record, now = sweeping()
    opened = begin_batch(record, B, [RANGE], now, LIMITS)
    later = now + LIMITS.lease_us
    again = begin(opened, C, Phase.SWEEP, A, later, LIMITS)
    with pytest.raises(TarnError) as raised:
        begin_batch(again, C, [OTHER], later, LIMITS)
    assert raised.value.reason is Reason.COLLECTION_RUNNING
    assert raised.value.metadata["until_us"] == str(now + LIMITS.batch_us)
    assert "until 2026-09-21T" in raised.value.message
    renewed = replace(again, lease_until_us=now + 2 * LIMITS.batch_us)
    assert begin_batch(renewed, C, [OTHER], now + LIMITS.batch_us, LIMITS).fence_count == 2


def test_an_address_is_old_at_the_limit() -> None:
    made_ms = NOW // 1000
    address = made_ms.to_bytes(6, "big") + bytes(10)
    at_limit = made_ms * 1000 + LIMITS.staging_us
    assert is_young(address, at_limit - 1, LIMITS)
    assert not is_young(address, at_limit, LIMITS)
    check_address_age(address, at_limit - 1, LIMITS)
    assert refused(check_address_age, address, at_limit, LIMITS) is Reason.ADDRESS_TOO_OLD


def test_an_address_from_the_future_is_not_young() -> None:
    """A gateway whose clock is a day ahead would make addresses that stay young until a mark judges their blocks."""
    made_ms = NOW // 1000
    address = made_ms.to_bytes(6, "big") + bytes(10)
    at_limit = made_ms * 1000 - LIMITS.ahead_us
    check_address_age(address, at_limit, LIMITS)
    assert is_young(address, at_limit, LIMITS)
    assert refused(check_address_age, address, at_limit - 1, LIMITS) is Reason.ADDRESS_IN_FUTURE
    assert not is_young(address, at_limit - 1, LIMITS)
    assert not is_old_enough(address, at_limit - 1, LIMITS)
    assert LIMITS.staging_us + LIMITS.ahead_us < LIMITS.cutoff_us - 12 * 3_600 * SECOND


def test_a_record_is_the_same_after_encoding() -> None:
    record, now = sweeping()
    full = hold(begin_batch(record, B, [RANGE, OTHER], now, LIMITS), 60, now)
    full = replace(full, last_sweep=Totals(C, 1, 2, 3, 4, 5, 6, 7, 8, 9, "note"))
    for each in (NEVER, full):
        assert decode_collection(encode_collection(each)) == each


def test_a_damaged_record_is_told() -> None:
    good = encode_collection(NEVER)
    for value in (b"", good + b"\xff", good.replace(b"idle", b"idly")):
        assert refused(decode_collection, value) is Reason.DATA_CORRUPT
