"""Batches by the tick of the event loop: the requests of all tasks in one tick are sent together.

The first caller opens a batch; callers before the loop's next tick join it; then it is closed and sent. There is no
timer: an idle process adds no delay, and a busy one forms batches by itself (docs/design/hot-path.md). The
DataLoader of GraphQL servers works in the same way.

A batch is always closed *before* it is sent. A guard of the branch protocol depends on that (rule 1; guard `issued
after` of tests/models/branch_model.py): a writer's re-check must be issued after its write was acknowledged, so it
must never join a running read.

Some queues look similar but differ: `kv.cassandra.rows.partition_queues` and `rpc.client.stream_connection` send the
waiting requests when an answer or the peer makes room; `block.local.group_writer` takes the waiting writes when it has
the lock; `rpc.log_lines` takes lines from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Generic, TypeVar

from tarn.aio.task_set import TaskSet

__all__ = ["Batcher", "TickBatch"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class TickBatch(Generic[T]):
    """Gathers items until the next tick, then passes them on as one list. Belongs to one event loop.

    - Each item is passed on once, in the order of `add`. A list that was passed on does not grow.
    - `send` runs in the loop, after every task that was ready when the first item was added; it does not wait.
      It must not raise, because it answers for its items. If it raises, the items are lost, and the loop's exception
      handler is called.
    - After `flush` no item is left. So to close, refuse new items and then flush.
    """

    __slots__ = ("_items", "_loop", "_send")

    def __init__(self, send: Callable[[list[T]], object]) -> None:
        self._send = send
        self._items: list[T] = []
        # The loop of the first caller is that of all; getting the running loop costs a system call.
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T) -> None:
        """Joins the batch that the next tick sends."""
        if not self._items:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self.flush)
        self._items.append(item)

    def flush(self) -> None:
        """Closes the batch and sends it now; an empty one is not sent."""
        items, self._items = self._items, []  # closed from here on
        if items:
            self._send(items)


class Batcher(Generic[K, T, R]):
    """Gathers items by key, sends the items of one key and tick as one batch, and answers each.

    - The batch runs in a separate task: a cancelled caller's item stays in it, and nothing else happens.
    - Every caller is answered once: with its result, its error, or the error of the whole batch. If the batch is
      cancelled, even before it began, its callers are cancelled.
    - Batches of a key may overlap; a caller that needs them in sequence waits for its answer.

    It does not use `TickBatch`: the first step of the task closes the batch, which saves a tick for each request.

    Args:
        send: returns one result or error for each item, in order; or raises for all of them.
        tasks: runs the batches; closing it cancels them.
    """

    def __init__(
        self,
        send: Callable[[K, Sequence[T]], Awaitable[Sequence[R | Exception]]],
        tasks: TaskSet,
    ) -> None:
        self._send = send
        self._tasks = tasks
        self._open: dict[K, list[tuple[T, asyncio.Future[R]]]] = {}
        # The loop of the first caller is that of all; getting the running loop costs a system call.
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, key: K, item: T) -> asyncio.Future[R]:
        """Joins the batch of `key` that the next tick sends; the future is this item's answer."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = self._loop.create_future()
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = []
            self._tasks.spawn(self._run(key), when_done=partial(self._ended, key, batch))
        batch.append((item, answer))
        return answer

    async def _run(self, key: K) -> None:
        batch = self._open.pop(key)  # closed from here on
        try:
            results = await self._send(key, [item for item, _ in batch])
            if len(results) != len(batch):
                text = f"a batch of {len(batch)} items was answered by {len(results)} results"
                raise AssertionError(text)
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

    def _ended(
        self, key: K, batch: list[tuple[T, asyncio.Future[R]]], task: asyncio.Task[None]
    ) -> None:
        """A task that is cancelled before its first step runs none of its code."""
        if task.cancelled() and self._open.get(key) is batch:
            del self._open[key]
            for _, answer in batch:
                answer.cancel()
