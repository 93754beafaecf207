"""Counts who uses a thing, so that it is closed when nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["CloseGuard", "UseCount"]


class UseCount:
    """Counts uses (`with count:`). Belongs to one event loop.

    A user that fails or is cancelled leaves like any other. Costs some 0.3 µs for a use: no task, no future.
    """

    __slots__ = ("_idle", "_users")

    def __init__(self) -> None:
        self._users = 0
        self._idle: asyncio.Event | None = None  # made by the first that waits

    def __enter__(self) -> None:
        self._users += 1

    def __exit__(self, *exc: object) -> None:
        self._users -= 1
        if not self._users and self._idle is not None:
            self._idle.set()

    @property
    def users(self) -> int:
        """Uses under way."""
        return self._users

    async def drain(self, timeout_s: float) -> bool:
        """Waits for a moment without users, and refuses nobody; False if time ran out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_idle()
        except TimeoutError:
            return False
        return True

    async def _wait_idle(self) -> None:
        while self._users:  # between the event and this step another one may have come
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            await self._idle.wait()


class CloseGuard(UseCount):
    """Counts uses of what can be closed.

    - After `close` was called no use begins; those under way go on, and `close` returns when all have ended.
    - A `close` that is cancelled leaves the guard closed. Calling it again waits again, so several may.
    - A user that waits for `close` waits for itself, for ever.

    Args:
        closed: makes the error of a use that comes too late.
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
        """Refuses new users and waits for those under way. Idempotent."""
        self._is_closed = True
        await self._wait_idle()
