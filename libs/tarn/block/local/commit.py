"""The group commit: one thread per process that makes names appear in a store.

Whoever wants a name waits in its queue. The thread takes all that is ready, locks out the other processes,
and gives the names in one transaction with one fsync. Because the rows of small bodies and the links of
large ones both appear under this lock, a path is written once, whatever the size of its two writers.

The lock is a `flock` on a file of its own: it queues processes fairly enough, and a killed process frees
it. Waiting for it is not bounded here; callers have deadlines of their own.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tarn.block.local.faults import from_os, from_sqlite
from tarn.block.local.small import Row, SmallWriter
from tarn.block.local.tree import Tree
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = ["Commits"]

QUEUE_MAX: Final = 1024
"""Requests that may wait; each holds at most one small body."""
_BATCH_MAX: Final = 256
_BATCH_BYTES_MAX: Final = 4 << 20
_DOING: Final = "cannot commit small blocks"


@hot_value
class _Insert:
    namespace: int
    path: str
    file: str  # where a large block of this name would be
    body: bytes


@hot_value
class _Place:
    namespace: int
    path: str
    link: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Delete:
    namespace: int
    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Register:
    name: str


_Request = _Insert | _Place | _Delete | _Register
_Outcome = int | BaseException
_Waiter = tuple[_Request, "asyncio.Future[int]"]


class Commits:
    """The queue and its thread.

    Args:
        database: the file of small bodies.
        lock: the lock file's descriptor, which this closes.
        tree: where large blocks are.
        clock: dates the rows.
        fsync: whether a commit waits for the disk.
    """

    def __init__(self, database: Path, lock: int, tree: Tree, clock: Clock, *, fsync: bool) -> None:
        self._database = database
        self._lock = lock
        self._tree = tree
        self._clock = clock
        self._fsync = fsync
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._room = asyncio.Semaphore(QUEUE_MAX)
        self._queue: queue.SimpleQueue[_Waiter | None] = queue.SimpleQueue()
        self._open = True
        # Daemonic, because a process that forgot to close must still be able to end: what was
        # acknowledged is on disk already.
        self._thread = threading.Thread(target=self._run, name="tarn-block-commit", daemon=True)
        self._thread.start()

    async def insert(self, namespace: int, path: str, file: str, body: bytes) -> bool:
        """Adds a small body; False if a block of either kind has the path. `file` is where a large
        one would be, from the root."""
        return bool(await self._ask(_Insert(namespace, path, file, body)))

    async def place(self, namespace: int, path: str, link: Callable[[], None]) -> bool:
        """Calls `link` under the lock; False if a block of either kind has the path.

        Raises:
            OSError: from `link`.
        """
        return bool(await self._ask(_Place(namespace, path, link)))

    async def delete(self, namespace: int, paths: Sequence[str]) -> None:
        """Removes small bodies."""
        await self._ask(_Delete(namespace, paths))

    async def register(self, name: str) -> int:
        """The number of a namespace, made with its directory if it is new."""
        return await self._ask(_Register(name))

    async def close(self) -> None:
        """Serves what is queued, then ends the thread. Idempotent."""
        if self._open:
            self._open = False
            self._queue.put(None)
        await asyncio.shield(self._ended)

    async def _ask(self, request: _Request) -> int:
        async with self._room:
            if not self._open:
                raise _closed()
            done: asyncio.Future[int] = self._loop.create_future()
            self._queue.put((request, done))
            return await done

    def _run(self) -> None:
        batch: list[_Waiter] = []
        writer: SmallWriter | None = None
        try:
            last = False
            while not last:
                batch, last = self._gather()
                writer = self._serve(writer, batch)
        finally:
            # After a close nothing is left here. After a defect the waiters must not hang.
            self._open = False
            with suppress(queue.Empty):
                while True:
                    waiter = self._queue.get_nowait()
                    if waiter is not None:
                        batch.append(waiter)
            self._answer(_settle, batch, [_closed()] * len(batch))
            if writer is not None:
                writer.close()
            os.close(self._lock)
            self._answer(_end, self._ended)

    def _serve(self, writer: SmallWriter | None, batch: Sequence[_Waiter]) -> SmallWriter | None:
        """Commits a batch and answers it; the connection is opened at the first one."""
        outcomes: Sequence[_Outcome]
        try:
            writer = writer or SmallWriter(self._database, fsync=self._fsync)
            outcomes = self._commit(writer, [request for request, _ in batch])
        except sqlite3.Error as error:
            outcomes = [from_sqlite(error, _DOING)] * len(batch)
        except OSError as error:
            outcomes = [from_os(error, _DOING)] * len(batch)
        self._answer(_settle, batch, outcomes)
        return writer

    def _answer(self, call: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)

    def _gather(self) -> tuple[list[_Waiter], bool]:
        """Waits for a request and takes what else is ready; the flag says that no more will come."""
        batch: list[_Waiter] = []
        size = 0
        with suppress(queue.Empty):
            while len(batch) < _BATCH_MAX and size < _BATCH_BYTES_MAX:
                waiter = self._queue.get_nowait() if batch else self._queue.get()
                if waiter is None:
                    return batch, True
                request, done = waiter
                if done.cancelled():
                    continue
                size += len(request.body) if isinstance(request, _Insert) else 0
                batch.append(waiter)
        return batch, False

    def _commit(self, writer: SmallWriter, batch: Sequence[_Request]) -> list[_Outcome]:
        if not batch:
            return []
        outcomes: list[_Outcome] = [0] * len(batch)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            if all(isinstance(request, _Place) for request in batch):
                self._place(writer, batch, outcomes)  # nothing to write in sqlite
                return outcomes
            writer.begin()
            self._change(writer, batch, outcomes)
            self._insert(writer, batch, outcomes)
            self._place(writer, batch, outcomes)
            writer.commit()
        except (sqlite3.Error, OSError) as error:
            writer.rollback()
            failure = (
                from_os(error, _DOING) if isinstance(error, OSError) else from_sqlite(error, _DOING)
            )
            # A link is made whatever becomes of the rows; any other answer was about the rows.
            for at, request in enumerate(batch):
                if not (isinstance(request, _Place) and outcomes[at] == 1):
                    outcomes[at] = failure
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        return outcomes

    def _change(
        self, writer: SmallWriter, batch: Sequence[_Request], outcomes: list[_Outcome]
    ) -> None:
        for at, request in enumerate(batch):
            if isinstance(request, _Delete):
                writer.delete(request.namespace, request.paths)
            elif isinstance(request, _Register):
                try:
                    outcomes[at] = writer.register(request.name)
                    with self._tree.open_dir(request.name.split("/"), create=True):
                        pass
                except TarnError as error:
                    outcomes[at] = error

    def _insert(
        self, writer: SmallWriter, batch: Sequence[_Request], outcomes: list[_Outcome]
    ) -> None:
        now_us = self._clock.now_us()
        rows: list[Row] = []
        places: list[int] = []
        for at, request in enumerate(batch):
            if isinstance(request, _Insert) and not self._tree.exists(request.file):
                rows.append((request.namespace, request.path, now_us, request.body))
                places.append(at)
        taken = writer.insert(rows)
        for position, at in enumerate(places):
            outcomes[at] = 0 if position in taken else 1

    def _place(
        self, writer: SmallWriter, batch: Sequence[_Request], outcomes: list[_Outcome]
    ) -> None:
        for at, request in enumerate(batch):
            if not isinstance(request, _Place) or writer.has(request.namespace, request.path):
                continue
            try:
                request.link()
                outcomes[at] = 1
            except FileExistsError:
                outcomes[at] = 0
            except OSError as error:
                outcomes[at] = error  # as it is: its caller knows what a missing file means


def _closed() -> TarnError:
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the block store is closed")


def _settle(batch: Sequence[_Waiter], outcomes: Sequence[_Outcome]) -> None:
    for (_, done), outcome in zip(batch, outcomes, strict=True):
        if done.done():
            continue  # its caller was cancelled
        if isinstance(outcome, BaseException):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)


def _end(ended: asyncio.Future[None]) -> None:
    ended.set_result(None)
