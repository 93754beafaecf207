"""Addresses of callers who are not known yet: what counts as one, and how often one may fail to sign in."""

from __future__ import annotations

import ipaddress
from typing import Final

from tarn.aio.bounded_map import BoundedMap
from tarn.core.clock import Clock
from tarn.core.quota import TokenBucket

__all__ = ["AddressRate", "network_of"]

_ADDRESSES_MAX: Final = 10_000


def network_of(remote: str) -> str:
    """Returns what counts as one address: for IPv6 the network that one client usually has.

    Args:
        remote: `host:port`.
    """
    host = remote.rpartition(":")[0]
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
    return host


class AddressRate:
    """A rate of each address. At most 10,000 are remembered; one that was pushed out may begin anew.

    Args:
        clock: measures time.
        per_second: what an address may have in a second, and at once; 0: there is no limit.
    """

    def __init__(self, clock: Clock, per_second: int) -> None:
        self._clock = clock
        self._rate = per_second
        self._buckets: BoundedMap[str, TokenBucket] = BoundedMap(_ADDRESSES_MAX)

    def wait_s(self, remote: str) -> float:
        """Returns how long an address has to wait; 0: it has something left."""
        found = self._buckets.get(network_of(remote)) if self._rate else None
        return 0.0 if found is None else found.wait_seconds(self._clock.monotonic(), 1)

    def take(self, remote: str) -> None:
        """Takes one from the rate of an address."""
        if not self._rate:
            return
        name, now = network_of(remote), self._clock.monotonic()
        found = self._buckets.get(name)
        if found is None:
            found = TokenBucket(self._rate, now)
            self._buckets.put(name, found)
        found.take(now, 1)
