"""Rates of requests and bytes per repository and per user: token buckets in each process (docs/design/quotas.md).

The limits are those of graveler's quotas, read again every few seconds; a failed read leaves the last ones in force.
Each process enforces its share of a rate, for all of its endpoints together. Without any rate, a request costs one
comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

import structlog

from tarn.aio.bounded_map import BoundedMap
from tarn.client.graveler import GravelerClient
from tarn.client.quotas import limits_of
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.core.quota import NO_LIMITS, Limits, QuotaKind, TokenBucket
from tarn.gate.service_calls import ServiceCalls

__all__ = ["RateLimits", "RateRefusal", "retry_after_s"]

REFRESH_SECONDS: Final = 5.0
_CALL_SECONDS: Final = 10.0
_PAGE: Final = 1000
_BUCKETS_MAX: Final = 10_000
_RETRY_MAX_S: Final = 60

_Name = tuple[QuotaKind, str]

_log = structlog.get_logger()


def retry_after_s(wait_s: float) -> int:
    """Returns what a client is told to wait, in whole seconds: one at least, a minute at most."""
    return min(_RETRY_MAX_S, max(1, ceil(wait_s)))


@dataclass(frozen=True, slots=True)
class RateRefusal:
    """Why a rate refuses a request.

    Attributes:
        kind: of the quota.
        name: of its user or repository.
        limit: one of `RATES`.
        rate: what it allows in a second.
        wait_s: when to try again.
    """

    kind: QuotaKind
    name: str
    limit: str
    rate: int
    wait_s: float

    @property
    def text(self) -> str:
        """What the client is told."""
        retry_s = retry_after_s(self.wait_s)
        return f"{self.kind} {self.name} may have {self.rate} {self.limit}; try again after {retry_s} s."


class _Buckets:
    """The two buckets of one repository or user; None: no limit."""

    __slots__ = ("limits", "requests", "transfer")

    def __init__(self, limits: Limits, share: float, now: float) -> None:
        self.limits = limits
        self.requests = _bucket(limits.requests_per_second * share, now)
        self.transfer = _bucket(limits.bytes_per_second * share, now)


def _bucket(rate: float, now: float) -> TokenBucket | None:
    return TokenBucket(rate, now) if rate else None


class RateLimits:
    """The rates that this process enforces.

    Args:
        graveler: tells the limits.
        calls: makes the calls of this service.
        clock: measures time.
        gateways: processes among which each rate is divided.
    """

    def __init__(
        self, graveler: GravelerClient, calls: ServiceCalls, clock: Clock, *, gateways: int
    ) -> None:
        self._graveler = graveler
        self._calls = calls
        self._clock = clock
        self._share = 1 / gateways
        self._known: dict[_Name, Limits] = {}
        self._defaults = {QuotaKind.REPOSITORY: NO_LIMITS, QuotaKind.USER: NO_LIMITS}
        # A bucket that is pushed out is full when it comes back.
        self._buckets: BoundedMap[_Name, _Buckets] = BoundedMap(_BUCKETS_MAX)
        self.is_on = False

    def take(self, user_id: str, repository_id: str) -> RateRefusal | None:
        """Takes a request from the rates of its user and its repository; returns why nothing was taken, if so.

        Args:
            user_id: the caller.
            repository_id: the bucket; empty: none.
        """
        if not self.is_on:
            return None
        now = self._clock.monotonic()
        names = self._names(user_id, repository_id)
        of_names = [(name, self._buckets_of(name, now)) for name in names]
        for (kind, name), found in of_names:
            if found is None:
                continue
            if found.requests is not None and (wait := found.requests.wait_seconds(now, 1)):
                rate = found.limits.requests_per_second
                return RateRefusal(kind, name, "requests_per_second", rate, wait)
            if found.transfer is not None and (wait := found.transfer.wait_seconds(now, 1)):
                rate = found.limits.bytes_per_second
                return RateRefusal(kind, name, "bytes_per_second", rate, wait)
        for _, found in of_names:
            if found is not None and found.requests is not None:
                found.requests.take(now, 1)
        return None

    def charge(self, user_id: str, repository_id: str, count: int) -> None:
        """Takes the bytes of a request and its answer from the rates, after they were moved."""
        if not self.is_on or not count:
            return
        now = self._clock.monotonic()
        for name in self._names(user_id, repository_id):
            found = self._buckets_of(name, now)
            if found is not None and found.transfer is not None:
                found.transfer.take(now, count)

    @staticmethod
    def _names(user_id: str, repository_id: str) -> list[_Name]:
        names = [(QuotaKind.USER, user_id), (QuotaKind.REPOSITORY, repository_id)]
        return [name for name in names if name[1]]

    def _buckets_of(self, name: _Name, now: float) -> _Buckets | None:
        limits = self._known.get(name, self._defaults[name[0]])
        if not (limits.requests_per_second or limits.bytes_per_second):
            return None
        found = self._buckets.get(name)
        if found is None or found.limits != limits:
            found = _Buckets(limits, self._share, now)
            self._buckets.put(name, found)
        return found

    async def run(self) -> None:
        """Reads the limits again and again, until it is cancelled."""
        while True:
            try:
                await self.refresh()
            except TarnError as error:
                self._calls.failed(error)
                _log.warning(
                    "rates not read; the last ones stay in force",
                    reason=error.reason,
                    error=error.message,
                )
            await self._clock.sleep(REFRESH_SECONDS)

    async def refresh(self) -> None:
        """Reads all limits.

        Raises:
            TarnError: graveler or auth gives no answer.
        """
        known: dict[_Name, Limits] = {}
        token = ""
        while True:
            call = await self._calls.call(_CALL_SECONDS)
            page = await self._graveler.list_quotas(call, page_size=_PAGE, page_token=token)
            for quota in page.quotas:
                if quota.kind in set(QuotaKind):  # else it is of a later version
                    known[QuotaKind(quota.kind), quota.name] = limits_of(quota.limits)
            token = page.next_page_token
            if not token:
                break
        self._known = known
        self._defaults = {
            QuotaKind.REPOSITORY: limits_of(page.repository_default),
            QuotaKind.USER: limits_of(page.user_default),
        }
        all_limits = [*known.values(), *self._defaults.values()]
        self.is_on = any(each.requests_per_second or each.bytes_per_second for each in all_limits)
