"""Sharing one KV request among the callers of one turn of the event loop.

The first caller opens a batch; whoever comes before the loop's next turn joins it; then it is sent
and takes nobody in any more. There is no timer: an idle system adds no delay, a busy one forms
batches by itself (docs/design/hot-path.md). That a batch closes *before* it is sent is a guard of the protocol: a
writer's re-check must be issued after its write was acknowledged, so it must never join a read that
is under way (rule 1; guard `issued after` of tests/models/branch_model.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from tarn.aio.task_set import TaskSet

__all__ = ["TurnBatches"]

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


class TurnBatches(Generic[K, T, R]):
    """Collects items by key and hands each turn's items of one key to `send` as one batch.

    Args:
        send: answers the items in order, one result or error for each; or raises for all of them.
        tasks: runs the batches; a caller that goes away does not take its batch along.
    """

    def __init__(
        self,
        send: Callable[[K, Sequence[T]], Awaitable[Sequence[R | Exception]]],
        tasks: TaskSet,
    ) -> None:
        self._send = send
        self._tasks = tasks
        self._open: dict[K, list[tuple[T, asyncio.Future[R]]]] = {}
        # Of the first caller, like everybody's; asking for the running one is a system call.
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, key: K, item: T) -> asyncio.Future[R]:
        """Joins the batch of `key` that the next turn sends; the future is this item's answer."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = self._loop.create_future()
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = []
            self._tasks.spawn(self._run(key))
        batch.append((item, answer))
        return answer

    async def _run(self, key: K) -> None:
        batch = self._open.pop(key)  # sent from here on: nobody joins any more
        try:
            results = await self._send(key, [item for item, _ in batch])
        except BaseException as error:
            for _, answer in batch:
                if not answer.done():
                    if isinstance(error, Exception):
                        answer.set_exception(error)
                    else:
                        answer.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if answer.done():
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
