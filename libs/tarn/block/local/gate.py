"""What bounds a store and what closes it: open files are counted, and close waits for calls in progress."""

from __future__ import annotations

import asyncio

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["Gate", "OpenFiles"]


class Gate:
    """Every call passes it (`with gate:`); after `close` none does, and `close` returns when all have left."""

    def __init__(self) -> None:
        self._inside = 0
        self._open = True
        self._empty = asyncio.Event()
        self._empty.set()

    def __enter__(self) -> None:
        if not self._open:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the block store is closed")
        if self._inside == 0:
            self._empty.clear()
        self._inside += 1

    def __exit__(self, *exc: object) -> None:
        self._inside -= 1
        if self._inside == 0:
            self._empty.set()

    async def close(self) -> None:
        """Refuses new calls and waits for those inside."""
        self._open = False
        await self._empty.wait()


class OpenFiles:
    """Counts the descriptors that transfers hold. Above the limit a transfer fails at once instead of
    waiting: two transfers that each hold one and wait for another would wait for ever."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0

    def take(self) -> None:
        """Counts one more.

        Raises:
            TarnError: EXHAUSTED at the limit.
        """
        if self.count >= self._limit:
            text = f"{self.count} block files are open, the limit"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text, files_max=str(self._limit))
        self.count += 1

    def give(self) -> None:
        """Counts one less."""
        self.count -= 1
