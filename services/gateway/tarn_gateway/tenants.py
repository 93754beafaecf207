"""The metrics of tenants: requests and bytes of each repository and each user.

The number of names is bounded. A name gets series of its own by its first request that succeeds, so that a client
cannot take them by asking for repositories that do not exist; all others are counted together as `other`.
"""

from __future__ import annotations

from typing import Final

from tarn.telemetry.meters import OVERFLOW, Counter, Meters

__all__ = ["NAMES_MAX", "THROTTLED", "Tenants"]

NAMES_MAX: Final = 100
"""Repositories, and users, that have series of their own."""

THROTTLED: Final = -503
"""Stands for the status of a request that a rate refused: 503, like that of a failure."""


class _Tenant:
    """The counters of one name."""

    __slots__ = ("failed", "ok", "received", "refused", "sent", "throttled")

    def __init__(self, meters: Meters, kind: str, name: str) -> None:
        labels = {kind: name}

        def requests(outcome: str) -> Counter:
            return meters.counter(f"{kind}.requests", **labels, outcome=outcome)

        self.ok, self.refused, self.failed = requests("ok"), requests("refused"), requests("failed")
        self.throttled = requests("throttled")
        self.received = meters.counter(f"{kind}.moved", **labels, direction="received")
        self.sent = meters.counter(f"{kind}.moved", **labels, direction="sent")


class Tenants:
    """Counts requests by repository or by user.

    Args:
        meters: gets `<kind>.requests` and `<kind>.moved`.
        kind: `repository` or `user`; also the name of the label.
    """

    def __init__(self, meters: Meters, kind: str) -> None:
        self._meters = meters
        self._kind = kind
        self._tenants: dict[str, _Tenant] = {}
        self._other: _Tenant | None = None

    def count(
        self, name: str, status: int, requests: int, received_bytes: int, sent_bytes: int
    ) -> None:
        """Counts requests that have ended.

        Args:
            name: of the repository or user; empty if there is none: then nothing is counted.
            status: sent to the client; 0 if it has left; `THROTTLED` if a rate refused it.
            requests: their number.
            received_bytes: of the bodies of the requests.
            sent_bytes: of the bodies of the answers.
        """
        if not name:
            return
        is_ok = 200 <= status < 400
        tenant = self._tenants.get(name)
        if tenant is None:
            if is_ok and len(self._tenants) < NAMES_MAX:
                tenant = self._tenants[name] = _Tenant(self._meters, self._kind, name)
            else:
                tenant = self._other = self._other or _Tenant(self._meters, self._kind, OVERFLOW)
        if is_ok:
            tenant.ok.value += requests
        elif 400 <= status < 500:
            tenant.refused.value += requests
        elif status == THROTTLED:
            tenant.throttled.value += requests
        else:
            tenant.failed.value += requests
        tenant.received.value += received_bytes
        tenant.sent.value += sent_bytes
