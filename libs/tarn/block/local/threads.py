"""Threads for the calls that may wait for a disk: large reads and writes, and their fsync.

Short calls stay on the loop's thread: a hand-over of the interpreter lock costs more than a 1 KiB file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """A bounded pool whose work is never abandoned half way.

    Args:
        name: shown in thread lists.
        count: threads; more work than this queues.
    """

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    def start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Begins work whose result is fetched later; the caller passes the future to `finish` or `settle`."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def finish(self, job: asyncio.Future[T]) -> T:
        """The result of begun work. A cancelled caller still waits for the thread: the descriptor and the
        buffer that it works on must not be closed or reused under it."""
        try:
            return await asyncio.shield(job)
        finally:
            await self.settle(job)

    async def settle(self, job: asyncio.Future[T]) -> None:
        """Waits for begun work whose result nobody wants; a cancellation is raised after it has ended."""
        cancelled: asyncio.CancelledError | None = None
        while not job.done():
            try:
                await asyncio.wait([job])
            except asyncio.CancelledError as error:
                cancelled = error
        if not job.cancelled():
            job.exception()  # or asyncio reports it as never retrieved
        if cancelled is not None:
            raise cancelled

    async def run(self, work: Callable[[], T]) -> T:
        """Runs the work in a thread and waits for it, as `finish` does."""
        return await self.finish(self.start(work))

    def close(self) -> None:
        """Waits for running work and ends the threads; blocks."""
        self._pool.shutdown(wait=True)
