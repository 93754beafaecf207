"""Trying again: the one place, above a driver policy that never does (docs/design/kv.md, "The driver").

Bounded, with jitter, and only what may be repeated: the callers know what that is.
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
    """How often, and how long: whichever is more.

    Args:
        clock: sleeps, and measures.
        chance: draws the pauses; seeded by the caller.
        attempts: at least so many, the first included.
        seconds: at least so long since the first, so that a connection can be made again.
    """

    def __init__(
        self, clock: Clock, chance: random.Random, attempts: int, seconds: float = 0.0
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._attempts = attempts
        self._seconds = seconds

    def begin(self) -> Attempts:
        """To be asked after each attempt that failed."""
        return Attempts(self._clock, self._chance, self._attempts, self._seconds)

    def longer(self, seconds: float) -> Retry:
        """One that goes on longer."""
        return Retry(self._clock, self._chance, self._attempts, seconds)

    async def read(self, ask: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Asks until it is answered; for reads, and for writes that may be repeated.

        Raises:
            Exception: what the last attempt raised.
        """
        attempts = self.begin()
        while True:
            try:
                return await ask()
            except Exception as error:
                if not is_transient(error) or not await attempts.again():
                    raise


class Attempts:
    """The attempts at one thing; pauses between them double and are half chance."""

    def __init__(self, clock: Clock, chance: random.Random, attempts: int, seconds: float) -> None:
        self._clock = clock
        self._chance = chance
        self._left = attempts - 1
        self._failed = 0
        self._until = clock.monotonic() + seconds

    async def again(self) -> bool:
        """Pauses before another attempt; False: there should be none."""
        if self._left <= 0 and self._clock.monotonic() >= self._until:
            return False
        self._left -= 1
        pause = backoff_seconds(
            self._chance, self._failed, first_s=_FIRST_SECONDS, most_s=_MOST_SECONDS
        )
        self._failed += 1
        await self._clock.sleep(pause)
        return True
