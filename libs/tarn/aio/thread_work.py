"""Work in threads, finished also for a caller that was cancelled.

A thread cannot be stopped. asyncio cancels the *wait* for it (`to_thread`, `run_in_executor`) and lets it run: on
a descriptor that the caller then closes, whose number may be another file's a moment later, or on a buffer
that is used again. So whoever lends a thread something waits for its end whatever happens. Work on values that
nobody changes needs none of this: there `asyncio.to_thread` serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["Threads", "finish_work", "run_in_thread", "settle_work"]

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], executor: Executor | None = None) -> T:
    """Runs work in a thread of the pool (None: of the loop's own) and waits for it as `finish_work` does."""
    return await finish_work(asyncio.get_running_loop().run_in_executor(executor, work))


async def finish_work(
    job: asyncio.Future[T], on_lost_error: Callable[[BaseException], None] | None = None
) -> T:
    """The result of begun work.

    A caller that is cancelled, once or several times, is held until the thread is done; the cancellation is
    raised then, and the result is dropped.

    Args:
        job: what `run_in_executor` gave.
        on_lost_error: is told the error of work whose caller was cancelled. None: it is of no interest, as the
            cancellation usually is its cause.
    """
    cancelled = await _ended(job)
    if cancelled is None:
        return job.result()
    error = _error_of(job)
    if error is not None and on_lost_error is not None:
        on_lost_error(error)
    raise cancelled


async def settle_work(job: asyncio.Future[Any]) -> None:
    """Waits for begun work whose outcome is of no interest; holds a cancelled caller as `finish_work` does."""
    cancelled = await _ended(job)
    _error_of(job)
    if cancelled is not None:
        raise cancelled


async def _ended(job: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Waits for the end of a job, and gives the last cancellation of the waiting task."""
    cancelled: asyncio.CancelledError | None = None
    while not job.done():
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _error_of(job: asyncio.Future[Any]) -> BaseException | None:
    """Fetching it also tells asyncio that it was seen."""
    return None if job.cancelled() else job.exception()


class Threads:
    """A bounded pool of threads, for calls that may wait for a disk. Work that has begun is never abandoned.

    Short calls stay on the loop's thread: handing over the interpreter lock costs more than reading a 1 KiB file.

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
