"""The timestamp rule of plain rows."""

from __future__ import annotations

import pytest
from tests.support.clock import ManualClock

from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra.rows.timestamps import SEEN_AHEAD_US_MAX, Timestamps

HOUR_US = 3_600_000_000


def test_a_write_is_now_if_nothing_was_seen() -> None:
    clock = ManualClock()
    assert Timestamps(clock).after(None) == clock.now_us()
    assert Timestamps(clock).after(clock.now_us() - 5) == clock.now_us()


def test_a_lagging_clock_writes_above_what_it_sees() -> None:
    clock = ManualClock()
    ahead = clock.now_us() + 3_000_000
    assert Timestamps(clock).after(ahead) == ahead + 1


def test_later_calls_get_greater_timestamps_also_when_the_clock_goes_back() -> None:
    clock = ManualClock()
    timestamps = Timestamps(clock)
    first = timestamps.after(None)
    second = timestamps.after(None)
    clock.advance(-5)
    assert [second, timestamps.after(None)] == [first + 1, first + 2]


def test_the_timestamps_seen_by_one_row_do_not_affect_others() -> None:
    """A clock that is ahead affects only the rows that it wrote."""
    clock = ManualClock()
    timestamps = Timestamps(clock)
    timestamps.after(clock.now_us() + HOUR_US - 1)
    assert timestamps.after(None) == clock.now_us() + 1


def test_a_row_from_far_ahead_is_not_written_over() -> None:
    clock = ManualClock()
    timestamps = Timestamps(clock)
    limit = clock.now_us() + SEEN_AHEAD_US_MAX
    assert timestamps.after(limit) == limit + 1
    with pytest.raises(TarnError, match="3600 s ahead of this machine's clock") as caught:
        timestamps.after(limit + 1)
    assert caught.value.kind is Kind.FAILED_PRECONDITION


def test_a_drop_is_above_every_write_that_is_allowed() -> None:
    clock = ManualClock()
    timestamps = Timestamps(clock)
    newest = timestamps.after(clock.now_us() + SEEN_AHEAD_US_MAX)
    assert timestamps.drop() > newest + 22 * HOUR_US
