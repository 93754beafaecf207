"""How a transfer goes about its work: so much at once, so fast at most, and telling how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tarn.core.clock import Clock

__all__ = ["TransferOptions", "RateLimiter", "Progress", "Report"]


@dataclass(slots=True)
class Progress:
    """How far a pass over the data is; grows while it runs.

    Attributes:
        phase: what it does, for people.
        units: pieces of work that are done.
        units_total: of so many.
        ranges: looked at.
        changed: ranges that were written, because they were missing or different.
        rows: in the ranges looked at.
        size_bytes: keys and values of these rows.
    """

    phase: str
    units: int = 0
    units_total: int = 0
    ranges: int = 0
    changed: int = 0
    rows: int = 0
    size_bytes: int = 0

    def add(self, rows: int, size_bytes: int, *, changed: bool) -> None:
        """One more range."""
        self.ranges += 1
        self.rows += rows
        self.size_bytes += size_bytes
        self.changed += changed


Report = Callable[[Progress], None]
"""Is told after every range."""


class RateLimiter:
    """Holds work back to a number of rows per second.

    Args:
        rows_per_second: None for as fast as it goes.
    """

    def __init__(self, clock: Clock, rows_per_second: int | None = None) -> None:
        self._clock = clock
        self._rows_per_second = rows_per_second
        self._free_at = clock.monotonic()

    async def take(self, rows: int) -> None:
        """Waits until so many rows more are within the bound."""
        if self._rows_per_second is None:
            return
        now = self._clock.monotonic()
        start = max(now, self._free_at)
        self._free_at = start + rows / self._rows_per_second
        if start > now:
            await self._clock.sleep(start - now)


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """What a transfer may use.

    Attributes:
        clock: for pauses and times.
        rate_limiter: of reading the source.
        concurrency: pieces of work at once; each holds some 30 MiB at most.
        report: see `Report`.
    """

    clock: Clock
    rate_limiter: RateLimiter
    concurrency: int = 4
    report: Report = lambda _progress: None
