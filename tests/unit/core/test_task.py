"""Decisions about the record of a task."""

from dataclasses import replace

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId, TaskId, UserId
from tarn.core.task import (
    LEASE_US,
    OPEN_MAX,
    RETENTION_US,
    RUN_US_MAX,
    RUNS_MAX,
    STARTS_MAX,
    Quota,
    Start,
    Task,
    TaskFailure,
    TaskProgress,
    TaskState,
    cancel,
    check_form,
    check_task_id,
    claim,
    day_of_task,
    days_of_open_tasks,
    drop_time_of_day,
    end,
    is_claimable,
    is_shown,
    next_look,
    owns,
    renew,
    void_task,
)

DAY_US = 86_400_000_000
NOW = 20_000 * DAY_US + 5_000_000
ID = TaskId(f"{NOW // 1000:012x}7{1:019x}")
NEW = Task(ID, RepositoryId("lake"), "uid", UserId("ann"), b"u", (), "merge", "", b"r", b"d", NOW)


def begun(runner: bytes = b"one", at: int = NOW) -> Task:
    claimed = claim(NEW, runner, at)
    assert claimed is not None
    return claimed


def test_a_claim_begins_a_run_with_a_lease() -> None:
    run = begun()
    assert (run.state, run.epoch, run.runner) == (TaskState.RUNNING, 1, b"one")
    assert run.lease_until_us == NOW + LEASE_US


def test_a_task_is_claimed_again_when_its_lease_is_over_and_not_before() -> None:
    run = begun()
    assert claim(run, b"two", NOW + LEASE_US - 1) is None
    second = claim(replace(run, progress=TaskProgress(3, 9)), b"two", NOW + LEASE_US)
    assert second is not None
    assert (second.epoch, second.runner, second.progress) == (2, b"two", TaskProgress())
    assert not owns(second, run)
    assert owns(second, second)


@pytest.mark.parametrize("state", [each for each in TaskState if each.is_ended])
def test_an_ended_task_does_not_change(state: TaskState) -> None:
    ended = replace(begun(), state=state)
    late = NOW + 2 * LEASE_US
    assert not is_claimable(ended, late)
    assert claim(ended, b"two", late) is None
    assert renew(ended, begun(), TaskProgress(), late) is None
    assert cancel(ended, late) is None
    assert end(ended, begun(), TaskState.FAILED, late, progress=TaskProgress()) is None


def test_after_its_last_run_a_task_ends_with_an_unknown_outcome() -> None:
    last = replace(begun(), epoch=RUNS_MAX)
    after = claim(last, b"two", NOW + LEASE_US)
    assert after is not None
    assert after.state is TaskState.FAILED
    assert after.failure is not None
    assert after.failure.kind is Kind.UNKNOWN_OUTCOME
    before = claim(replace(last, epoch=RUNS_MAX - 1), b"two", NOW + LEASE_US)
    assert before is not None
    assert before.state is TaskState.RUNNING


def test_only_the_owner_renews_and_ends() -> None:
    run, other = begun(), begun(b"two")
    renewed = renew(run, run, TaskProgress(1, 2), NOW + 5)
    assert renewed is not None
    assert (renewed.lease_until_us, renewed.progress) == (NOW + 5 + LEASE_US, TaskProgress(1, 2))
    assert renew(run, other, TaskProgress(), NOW) is None
    assert end(run, other, TaskState.SUCCEEDED, NOW, progress=TaskProgress()) is None
    done = end(renewed, run, TaskState.SUCCEEDED, NOW + 9, progress=TaskProgress(2, 2), result=b"x")
    assert done is not None
    assert (done.state, done.result, done.end_time_us) == (TaskState.SUCCEEDED, b"x", NOW + 9)


def test_a_pending_task_is_cancelled_at_once_and_a_running_one_is_marked() -> None:
    ended = cancel(NEW, NOW)
    assert ended is not None
    assert (ended.state, ended.end_time_us) == (TaskState.CANCELLED, NOW)
    marked = cancel(begun(), NOW)
    assert marked is not None
    assert (marked.state, marked.is_cancel_requested) == (TaskState.RUNNING, True)
    assert cancel(marked, NOW) is None


def test_users_see_a_task_until_a_day_after_its_end() -> None:
    done = replace(begun(), state=TaskState.SUCCEEDED, end_time_us=NOW)
    assert is_shown(done, NOW + RETENTION_US - 1)
    assert not is_shown(done, NOW + RETENTION_US)
    assert is_shown(NEW, NOW + 9 * RETENTION_US)
    assert not is_shown(void_task(ID, NOW), NOW)


