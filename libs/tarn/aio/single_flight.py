"""Single flight: what several callers want at one time is fetched once (Go's `golang.org/x/sync/singleflight`).

The first caller of a key does the work in its own task; the others wait for it. No task is spawned, so nothing runs
that no caller waits for, and the work has the context (request id, deadline) of a caller that wants it.

A value may have been fetched before a waiter asked, hence is as old as the work that brought it: never for a read
that must be issued after a write. Those go through `tarn.aio.batcher`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar, cast

__all__ = ["FlightTimeoutError", "SingleFlight"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class FlightTimeoutError(TimeoutError):
    """A caller waited for another caller's work for as long as it may."""


class SingleFlight(Generic[K, T]):
    """One piece of work at a time for each key. Belongs to one event loop.

    - It succeeds: all who wait get the value.
    - It fails: its caller gets the error. Those who wait get what `error_for_waiters` makes of it; where that is
      None, the first of them does its own work, and the others wait for that one.
    - Its caller is cancelled: as a failure that is not shared. So a caller that hangs up costs the others time,
      never their answer.
    - A waiter that is cancelled leaves, and nothing else happens.
    - Whoever comes after the end begins anew: keeping values is a cache's business.
    - Work that waits for its own key waits for ever.

    Args:
        error_for_waiters: makes the error that one waiter raises: a new one each time, since one exception object
            raised in many tasks collects all their tracebacks. None, or by default: errors are not shared.
    """

    def __init__(
        self, error_for_waiters: Callable[[Exception], Exception | None] | None = None
    ) -> None:
        self._error_for_waiters = error_for_waiters or (lambda _error: None)
        self._flights: dict[K, _Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(
        self, key: K, work: Callable[[], Awaitable[T]], *, timeout_s: float | None = None
    ) -> T:
        """The value of a key: of work that is under way, or of this caller's own.

        Args:
            key: of the value.
            work: brings it; not called if somebody else's serves.
            timeout_s: how long to wait for others; own work has its own bounds. None: no limit.

        Raises:
            FlightTimeoutError: the time to wait is over.
            Exception: what the work raised.
        """
        end = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        while (flight := self._flights.get(key)) is not None:
            try:
                async with asyncio.timeout_at(end):
                    await flight.landed.wait()
            except TimeoutError:
                text = f"{timeout_s} s are over, and another caller's work is still under way"
                raise FlightTimeoutError(text) from None
            if flight.has_value:
                return cast("T", flight.value)
            if flight.error is not None:
                shared = self._error_for_waiters(flight.error)
                if shared is not None:
                    raise shared
        return await self._fly(key, work)

    async def _fly(self, key: K, work: Callable[[], Awaitable[T]]) -> T:
        flight = self._flights[key] = _Flight[T]()
        try:
            value = await work()
        except Exception as error:
            flight.error = error
            raise
        else:
            flight.value, flight.has_value = value, True
            return value
        finally:
            del self._flights[key]
            flight.landed.set()


class _Flight(Generic[T]):
    """Work under way, and what those who wait learn when it has ended."""

    __slots__ = ("error", "has_value", "landed", "value")

    def __init__(self) -> None:
        self.landed = asyncio.Event()
        self.has_value = False
        self.value: T | None = None
        self.error: Exception | None = None
