"""Time, ids and randomness of the real machine: the implementations behind `tarn.core.clock`.

Only `serve` and the commands create these. All other code takes the protocols, so that a simulation
can replace them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from struct import Struct

from tarn.core.clock import Clock

__all__ = ["SystemClock", "SystemIds"]

_POOL_BYTES = 4096
_NONCE_BYTES = 16
_UUID = Struct(">QB")
"""The first 9 bytes of an id."""


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
        self._nonces: Iterator[bytes] = iter(())
        self._pid = 0

    def uuid7(self) -> bytes:
        """Returns 16 bytes that grow from call to call within this process (RFC 9562 §5.7, §6.2 method 3).

        48 bits of Unix milliseconds and 12 bits of their fraction. When the clock stands still or
        jumps back, the 60 bits count on from the last id, so that ids keep the order of calls.
        """
        with self._lock:
            nonce = self.nonce()
            # 1 ms = 4,096 steps of the 12-bit fraction.
            stamp = (self._clock.now_us() << 12) // 1000
            if stamp <= self._stamp:
                stamp = self._stamp + 1
            self._stamp = stamp
        head = (stamp >> 12) << 16 | 0x7000 | stamp & 0xFFF
        return _UUID.pack(head, nonce[0] & 0x3F | 0x80) + nonce[1:8]

    def nonce(self) -> bytes:
        """Returns 16 random bytes."""
        # One step for all threads. A forked child holds a copy of what its parent read.
        nonce = next(self._nonces, None)
        if nonce is None or os.getpid() != self._pid:
            return self._read()
        return nonce

    def _read(self) -> bytes:
        """Reads a block, keeps all of it but one nonce, and returns that one."""
        pool = os.urandom(_POOL_BYTES)
        first, *others = [pool[at : at + _NONCE_BYTES] for at in range(0, len(pool), _NONCE_BYTES)]
        # In this order: with the new process id, no thread takes a nonce of the parent's.
        self._nonces = iter(others)
        self._pid = os.getpid()
        return first
