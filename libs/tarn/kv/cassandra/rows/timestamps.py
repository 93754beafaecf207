"""The timestamps of plain rows: `max(now, seen + 1)`, so that a lagging clock loses no write.

Cassandra lets the greatest timestamp win, and clients' clocks differ. A write therefore reads the
timestamp that the row has, at quorum, and goes above it (docs/design/timestamps.md; all clock errors are
tried in `tests/models/timestamp_model.py`). Two writers at the same time may tie: the greater value then wins, on
every replica alike, which is one of the orders that concurrent writes may have.
"""

from __future__ import annotations

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["DROP_AHEAD_US", "SEEN_AHEAD_US_MAX", "Timestamps"]

SEEN_AHEAD_US_MAX = 3_600_000_000
"""A row from further ahead is not written over: one broken clock must not push a row past the
timestamp that its partition is dropped with."""

DROP_AHEAD_US = 86_400_000_000
"""A drop is that far ahead, so that it also hides writes that come late, and of clocks ahead."""


class Timestamps:
    """Microseconds since the epoch; in this process a later call gets a greater one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_us = 0

    def after(self, seen_us: int | None) -> int:
        """The timestamp of a write to rows of which the newest has `seen_us` (None: there is none).

        Raises:
            TarnError: FAILED_PRECONDITION: the row is more than an hour ahead of our clock.
        """
        now_us = self._clock.now_us()
        self._last_us = max(now_us, self._last_us + 1)
        if seen_us is None:
            return self._last_us
        if seen_us - now_us > SEEN_AHEAD_US_MAX:
            text = (
                f"a row was written {(seen_us - now_us) / 1e6:.0f} s ahead of this machine's clock"
            )
            raise TarnError(
                Kind.FAILED_PRECONDITION,
                Reason.UNAVAILABLE,
                f"{text}; set right whichever clock is wrong",
                seen_us=str(seen_us),
                now_us=str(now_us),
            )
        return max(self._last_us, seen_us + 1)

    def drop(self) -> int:
        """The timestamp that a partition is dropped with."""
        return self._clock.now_us() + DROP_AHEAD_US
