"""Time and ids of a simulated machine."""

from __future__ import annotations

import asyncio
import random

__all__ = ["START_US", "SimClock", "SimIds"]

START_US = 1_793_491_200_000_000
"""The time at which every run begins, in microseconds since the epoch."""


class SimClock:
    """A machine's clocks: the monotonic clock is the loop's, and the wall clock is off by a skew.

    Attributes:
        skew_us: error of the wall clock; may change at any time, as real clocks jump.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_us: int = 0) -> None:
        self._loop = loop
        self.skew_us = skew_us

    def now_us(self) -> int:
        """Returns the wall clock in microseconds since the epoch."""
        return START_US + self.skew_us + int(self._loop.time() * 1_000_000)

    def monotonic(self) -> float:
        """Returns the monotonic clock, in virtual seconds."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Waits in virtual time."""
        await asyncio.sleep(seconds)


class SimIds:
    """Ids that are unique in a run.

    Args:
        clock: the machine's clock; UUIDv7 begin with its time, so a skewed machine's ids are out of order.
        rng: the machine's random generator.
    """

    def __init__(self, clock: SimClock, rng: random.Random) -> None:
        self._clock = clock
        self._random = rng

    def uuid7(self) -> bytes:
        """Returns 16 bytes."""
        head = (self._clock.now_us() // 1000).to_bytes(6, "big")
        tail = bytearray(self._random.randbytes(10))
        tail[0] = 0x70 | tail[0] & 0x0F
        tail[2] = 0x80 | tail[2] & 0x3F
        return head + bytes(tail)

    def nonce(self) -> bytes:
        """Returns 16 bytes."""
        return self._random.randbytes(16)
