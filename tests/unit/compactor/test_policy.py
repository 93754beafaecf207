from dataclasses import replace
from math import inf

import pytest

from tarn_compactor.policy import (
    BranchView,
    History,
    Thresholds,
    excess,
    pause_after_failures,
    wait,
)

LIMITS = Thresholds(
    tombstones=100,
    tombstone_share=0.1,
    rows=10_000,
    size_bytes=1_000_000,
    sealed_tokens=6,
    age_s=3600.0,
    interval_s=10.0,
    commit_interval_s=30.0,
)
DUE = BranchView(rows=100, tombstones=100)
NEVER = History()


@pytest.mark.parametrize(
    ("view", "named"),
    [
        (BranchView(), ""),
        (BranchView(rows=99, tombstones=99), ""),
        (BranchView(rows=100, tombstones=100), "100 tombstones"),
        (BranchView(rows=1000, tombstones=100), "100 tombstones, 10 %"),
        (BranchView(rows=1001, tombstones=100), ""),
        (
            BranchView(rows=1001, tombstones=100, listed_rows_read=20, listed_rows_returned=10),
            "100 tombstones",
        ),
        (BranchView(rows=10, tombstones=10, listed_rows_read=50, listed_rows_returned=1), ""),
        (BranchView(rows=9_999), ""),
        (BranchView(rows=10_000), "10000 rows"),
        (BranchView(rows=1, size_bytes=999_999), ""),
        (BranchView(rows=1, size_bytes=1_000_000), "bytes"),
        (BranchView(sealed_tokens=5), ""),
        (BranchView(sealed_tokens=6), "6 sealed tokens"),
        (BranchView(rows=1000, age_s=3599.0), ""),
        (BranchView(rows=1000, age_s=3600.0), "1000 rows for 3600 s"),
        (BranchView(rows=999, age_s=3600.0), ""),
        (BranchView(rows=10, tombstones=10, age_s=3600.0), "10 tombstones"),
        (BranchView(age_s=1e9), ""),
    ],
)
def test_the_threshold_that_a_branch_exceeds_is_named(view: BranchView, named: str) -> None:
    found = excess(view, LIMITS)
    assert bool(found) == bool(named)
    assert named in found


def test_a_branch_that_is_due_is_compacted_at_once() -> None:
    assert wait(DUE, NEVER, LIMITS) == (0.0, "")


def test_an_old_branch_with_more_rows_than_were_counted_is_due() -> None:
    """Its tombstones may be behind the rows that were counted, and the thresholds may be greater than the limit."""
    large = Thresholds(rows=10**9, size_bytes=10**12)
    view = BranchView(rows=100_000, is_truncated=True, age_s=large.age_s)
    assert excess(view, large) == "more than 100000 rows for 3600 s"
    assert not excess(replace(view, age_s=large.age_s - 1), large)
    assert not excess(replace(view, is_truncated=False), large)


def test_a_branch_rests_after_a_compaction() -> None:
    seconds, why = wait(DUE, History(since_end_s=4.0), LIMITS)
    assert (seconds, why) == (6.0, "compacted just now")
    assert wait(DUE, History(since_end_s=10.0), LIMITS)[0] == 0.0


def test_a_branch_rests_longer_after_a_long_compaction() -> None:
    assert wait(DUE, History(since_end_s=40.0, last_seconds=20.0), LIMITS)[0] == 60.0


def test_a_branch_with_two_commits_in_a_row_is_left_alone() -> None:
    busy = replace(DUE, since_commit_s=5.0, commit_interval_s=30.0)
    assert wait(busy, NEVER, LIMITS) == (55.0, "committed all the time")
    assert wait(replace(busy, since_commit_s=60.0), NEVER, LIMITS)[0] == 0.0


def test_one_commit_does_not_delay_a_compaction() -> None:
    assert wait(replace(DUE, since_commit_s=0.1), NEVER, LIMITS)[0] == 0.0
    rare = replace(DUE, since_commit_s=0.1, commit_interval_s=31.0)
    assert wait(rare, NEVER, LIMITS)[0] == 0.0


def test_commits_that_leave_sealed_tokens_behind_do_not_delay_it() -> None:
    failing = replace(DUE, sealed_tokens=6, since_commit_s=1.0, commit_interval_s=5.0)
    assert wait(failing, NEVER, LIMITS)[0] == 0.0


def test_pauses_after_failures_double_up_to_ten_minutes() -> None:
    pauses = [pause_after_failures(number) for number in (0, 1, 2, 3, 8, 10_000)]
    assert pauses == [0.0, 5.0, 10.0, 20.0, 600.0, 600.0]
    seconds, why = wait(DUE, History(since_end_s=11.0, failures=4), LIMITS)
    assert (seconds, why) == (29.0, "failed")


def test_nothing_is_known_of_a_new_branch() -> None:
    assert wait(BranchView(), History(since_end_s=inf), LIMITS) == (0.0, "")
