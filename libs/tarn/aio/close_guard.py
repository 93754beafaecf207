"""Counts the uses of a resource, so that it is closed when no use is running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["CloseGuard", "UseCount"]


class UseCount:
    """Counts uses (`with count:`). Belongs to one event loop.

    A user that fails or is cancelled ends its use like any other. A use costs some 0.3 µs: no task, no future.
    """

    __slots__ = ("_idle", "_users")

    def __init__(self) -> None:
        self._users = 0
        self._idle: asyncio.Event | None = None  # created by the first waiter

    def __enter__(self) -> None:
        self._users += 1

    def __exit__(self, *exc: object) -> None:
        self._users -= 1
        if not self._users and self._idle is not None:
            self._idle.set()

    @property
    def users(self) -> int:
        """Number of running uses."""
        return self._users

    async def drain(self, timeout_s: float) -> bool:
        """Waits for a moment without users; new users may come meanwhile. Returns False if time ran out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_idle()
        except TimeoutError:
            return False
        return True

    async def _wait_idle(self) -> None:
        while self._users:  # a new use may begin between the event and this step
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            await self._idle.wait()


class CloseGuard(UseCount):
    """Counts uses of a resource that can be closed.

    - After `close` was called no new use begins; running ones continue, and `close` returns when all have ended.
    - A `close` that is cancelled leaves the guard closed. `close` may be called again, also concurrently, and waits
      again.
    - A user that waits for `close` waits for itself, for ever.

    Args:
        closed: makes the error for a use after `close`.
    """

    __slots__ = ("_closed_error", "_is_closed")

    def __init__(self, closed: Callable[[], Exception]) -> None:
        super().__init__()
        self._closed_error = closed
        self._is_closed = False

    def __enter__(self) -> None:
        if self._is_closed:
            raise self._closed_error()
        self._users += 1

    async def close(self) -> None:
        """Refuses new users and waits for the running ones. Idempotent."""
        self._is_closed = True
        await self._wait_idle()
