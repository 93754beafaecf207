"""When a branch expires, is warned about, and is deleted."""

from __future__ import annotations

import pytest

from tarn.core.branch_expiry import GRACE_US, ExpiryState, expiry_in
from tarn.core.errors import Reason, TarnError

SECOND = 1_000_000
DAY = 86_400 * SECOND
NOW = 1_790_000_000 * SECOND


@pytest.mark.parametrize(
    ("ttl", "warning"),
    [(100 * DAY, DAY), (10 * DAY, DAY), (5 * DAY, DAY // 2), (100 * SECOND, 10 * SECOND)],
)
def test_a_warning_comes_a_day_before_the_end_or_in_the_last_tenth(ttl: int, warning: int) -> None:
    expiry = expiry_in(ttl, NOW)
    end = NOW + ttl
    assert expiry.delete_time_us == end + GRACE_US == end + DAY
    states = {
        NOW: ExpiryState.ACTIVE,
        end - warning - 1: ExpiryState.ACTIVE,
        end - warning: ExpiryState.SOON,
        end - 1: ExpiryState.SOON,
        end: ExpiryState.EXPIRED,
        end + 10 * DAY: ExpiryState.EXPIRED,
    }
    assert {time: expiry.state(time) for time in states} == states


@pytest.mark.parametrize("ttl", [-DAY, 0, 60 * SECOND - 1, 3_653 * DAY + 1])
def test_a_time_that_is_too_short_or_too_long_is_refused(ttl: int) -> None:
    with pytest.raises(TarnError) as raised:
        expiry_in(ttl, NOW)
    assert raised.value.reason is Reason.INVALID_ARGUMENT
