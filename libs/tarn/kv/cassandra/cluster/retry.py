"""Retries: the only module that retries; the driver's policy never does (docs/design/kv.md, "The driver").

Retries are bounded and have jitter. The callers pass only requests that may be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tarn.aio.backoff import backoff_seconds
from tarn.core.clock import Clock
from tarn.kv.cassandra.cluster.outcomes import is_transient

__all__ = ["Attempts", "Retry"]

ResultT = TypeVar("ResultT")

_FIRST_SECONDS = 0.02
_MOST_SECONDS = 0.5


class Retry:
    """Retries until both bounds, attempts and seconds, are reached.

    Args:
        clock: sleeps, and measures time.
        chance: draws the pauses; the caller seeds it.
        attempts: least number of attempts, including the first.
        seconds: least time since the first attempt, long enough to reconnect.
    """

    def __init__(
        self, clock: Clock, chance: random.Random, attempts: int, seconds: float = 0.0
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._attempts = attempts
        self._seconds = seconds

    def begin(self) -> Attempts:
        """Begins an operation; call the result's `again` after each failed attempt."""
        return Attempts(self._clock, self._chance, self._attempts, self._seconds)

    def longer(self, seconds: float) -> Retry:
        """A `Retry` with the same settings and a longer time."""
        return Retry(self._clock, self._chance, self._attempts, seconds)

    async def read(self, ask: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Calls `ask` until it succeeds. For reads, and for writes that may be repeated.

        Raises:
            Exception: the error of the last attempt.
        """
        attempts = self.begin()
        while True:
            try:
                return await ask()
            except Exception as error:
                if not is_transient(error) or not await attempts.again():
                    raise


class Attempts:
    """The attempts of one operation. The pauses between them double, and half of each is random."""

    def __init__(self, clock: Clock, chance: random.Random, attempts: int, seconds: float) -> None:
        self._clock = clock
        self._chance = chance
        self._left = attempts - 1
        self._failed = 0
        self._until = clock.monotonic() + seconds

    async def again(self) -> bool:
        """Pauses before another attempt; False if there should be no other."""
        if self._left <= 0 and self._clock.monotonic() >= self._until:
            return False
        self._left -= 1
        pause = backoff_seconds(
            self._chance, self._failed, first_s=_FIRST_SECONDS, most_s=_MOST_SECONDS
        )
        self._failed += 1
        await self._clock.sleep(pause)
        return True