def test_a_day_is_kept_until_its_last_task_is_not_shown_any_more() -> None:
    day = day_of_task(ID)
    assert day == 20_000
    # An id may be a quarter of an hour older than the start of its task.
    last_start = (day + 1) * DAY_US + 900_000_000
    assert drop_time_of_day(day) == last_start + RUN_US_MAX + RETENTION_US


@pytest.mark.parametrize("text", ["", "x", ID.upper().replace("7", "A", 1), ID[:-1], ID + "0"])
def test_what_is_no_uuid_is_no_id(text: str) -> None:
    assert day_of_task(text) is None
    with pytest.raises(TarnError) as caught:
        check_form(text)
    assert caught.value.reason is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize(("off_s", "is_valid"), [(0, True), (899, True), (901, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_new_id_is_of_now(off_s: int, is_valid: bool, sign: int) -> None:
    now = NOW + sign * off_s * 1_000_000
    if is_valid:
        assert check_task_id(ID, now) == ID
        return
    with pytest.raises(TarnError) as caught:
        check_task_id(ID, now)
    assert caught.value.reason is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("late_us", "leases"), [(0, 1), (1, 1), (LEASE_US - 1, 1), (LEASE_US, 2), (100 * LEASE_US, 101)]
)
def test_the_next_look_is_later_than_now_and_at_most_one_lease(late_us: int, leases: int) -> None:
    """The drop list does not read the past again, so a look there would be lost."""
    at = next_look(NOW, NOW + late_us)
    assert at == NOW + leases * LEASE_US
    assert NOW + late_us < at <= NOW + late_us + LEASE_US


def test_a_clock_that_runs_behind_registers_the_same_look() -> None:
    assert next_look(NOW, NOW - 3_000_000) == NOW + LEASE_US


def test_a_start_is_of_one_user_and_one_request() -> None:
    assert NEW.start == Start(UserId("ann"), b"u", "merge", b"d")
    assert replace(NEW, request=b"other commits", epoch=3).start == NEW.start
    assert replace(NEW, digest=b"e").start != NEW.start
    assert replace(NEW, user_uid=b"v").start != NEW.start


def test_a_failure_keeps_the_whole_error() -> None:
    error = TarnError(Kind.CONFLICT, Reason.REF_MOVED, "text", b="2", a="1")
    expected = TaskFailure(Kind.CONFLICT, Reason.REF_MOVED, "text", (("a", "1"), ("b", "2")))
    assert TaskFailure.of(error) == expected


def test_a_quota_counts_each_start_once_and_forgets_ended_tasks() -> None:
    first, second = TaskId("1" * 32), TaskId("2" * 32)
    one = Quota().with_start(first, (), 0)
    assert one == Quota(1, (first,))
    assert one.with_start(first, (), OPEN_MAX) is one
    assert one.with_start(second, (), 0) == Quota(2, (first, second))
    assert one.with_start(second, {first}, 0) == Quota(2, (second,))


def test_a_quota_refuses_a_start_beyond_its_limits() -> None:
    ids = tuple(TaskId(f"{number:032}") for number in range(OPEN_MAX))
    full = Quota(OPEN_MAX, ids)
    with pytest.raises(TarnError) as caught:
        full.with_start(ID, (), 0)
    assert (caught.value.kind, caught.value.reason) == (Kind.EXHAUSTED, Reason.OVERLOADED)
    assert full.with_start(ID, ids[:1], 0).open_ids == (*ids[1:], ID)
    with pytest.raises(TarnError):
        full.with_start(ID, ids[:1], 1)
    with pytest.raises(TarnError) as caught:
        Quota(STARTS_MAX).with_start(ID, (), 0)
    assert caught.value.reason is Reason.OVERLOADED
    assert Quota(STARTS_MAX - 1).with_start(ID, (), 0).count == STARTS_MAX


@pytest.mark.parametrize(
    ("after_midnight_s", "days"),
    [(0, (-2, -1, 0)), (899, (-2, -1, 0)), (900, (-1, 0)), (85_499, (-1, 0)), (85_500, (-1, 0, 1))],
)
def test_open_tasks_are_of_the_last_day(after_midnight_s: int, days: tuple[int, ...]) -> None:
    """An id may be 15 minutes off, and a task runs for a day."""
    now_us = 20_000 * DAY_US + after_midnight_s * 1_000_000
    assert tuple(day - 20_000 for day in days_of_open_tasks(now_us)) == days
