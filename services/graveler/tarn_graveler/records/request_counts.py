"""The counts of requests by month, which gateways and REST endpoints report (docs/operate/usage.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import Feature, FeatureGate
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv
from tarn.kv.register import Register
from tarn.kv.request_count_records import COUNT_MAX, MonthCount, check_month, check_source, month_of

__all__ = ["MONTHS_MAX", "RequestCountRecords"]

MONTHS_MAX: Final = 240
"""Months that are told, the latest ones: twenty years."""

_EARLIER: Final = timedelta(days=40)
_LATER: Final = timedelta(days=2)


class RequestCountRecords:
    """Reads and changes the rows."""

    def __init__(self, kv: Kv, keys: InstallationKeys, clock: Clock, features: FeatureGate) -> None:
        self._kv = kv
        self._keys = keys
        self._clock = clock
        self._features = features

    @property
    def installation_id(self) -> str:
        """Whose requests are counted."""
        return self._keys.installation_id

    async def report(self, month: str, source: str, total: int) -> None:
        """Takes the total of a source, unless a greater one is known. May be repeated.

        Raises:
            TarnError: INVALID: a malformed value, or a month that is not near; EXHAUSTED: too many sources;
                FEATURE_LEVEL; errors of the store.
        """
        self._features.require(Feature.REQUEST_COUNTS)
        check_source(source)
        now_us = self._clock.now_us()
        first, last = month_of(now_us, -_EARLIER), month_of(now_us, _LATER)
        if not first <= check_month(month) <= last:
            text = f"month {month} is not between {first} and {last}: the clocks of the processes differ"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="month")
        if not 0 <= total <= COUNT_MAX:
            text = f"total {total} is not 0 to {COUNT_MAX}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="total")
        row = Register(
            self._kv,
            self._keys.request_counts,
            month.encode(),
            MonthCount.decode,
            MonthCount.encode,
            f"the requests of {month}",
        )
        await row.change(lambda found: found.told(source, total, now_us))

    async def months(self) -> list[tuple[str, int]]:
        """Returns month and requests, the earliest first, of the last `MONTHS_MAX` months that have any.

        Raises:
            TarnError: CORRUPT; errors of the store.
        """
        year, month = month_of(self._clock.now_us()).split("-")
        first = f"{int(year) - MONTHS_MAX // 12}-{month}".encode()
        rows = await self._kv.scan(self._keys.request_counts, first, None, MONTHS_MAX + 2)
        return [(key.decode(), MonthCount.decode(value).total) for key, value in rows[-MONTHS_MAX:]]
