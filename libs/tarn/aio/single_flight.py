"""Single flight: concurrent callers of one key share one piece of work (Go's `golang.org/x/sync/singleflight`).

The first caller of a key does the work in its own task; the others wait for it. No task is spawned, so no work runs
without a waiting caller, and the work has the context (request id, deadline) of a caller that needs it.

The work may have begun before a waiter called, so the value may be that old. Do not use it for a read that must be
issued after a write; use `tarn.aio.batcher`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar, cast

__all__ = ["FlightTimeoutError", "SingleFlight"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class FlightTimeoutError(TimeoutError):
    """A caller waited too long for another caller's work."""


class SingleFlight(Generic[K, T]):
    """One piece of work at a time for each key. Belongs to one event loop.

    - If it succeeds, all waiters get the value.
    - If it fails, its caller gets the error. Waiters get the error that `error_for_waiters` makes of it; if that is
      None, the first of them does its own work, and the others wait for that.
    - If its caller is cancelled, this is a failure that is not shared. So a caller that hangs up costs the others
      time, but never their answer.
    - A waiter that is cancelled affects no other caller.
    - A caller after the end begins new work: keeping values is the task of a cache.
    - Work that waits for its own key waits for ever.

    Args:
        error_for_waiters: makes the error that one waiter raises: a new one each time, because one exception object
            raised in many tasks collects all their tracebacks. If it returns None, and by default, errors are not
            shared.
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
        """Returns the value of a key, from running work of another caller or from this caller's own.

        Args:
            key: key of the value.
            work: fetches the value; not called if another caller's work serves.
            timeout_s: how long to wait for other callers; own work has its own bounds. None: no limit.

        Raises:
            FlightTimeoutError: the time to wait is over.
            Exception: the error that the work raised.
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
