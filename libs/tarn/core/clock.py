"""Ports for time and unique ids, so that a simulation can control both (ARCHITECTURE.md).

The real implementations are in `tarn.rpc.process.system`, the simulated ones in `tests.support`.
"""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["DAY_US", "Clock", "IdSource"]

DAY_US: Final = 86_400_000_000
"""Microseconds of a day."""


class Clock(Protocol):
    """A source of time."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch, UTC. May jump; used for records, never for waits."""
        ...

    def monotonic(self) -> float:
        """Seconds that never decrease; use only this clock to measure durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits on the monotonic clock."""
        ...


class IdSource(Protocol):
    """A source of unique ids."""

    def uuid7(self) -> bytes:
        """16 bytes, time-ordered (RFC 9562 §5.7): block addresses, token ids, upload ids."""
        ...

    def nonce(self) -> bytes:
        """16 random bytes that identify one logical operation in all of its attempts."""
        ...
