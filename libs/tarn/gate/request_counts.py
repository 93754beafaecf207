"""Reports how many requests the endpoints of this process answered, by month (docs/operate/usage.md).

Nothing is added for a request: the counts are those of the metrics. Once a minute, and at the end, the process tells
graveler its total of the month. A total may be told twice, because a lost answer does not tell whether it was counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import TarnError
from tarn.gate.service_calls import ServiceCalls
from tarn.kv.request_count_records import month_of
from tarn.telemetry.meters import Meters

__all__ = ["REPORT_SECONDS", "RequestCounts"]

REPORT_SECONDS: Final = 60.0
_SOURCE_SECONDS: Final = 3600.0
"""A source that graveler may have taken for ended (`ENDED_AFTER_US`) is not used any more."""
_CALL_SECONDS: Final = 10.0
_METRICS: Final = ("gateway.requests", "api.requests")
_NOT_COUNTED: Final = "healthCheck"
"""A load balancer asks again and again, and uses nothing."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Month:
    """What one source tells of one month.

    Attributes:
        source: its name.
        told_at: when graveler knew its total last, or when it was begun, in monotonic seconds.
        total: requests.
        told: of those, the ones that graveler is known to know.
    """

    source: str
    told_at: float
    total: int = 0
    told: int = 0


class RequestCounts:
    """Counts for all endpoints of a process.

    Args:
        meters: count the requests.
        graveler: keeps the counts.
        calls: makes the calls of this service.
        clock: tells the month.
        ids: names sources.
        metrics: names of the counters of requests.
    """

    def __init__(
        self,
        meters: Meters,
        graveler: GravelerClient,
        calls: ServiceCalls,
        clock: Clock,
        ids: IdSource,
        metrics: Iterable[str] = _METRICS,
    ) -> None:
        self._meters = meters
        self._graveler = graveler
        self._calls = calls
        self._clock = clock
        self._ids = ids
        self._metrics = tuple(metrics)
        self._seen = self._count()
        self._months: dict[str, _Month] = {}
        self._flushing = asyncio.Lock()

    def _count(self) -> int:
        return sum(self._meters.total(name, _NOT_COUNTED) for name in self._metrics)

    async def run(self) -> None:
        """Reports again and again, until it is cancelled."""
        while True:
            await self._clock.sleep(REPORT_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Reports what was counted since the last report. What graveler does not take is reported with the next."""
        async with self._flushing:
            now = self._clock.monotonic()
            month = month_of(self._clock.now_us())
            count = self._count()
            current = self._months.get(month)
            if current is None:
                current = self._months[month] = _Month(self._ids.nonce().hex(), now)
            current.total += count - self._seen
            self._seen = count
            for name, each in list(self._months.items()):
                if each.total > each.told:
                    await self._report(name, each, now)
                if name != month and each.total == each.told:
                    del self._months[name]

    async def drain(self, timeout_s: float) -> None:
        """Reports the last requests, for at most `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.flush()

    async def _report(self, month: str, each: _Month, now: float) -> None:
        if now - each.told_at > _SOURCE_SECONDS:
            each.source, each.total, each.told = self._ids.nonce().hex(), each.total - each.told, 0
            each.told_at = now
        total = each.total
        try:
            call = await self._calls.call(_CALL_SECONDS)
            await self._graveler.report_requests(call, month, each.source, total)
        except TarnError as error:
            self._calls.failed(error)
            _log.warning(
                "requests not reported; they are with the next report",
                reason=error.reason,
                error=error.message,
            )
        else:
            each.told, each.told_at = total, now
