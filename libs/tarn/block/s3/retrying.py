"""The only place that repeats S3 requests: a bounded number of times, with growing random pauses and a deadline.

Retries are switched off in both libraries: after a lost answer only the code that knows the purpose of a
request can tell "already done" from "done by another writer".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tarn.aio.backoff import backoff_seconds
from tarn.block.s3.faults import RAISED, CallError, Failure, fault_of
from tarn.block.s3.settings import S3Limits
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["Retrying"]

T = TypeVar("T")


_BYTES_PER_SECOND_MIN: Final = 1 << 20
"""Slower transfers time out. A request with more than one chunk gets proportionally more time."""


def _seconds_of(size: int) -> float:
    return size / _BYTES_PER_SECOND_MIN


class Retrying:
    """Runs attempts and bounds the number of concurrent requests.

    Args:
        limits: bounds on attempts, time and concurrency.
        clock: measures the deadline and waits.
        chance: spreads the pauses, so that callers that failed together do not retry together.
    """

    def __init__(self, limits: S3Limits, clock: Clock, chance: random.Random) -> None:
        self._limits = limits
        self._clock = clock
        self._chance = chance
        self._room = asyncio.Semaphore(limits.requests)

    async def once(self, attempt: Callable[[], Awaitable[T]], size: int = 0) -> T:
        """Makes one attempt as soon as the limit on concurrent requests allows.

        Args:
            attempt: makes one request.
            size: bytes of its body; large bodies get more time.

        Raises:
            CallError: the attempt failed.
            TarnError: EXHAUSTED if the limit allowed no request for a whole deadline.
        """
        await self._enter()
        try:
            async with asyncio.timeout(self._limits.attempt_seconds + _seconds_of(size)):
                return await attempt()
        except RAISED as error:
            raise fault_of(error) from error
        finally:
            self._room.release()

    async def _enter(self) -> None:
        try:
            async with asyncio.timeout(self._limits.deadline_seconds):
                await self._room.acquire()
        except TimeoutError:
            text = (
                f"{self._limits.requests} requests to the object store are under way, which is the limit; try again "
                "later"
            )
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text) from None

    async def __call__(self, doing: str, attempt: Callable[[], Awaitable[T]], size: int = 0) -> T:
        """Repeats an attempt while it fails as BUSY. Each request inside `attempt` uses `once`.

        Args:
            doing: completes the sentence "cannot ...".
            attempt: must be safe to repeat, even if an earlier attempt took effect and its answer was lost.
            size: bytes of its body.

        Raises:
            CallError: any failure other than BUSY, immediately.
            TarnError: UNAVAILABLE after the last attempt. A block whose write failed may still exist. Its
                name is known to no other process, so for the caller it does not exist.
        """
        limits = self._limits
        deadline_seconds = limits.deadline_seconds + 2 * _seconds_of(size)
        started = self._clock.monotonic()
        for number in range(1, limits.attempts + 1):
            try:
                return await attempt()
            except CallError as fault:
                if fault.failure is not Failure.BUSY:
                    raise
                pause = self._pause(number)
                elapsed = self._clock.monotonic() - started
                late = elapsed + pause >= deadline_seconds
                if number == limits.attempts or late:
                    text = f"cannot {doing}, tried {number} times in {elapsed:.1f} s: {fault}"
                    raise TarnError(
                        Kind.UNAVAILABLE, Reason.UNAVAILABLE, text, attempts=str(number)
                    ) from fault
            await self._clock.sleep(pause)
        raise AssertionError("the loop returns or raises")

    def _pause(self, number: int) -> float:
        limits = self._limits
        return backoff_seconds(
            self._chance,
            number - 1,
            first_s=limits.pause_seconds,
            most_s=limits.pause_seconds_max,
            chance=0.75,
        )
