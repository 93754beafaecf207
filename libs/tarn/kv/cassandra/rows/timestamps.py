"""Timestamps of plain rows: `max(now, seen + 1)`, so that no write is lost because a clock lags.

In Cassandra the greatest timestamp wins, and the clocks of clients differ. So a write first reads the row's
timestamp at quorum and uses a greater one (docs/design/timestamps.md; `tests/models/timestamp_model.py` tries
all clock errors). Two concurrent writers may choose the same timestamp. Then the greater value wins, on every
replica alike, which is one of the orders that concurrent writes may have.
"""

from __future__ import annotations

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["DROP_AHEAD_US", "SEEN_AHEAD_US_MAX", "Timestamps"]

SEEN_AHEAD_US_MAX = 3_600_000_000
"""A row whose timestamp is further ahead of our clock is not overwritten. Otherwise one broken clock could
push a row past the timestamp with which its partition is dropped."""

DROP_AHEAD_US = 86_400_000_000
"""A drop's timestamp is this far ahead of now, so it also covers late writes and clocks that are ahead."""


class Timestamps:
    """Issues timestamps in microseconds since the epoch; within this process they strictly increase."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_us = 0

    def after(self, seen_us: int | None) -> int:
        """The timestamp of a write to rows whose newest timestamp is `seen_us` (None: no row exists).

        Raises:
            TarnError: FAILED_PRECONDITION: the row's timestamp is more than an hour ahead of our clock.
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
                f"{text}; correct the clock that is wrong",
                seen_us=str(seen_us),
                now_us=str(now_us),
            )
        return max(self._last_us, seen_us + 1)

    def drop(self) -> int:
        """The timestamp with which a partition is dropped."""
        return self._clock.now_us() + DROP_AHEAD_US
