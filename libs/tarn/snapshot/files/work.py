"""Concurrency, rate limit and progress of a snapshot or a transfer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tarn.core.clock import Clock

__all__ = ["TransferOptions", "RateLimiter", "TransferProgress", "Report"]


@dataclass(slots=True)
class TransferProgress:
    """The progress of a pass over the data; updated while it runs.

    Attributes:
        phase: the work of the pass, for people.
        units: number of finished units of work.
        units_total: number of all units.
        ranges: number of ranges read.
        changed: number of ranges that were missing or different, and were written.
        rows: number of rows in the ranges read.
        size_bytes: size of the keys and values of these rows.
    """

    phase: str
    units: int = 0
    units_total: int = 0
    ranges: int = 0
    changed: int = 0
    rows: int = 0
    size_bytes: int = 0

    def add(self, rows: int, size_bytes: int, *, changed: bool) -> None:
        """Counts one more range."""
        self.ranges += 1
        self.rows += rows
        self.size_bytes += size_bytes
        self.changed += changed


Report = Callable[[TransferProgress], None]
"""Called after every range."""


class RateLimiter:
    """Limits work to a number of rows per second.

    Args:
        rows_per_second: None for no limit.
    """

    def __init__(self, clock: Clock, rows_per_second: int | None = None) -> None:
        self._clock = clock
        self._rows_per_second = rows_per_second
        self._free_at = clock.monotonic()

    async def take(self, rows: int) -> None:
        """Waits until this many more rows are within the limit."""
        if self._rows_per_second is None:
            return
        now = self._clock.monotonic()
        start = max(now, self._free_at)
        self._free_at = start + rows / self._rows_per_second
        if start > now:
            await self._clock.sleep(start - now)


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """The resources that a transfer may use.

    Attributes:
        clock: for pauses and times.
        rate_limiter: limits reading of the source.
        concurrency: units processed concurrently; each holds about 30 MiB at most.
        report: see `Report`.
    """

    clock: Clock
    rate_limiter: RateLimiter
    concurrency: int = 4
    report: Report = lambda _progress: None
