"""Clocks and an id source that a test controls."""

from __future__ import annotations

import asyncio
import heapq
import random

__all__ = ["LoopClock", "ManualClock", "RestlessClock", "SeededIds"]

_START_US = 1_793_491_200_000_000


class ManualClock:
    """A clock that advances only when `advance` is called; sleepers wake in the order of their times."""

    def __init__(self, now_us: int = _START_US) -> None:
        self._start_us = now_us
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_us(self) -> int:
        """Returns microseconds since the epoch."""
        return self._start_us + int(self._elapsed * 1_000_000)

    def monotonic(self) -> float:
        """Returns seconds since this clock was made."""
        return self._elapsed

    @property
    def sleepers(self) -> int:
        """Returns the number of tasks that sleep."""
        return sum(not waiting.done() for _, _, waiting in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Waits until the clock has been advanced by `seconds`."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._count, waiting))
        await waiting

    def advance(self, seconds: float) -> None:
        """Advances the clock and wakes sleepers whose time has come."""
        self._elapsed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, waiting = heapq.heappop(self._sleepers)
            if not waiting.done():
                waiting.set_result(None)


class RestlessClock(ManualClock):
    """A clock that advances when a task sleeps: other tasks run for one tick, then the sleep is over."""

    async def sleep(self, seconds: float) -> None:
        """Waits for one tick of the loop."""
        self.advance(seconds)
        await asyncio.sleep(0)


class LoopClock:
    """The clock of the running event loop, which a test can put forward: time-outs end early, and none ends late."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        measured, self._ahead = loop.time, 0.0
        loop.time = lambda: measured() + self._ahead  # type: ignore[method-assign]

    async def advance(self, seconds: float) -> None:
        """Puts the clock forward, and lets the timers run that are due then."""
        self._ahead += seconds
        for _ in range(2):  # the loop looks for due timers between its ticks
            await asyncio.sleep(0)


class SeededIds:
    """Ids from a seed: the same seed gives the same ids; `uuid7` follows a clock.

    Args:
        clock: source of time; replicas may share it.
        seed: different for each replica, below 4,096, so that no two make the same id.
    """

    def __init__(self, clock: ManualClock, seed: int = 0) -> None:
        assert 0 <= seed < 1 << 12, "it has 12 bits of an id"
        self._clock = clock
        self._seed = seed
        self._random = random.Random(seed)
        self._count = 0

    def uuid7(self) -> bytes:
        """Returns 16 bytes, ascending in the order of calls."""
        self._count += 1
        milliseconds = self._clock.now_us() // 1000
        fields = milliseconds << 80 | (0x7000 | self._seed) << 64 | 1 << 63 | self._count
        return fields.to_bytes(16, "big")

    def nonce(self) -> bytes:
        """Returns 16 random bytes."""
        return self._random.randbytes(16)
