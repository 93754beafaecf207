"""Time and identity come in from outside, so that a simulation can own them (ARCHITECTURE.md).

The implementations that ask the machine live in `tarn.rpc.process.system`; the simulated ones in
`tarn.testing`.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Clock", "IdSource"]


class Clock(Protocol):
    """Where time comes from."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch, UTC. May jump; used for records, never for waits."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; the only clock that durations are measured with."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock."""
        ...


class IdSource(Protocol):
    """Where unique names come from."""

    def uuid7(self) -> bytes:
        """16 bytes, time-ordered (RFC 9562 §5.7): block addresses, token ids, upload ids."""
        ...

    def nonce(self) -> bytes:
        """16 random bytes: names one logical operation through all of its attempts."""
        ...
