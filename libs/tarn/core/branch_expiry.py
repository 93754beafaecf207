"""The end of a branch that lives for a limited time: a pure decision (docs/operate/retention.md).

A branch with a time to live *expires* at its end. Then it has a day of *grace*, in which everything works as before and
every user who may delete it can prolong it. After the grace it is deleted, as by `DeleteBranch`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from tarn.core.clock import DAY_US
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["GRACE_US", "BranchExpiry", "ExpiryState", "expiry_in"]

_SECOND_US: Final = 1_000_000
GRACE_US: Final = DAY_US
"""How long after its end a branch is deleted."""
_WARNING_US_MAX: Final = DAY_US
_WARNING_PART: Final = 10
_TTL_US_MIN: Final = 60 * _SECOND_US
_TTL_US_MAX: Final = 3_653 * DAY_US


class ExpiryState(enum.Enum):
    """How near the end of a branch is."""

    ACTIVE = "active"
    SOON = "expires soon"
    """The warning: less than a day is left, or less than a tenth of the time to live if that is shorter."""
    EXPIRED = "expired"
    """The grace has begun."""


@dataclass(frozen=True, slots=True)
class BranchExpiry:
    """When a branch expires. All times are microseconds since the epoch.

    The end of the grace is stored, so that all replicas delete at the same time, and none before the time that users
    were shown.

    Attributes:
        set_time_us: when this expiry was set.
        expire_time_us: the end of the time to live.
        delete_time_us: the end of the grace.
    """

    set_time_us: int
    expire_time_us: int
    delete_time_us: int
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    def state(self, now_us: int) -> ExpiryState:
        """Returns how near the end is at a time."""
        if now_us >= self.expire_time_us:
            return ExpiryState.EXPIRED
        tenth_us = (self.expire_time_us - self.set_time_us) // _WARNING_PART
        if now_us >= self.expire_time_us - min(_WARNING_US_MAX, tenth_us):
            return ExpiryState.SOON
        return ExpiryState.ACTIVE


def expiry_in(ttl_us: int, now_us: int) -> BranchExpiry:
    """Returns the expiry of a branch that lives for `ttl_us` microseconds from now.

    Raises:
        TarnError: INVALID: less than a minute, or more than ten years.
    """
    if not _TTL_US_MIN <= ttl_us <= _TTL_US_MAX:
        text = f"a branch expires after one minute to ten years, not after {ttl_us // _SECOND_US} s"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="time_to_live")
    expire_us = now_us + ttl_us
    return BranchExpiry(now_us, expire_us, expire_us + GRACE_US)
