"""Time, ids and randomness of the real machine: the implementations behind `tarn.core.clock`.

Only `serve` and the commands create these. All other code takes the protocols, so that a simulation
can replace them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time

from tarn.core.clock import Clock

__all__ = ["SystemClock", "SystemIds"]

_POOL_BYTES = 4096


class SystemClock:
    """The clocks of this machine."""

    def now_us(self) -> int:
        """Returns microseconds since the Unix epoch, UTC; may jump."""
        return time.time_ns() // 1000

    # Not wrapped in a method: hot paths call it several times per operation.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Waits on the event loop."""
        await asyncio.sleep(seconds)


class SystemIds:
    """Unique names from the kernel's randomness, read in blocks: a system call costs more than an id.

    Safe to use from several threads; after a fork each process reads its own block.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp = 0
        self._pool = b""
        self._used = 0
        self._pid = 0

    def uuid7(self) -> bytes:
        """Returns 16 bytes that grow from call to call within this process (RFC 9562 §5.7, §6.2 method 3).

        48 bits of Unix milliseconds and 12 bits of their fraction. When the clock stands still or
        jumps back, the 60 bits count on from the last id, so that ids keep the order of calls.
        """
        with self._lock:
            tail = int.from_bytes(self._random(8), "big")
            # 1 ms = 4,096 steps of the 12-bit fraction.
            stamp = max((self._clock.now_us() << 12) // 1000, self._stamp + 1)
            self._stamp = stamp
        head = (stamp >> 12) << 16 | 0x7000 | (stamp & 0xFFF)
        return ((head << 64) | (1 << 63) | (tail >> 2)).to_bytes(16, "big")

    def nonce(self) -> bytes:
        """Returns 16 random bytes."""
        with self._lock:
            return self._random(16)

    def _random(self, count: int) -> bytes:
        """Returns the next bytes of the pool; the caller holds the lock."""
        start = self._used
        end = start + count
        pid = os.getpid()  # a forked child holds a copy of its parent's pool
        if end > len(self._pool) or pid != self._pid:
            self._pool, self._pid = os.urandom(_POOL_BYTES), pid
            start, end = 0, count
        self._used = end
        return self._pool[start:end]
