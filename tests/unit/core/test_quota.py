"""Token buckets: what they admit at once, how long they make a caller wait, and how they bear a debt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.quota import TokenBucket


def test_a_second_of_the_rate_passes_at_once_and_then_as_much_as_the_rate_allows() -> None:
    bucket = TokenBucket(10, now=0)
    for _ in range(10):
        assert not bucket.wait_seconds(0, 1)
        bucket.take(0, 1)
    assert bucket.wait_seconds(0, 1) == pytest.approx(0.1)
    assert not bucket.wait_seconds(0.1, 1)


def test_a_rate_below_one_per_second_admits_one_at_a_time() -> None:
    bucket = TokenBucket(0.5, now=0)
    bucket.take(0, 1)
    assert bucket.wait_seconds(0, 1) == pytest.approx(2)
    assert not bucket.wait_seconds(2, 1)


def test_an_hour_of_rest_saves_one_second_of_the_rate() -> None:
    bucket = TokenBucket(10, now=0)
    bucket.take(3600, 10)
    assert bucket.wait_seconds(3600, 1) == pytest.approx(0.1)


def test_a_debt_is_paid_before_the_next() -> None:
    bucket = TokenBucket(100, now=0)
    bucket.take(0, 1_100)
    assert bucket.wait_seconds(0, 1) == pytest.approx(10.01)


@given(
    st.floats(0.1, 100),
    st.lists(st.floats(0, 5), max_size=200),
)
def test_in_any_time_no_more_than_the_rate_and_one_second_of_it_passes(
    rate: float, pauses: list[float]
) -> None:
    bucket = TokenBucket(rate, now=0)
    now, passed = 0.0, 0
    least = 0.0  # of `passed - rate * now` at the starts of all spans of time
    for pause in pauses:
        now += pause
        least = min(least, passed - rate * now)
        if not bucket.wait_seconds(now, 1):
            bucket.take(now, 1)
            passed += 1
        assert passed - rate * now - least <= max(rate, 1) + 1e-6
