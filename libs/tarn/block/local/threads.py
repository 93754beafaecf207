"""Threads for calls that may wait for a disk: large reads and writes, and their fsync.

Short calls stay on the loop's thread: handing over the interpreter lock costs more than reading a 1 KiB file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tarn.aio.thread_work import finish_work

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """A bounded pool of threads. Work that has begun is never abandoned.

    Args:
        name: shown in lists of threads.
        count: number of threads; further work queues.
    """

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    def start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Begins work; the caller passes the future to `finish_work` or `settle_work`."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def run(self, work: Callable[[], T]) -> T:
        """Runs the work in a thread and waits for it, as `finish_work` does."""
        return await finish_work(self.start(work))

    def close(self) -> None:
        """Waits for running work and ends the threads. Blocks."""
        self._pool.shutdown(wait=True)
