"""Tasks that outlive the block that started them.

All other code spawns tasks in an `asyncio.TaskGroup`. A transport or a server cannot use a block: it exists from its
construction to `close()`, often across tasks. Its tasks must outlive their callers, because a write that has begun is
not stopped when its client hangs up. Only this module spawns tasks without a group. Like a group it keeps every task,
never loses an error and leaves no task behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

import structlog

__all__ = ["TaskSet"]

_log = structlog.get_logger()


class TaskSet:
    """Tasks with a common end. Belongs to one event loop.

    - A cancelled caller does not affect the tasks that it spawned.
    - The failure of a task is logged as an error; the other tasks continue.
    - After `close` no task of the set runs. It may be used again.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        # The loop of the first task is that of all; getting the running loop costs a system call.
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(
        self,
        work: Coroutine[object, object, None],
        when_done: Callable[[asyncio.Task[None]], object] | None = None,
    ) -> asyncio.Task[None]:
        """Starts a task. It must handle its own errors: an error that escapes is a bug, and is logged.

        Args:
            work: the work of the task.
            when_done: called at its end, even if the task was cancelled before its first step and ran none of its
                code.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(work)
        self._tasks.add(task)
        ended = self._ended if when_done is None else partial(self._ended, when_done=when_done)
        task.add_done_callback(ended)
        return task

    async def drain(self, timeout_s: float) -> bool:
        """Waits for all tasks, including those that start meanwhile; returns False if time ran out."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Cancels all tasks, repeatedly if they spawn others, and waits for their end. Idempotent."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def _ended(
        self,
        task: asyncio.Task[None],
        when_done: Callable[[asyncio.Task[None]], object] | None = None,
    ) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("background task failed", exc_info=error)
        if when_done is not None:
            when_done(task)
