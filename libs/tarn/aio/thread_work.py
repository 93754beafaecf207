"""Work in threads, which is finished even if its caller is cancelled.

A thread cannot be stopped. asyncio cancels only the *wait* for it (`to_thread`, `run_in_executor`) and lets the
thread run: on a descriptor that the caller then closes, whose number may belong to another file a moment later, or
on a buffer that is reused. So a caller that passes such things to a thread must wait for its end in every case.
Work on immutable values does not need this; use `asyncio.to_thread`.
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
    """Returns the result of started work.

    A caller that is cancelled, once or several times, waits until the thread is done; then the cancellation is
    raised, and the result is dropped.

    Args:
        job: the future that `run_in_executor` returned.
        on_lost_error: called with the error of work whose caller was cancelled. None: the error is ignored,
            because the cancellation usually is its cause.
    """
    cancelled = await _ended(job)
    if cancelled is None:
        return job.result()
    error = _error_of(job)
    if error is not None and on_lost_error is not None:
        on_lost_error(error)
    raise cancelled


async def settle_work(job: asyncio.Future[Any]) -> None:
    """Waits for started work and ignores its outcome; a cancelled caller waits as in `finish_work`."""
    cancelled = await _ended(job)
    _error_of(job)
    if cancelled is not None:
        raise cancelled


async def _ended(job: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Waits for the end of a job; returns the last cancellation of the waiting task."""
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
