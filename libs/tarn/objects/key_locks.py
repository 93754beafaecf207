"""Locks by key, so that conditional writers of one key do not all do work that only one of them can finish.

A lock decides nothing: graveler decides the winner, also between processes. The lock saves losers their work.
A writer that waited checks the key again before it writes a block, and may be refused without one. Blocks are
written durably, one group at a time. Without the lock, each loser adds a write and a removal to that queue,
the winner waits for them, and losers learn the result long after writers that arrive later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

__all__ = ["KeyLocks"]

WAIT_S = 2.0
"""Seconds after which a writer continues without the lock: the holder's store or graveler hangs."""


class KeyLocks:
    """One lock for each key that a caller holds or waits for, granted in order of arrival.

    Args:
        wait_s: how long a caller waits for a lock before it continues without.
    """

    def __init__(self, *, wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        # The lock, and the number of callers that hold it, wait for it or continued without it.
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Holds the lock of a key during the block, if it becomes free in time."""
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = (lock, users + 1)
        is_held = False
        try:
            is_held = await self._acquired(lock)
            yield
        finally:
            if is_held:
                lock.release()
            _, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)

    async def _acquired(self, lock: asyncio.Lock) -> bool:
        try:
            async with asyncio.timeout(self._wait_s):
                await lock.acquire()
        except TimeoutError:
            return False
        return True
