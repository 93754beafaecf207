"""Work that runs beside its caller: the next window of a stream, or the last part of a body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tarn.aio.task_set import TaskSet
from tarn.core.errors import TarnError

__all__ = ["Ahead"]

T = TypeVar("T")


class Ahead(Generic[T]):
    """One piece of work that has begun. Its caller waits for the result later, or cancels it.

    Args:
        tasks: keeps the task; it ends all of them when the store closes.
        work: may raise `TarnError`s.
        when_done: called at its end, even if it was cancelled before its first step.
    """

    def __init__(
        self,
        tasks: TaskSet,
        work: Callable[[], Awaitable[T]],
        when_done: Callable[[], None] | None = None,
    ) -> None:
        self._found: list[T] = []
        self._error: TarnError | None = None
        done = None if when_done is None else lambda _: when_done()
        self._task = tasks.spawn(self._run(work), done)

    async def _run(self, work: Callable[[], Awaitable[T]]) -> None:
        try:
            self._found.append(await work())
        except TarnError as error:  # raised by `result`, if it is asked for
            self._error = error

    async def result(self) -> T:
        """Waits for the work. A cancelled caller does not cancel it.

        Raises:
            TarnError: of the work.
            CancelledError: the work was cancelled.
        """
        await asyncio.wait([self._task])
        self._task.result()
        if self._error is not None:
            raise self._error
        return self._found[0]

    async def cancel(self) -> None:
        """Cancels the work and waits for its end, whatever its outcome. Work in a thread ends by itself."""
        self._task.cancel()
        await asyncio.wait([self._task])
