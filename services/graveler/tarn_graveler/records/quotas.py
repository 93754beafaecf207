"""The limits that were set for repositories and users, as one small snapshot of all of them in each replica.

A snapshot costs a request one look-up in a dict, and without quotas one comparison. It is read again every
`REFRESH_SECONDS`; a failed read leaves the last one in force, because limits must not stop an installation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.quota import NO_LIMITS, Limits, Quota, QuotaKind
from tarn.kv.keys import InstallationKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv
from tarn.kv.quota_records import decode_quota, encode_limits
from tarn.kv.register import Register

__all__ = ["REFRESH_SECONDS", "QuotaDefaults", "QuotaRecords"]

REFRESH_SECONDS = 5.0
QUOTAS_MAX = 10_000
"""Most quotas that can be set: each replica and each gateway keeps all of them."""
_PAGE = 1_000

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class QuotaDefaults:
    """The limits of repositories and users for which none were set."""

    repository: Limits = field(default_factory=Limits)
    user: Limits = field(default_factory=Limits)

    def of(self, kind: QuotaKind) -> Limits:
        """Returns the limits of a kind."""
        return self.repository if kind is QuotaKind.REPOSITORY else self.user


class QuotaRecords:
    """Reads and changes quotas, and keeps a snapshot of them."""

    def __init__(
        self, kv: Kv, keys: InstallationKeys, clock: Clock, defaults: QuotaDefaults
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._clock = clock
        self.defaults = defaults
        self._known: dict[tuple[QuotaKind, str], Limits] = {}

    def of_repository(self, repository_id: str) -> Limits:
        """Returns the limits of a repository, at most `REFRESH_SECONDS` and one read old."""
        if not self._known:
            return self.defaults.repository
        return self._known.get((QuotaKind.REPOSITORY, repository_id), self.defaults.repository)

    async def run(self) -> None:
        """Reads all quotas again and again, until it is cancelled."""
        while True:
            await self._clock.sleep(REFRESH_SECONDS)
            try:
                await self.load()
            except TarnError as error:
                _log.warning(
                    "quotas not read; the last ones stay in force",
                    reason=error.reason,
                    error=error.message,
                )

    async def load(self) -> list[Quota]:
        """Returns all quotas that are set, by kind and name, and makes them the snapshot.

        Raises:
            TarnError: CORRUPT: a record is damaged; errors of the store.
        """
        start = self._keys.QUOTAS
        rows = rows_of(self._kv, self._keys.graveler, start, after_prefix(start), _PAGE)
        found = [decode_quota(key, value) async for key, value in rows]
        self._known = {(each.kind, each.name): each.limits for each in found}
        return found

    async def get(self, kind: QuotaKind, name: str) -> Limits:
        """Returns the limits that were set, by a read that is sent now; `NO_LIMITS` if none were."""
        return await self._register(kind, name).read()

    async def set(self, quota: Quota) -> None:
        """Sets or, without limits, removes a quota. May be repeated; of two at a time, one wins.

        Raises:
            TarnError: EXHAUSTED: too many quotas are set. UNAVAILABLE. OUTCOME_UNKNOWN.
        """
        await self._require_room(quota)
        await self._register(quota.kind, quota.name).change(lambda _: quota.limits)
        self._keep(quota)

    def _register(self, kind: QuotaKind, name: str) -> Register[Limits]:
        key = self._keys.quota(kind, name)
        return Register(
            self._kv,
            self._keys.graveler,
            key,
            lambda value: NO_LIMITS if value is None else decode_quota(key, value).limits,
            lambda limits: encode_limits(limits) if limits else None,
            f"the quota of {kind} {name}",
        )

    async def _require_room(self, quota: Quota) -> None:
        known = await self.load()
        if quota.limits and len(known) >= QUOTAS_MAX:
            is_new = (quota.kind, quota.name) not in self._known
            if is_new:
                text = f"{QUOTAS_MAX} quotas are set; clear others, or use the limits of the configuration"
                raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)

    def _keep(self, quota: Quota) -> None:
        """Makes the change part of the snapshot of this replica at once."""
        if quota.limits:
            self._known[quota.kind, quota.name] = quota.limits
        else:
            self._known.pop((quota.kind, quota.name), None)
