"""Group writes: one thread per process makes the names of blocks appear in a store.

A caller that needs a name waits in the queue of this thread. The thread locks out the other processes, takes
all requests that are ready, and executes them in one transaction with one fsync. Rows of small bodies and
links of large ones appear under the same lock, so a path is written once, whatever the sizes of two
competing bodies.

The lock is a `flock` on a separate file: it queues processes fairly enough, and the death of a process
releases it. The wait for the lock has no bound here; callers have their own deadlines. The thread takes
requests only once it holds the lock. Until then the cancellation of a caller also removes its request and
body. Afterwards the request is executed, and its outcome is discarded.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tarn.block.local.faults import from_os, from_sqlite
from tarn.block.local.small import Row, SmallWriter
from tarn.block.local.tree import Tree
from tarn.block.port import closed_error
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["GroupWriter"]

HELD_REQUESTS_MAX: Final = 4096
HELD_BYTES_MAX: Final = 64 << 20
"""Bounds on the unanswered requests of this process, queued or being written. A request above either bound
is rejected, unless there is no other. Another process that keeps the lock (a stopped process, a disk
that hangs) must not fill the memory of this one."""
_BATCH_MAX: Final = 256
_BATCH_BYTES_MAX: Final = 4 << 20
_DOING: Final = "cannot write small blocks"


# Requests are compared by identity, so that a queue finds one without running any code of Python's.


class _Insert:
    __slots__ = ("body", "file", "namespace", "path")

    def __init__(self, namespace: int, path: str, file: str, body: bytes) -> None:
        self.namespace = namespace
        self.path = path
        self.file = file  # where a large block of this name would be
        self.body = body


@dataclass(slots=True, eq=False)
class _Link:
    namespace: int
    path: str
    link: Callable[[], None]


@dataclass(slots=True, eq=False)
class _Delete:
    namespace: int
    paths: Sequence[str]


@dataclass(slots=True, eq=False)
class _Register:
    name: str


_Request = _Insert | _Link | _Delete | _Register
_Outcome = int | BaseException


class _Waiter:
    """A request whose caller waits; `done` is its outcome."""

    __slots__ = ("done", "request", "size_bytes")

    def __init__(self, request: _Request, size_bytes: int, done: asyncio.Future[int]) -> None:
        self.request = request
        self.size_bytes = size_bytes
        self.done = done


class GroupWriter:
    """The queue and its thread.

    Args:
        database: the sqlite file of small bodies.
        lock: the lock file's descriptor; this object closes it.
        tree: holds the large blocks.
        clock: gives the rows' times.
        fsync: whether a transaction waits for the disk.
    """

    def __init__(self, database: Path, lock: int, tree: Tree, clock: Clock, *, fsync: bool) -> None:
        self._database = database
        self._lock = lock
        self._tree = tree
        self._clock = clock
        self._fsync = fsync
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # Oldest first. Callers append and remove, the thread takes from the left: each is one step, without a lock.
        # Invariant: while there is a request, the thread is awake or has a wake to come.
        self._waiting: deque[_Waiter] = deque()
        # Not a condition: to notify it costs several calls for each write, and a queue is in C.
        self._wakes: SimpleQueue[None] = SimpleQueue()
        # The thread changes it after a defect only; what is queued then is answered by `_end`.
        self._open = True
        self._taken: list[_Waiter] = []  # taken by the thread, not answered yet
        # Changed only on the event loop's thread.
        self.held_requests = 0
        self.held_bytes = 0
        # Daemonic, because a process that forgot to close must still be able to end: acknowledged writes
        # are already on disk.
        self._thread = threading.Thread(target=self._run, name="tarn-block-commit", daemon=True)
        self._thread.start()

    def insert(self, namespace: int, path: str, file: str, body: bytes) -> Awaitable[int]:
        """Adds a small body; the answer is 0 if a small or a large block has the path. `file` is the path of
        such a large block, relative to the root."""
        return self._ask(_Insert(namespace, path, file, body), len(body))

    async def place(self, namespace: int, path: str, link: Callable[[], None]) -> bool:
        """Calls `link` under the lock; returns False if a small or a large block has the path.

        Raises:
            OSError: `link` failed.
        """
        return bool(await self._ask(_Link(namespace, path, link)))

    async def delete(self, namespace: int, paths: Sequence[str]) -> None:
        """Removes small bodies."""
        await self._ask(_Delete(namespace, paths))

    async def register(self, name: str) -> int:
        """Returns the number of a namespace; a new namespace is registered and its directory created."""
        return await self._ask(_Register(name))

    async def close(self) -> None:
        """Executes the queued requests and returns when the thread is over. Idempotent."""
        self._open = False
        self._wakes.put(None)
        await asyncio.shield(self._ended)
        # The thread sends the end before it is over: the report of a defect (`threading.excepthook`) comes after.
        await asyncio.to_thread(self._thread.join)

    async def _ask(self, request: _Request, size_bytes: int = 0) -> int:
        """Queues a request, and returns its outcome."""
        requests, total = self.held_requests + 1, self.held_bytes + size_bytes
        if self.held_requests and (requests > HELD_REQUESTS_MAX or total > HELD_BYTES_MAX):
            raise _full(self.held_requests, self.held_bytes)
        if not self._open:
            raise closed_error()
        self.held_requests, self.held_bytes = requests, total
        done: asyncio.Future[int] = self._loop.create_future()
        waiting, waiter = self._waiting, _Waiter(request, size_bytes, done)
        waiting.append(waiter)
        if len(waiting) == 1:
            self._wakes.put(None)
        try:
            return await done
        except asyncio.CancelledError:
            with suppress(ValueError):  # the thread has it, and `_settle` releases it
                waiting.remove(waiter)
                self._release(waiter)
            raise

    def _release(self, waiter: _Waiter) -> None:
        self.held_requests -= 1
        self.held_bytes -= waiter.size_bytes

    def _run(self) -> None:
        writer: SmallWriter | None = None
        try:
            while self._wait():
                writer = self._serve(writer)
        finally:
            # After a close nothing is left here. After a defect the waiters must not hang.
            self._open = False
            batch = self._taken
            self._answer(self._settle, batch, [closed_error()] * len(batch))
            if writer is not None:
                writer.close()
            os.close(self._lock)
            self._answer(self._end)

    def _end(self) -> None:
        """Ends the queue on the event loop's thread, where nothing is queued any more."""
        left = [*self._waiting]
        self._waiting.clear()
        self._settle(left, [closed_error()] * len(left))
        self._ended.set_result(None)

    def _wait(self) -> bool:
        """Waits for a request. Returns False if the store is closed and the queue is empty."""
        while not self._waiting:
            if not self._open:
                return bool(self._waiting)
            self._wakes.get()
        return True

    def _serve(self, writer: SmallWriter | None) -> SmallWriter | None:
        """Executes the ready requests and answers them. The first call opens the connection."""
        outcomes: Sequence[_Outcome]
        try:
            writer = writer or SmallWriter(self._database, fsync=self._fsync)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                self._take()
                outcomes = self._commit(writer, [waiter.request for waiter in self._taken])
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        except (sqlite3.Error, OSError) as error:
            if not self._taken:
                self._take()
            outcomes = [_failure(error)] * len(self._taken)
        batch, self._taken = self._taken, []
        self._answer(self._settle, batch, outcomes)
        return writer

    def _take(self) -> None:
        """Takes the oldest requests. From here on they are executed even if their callers leave."""
        size_bytes = 0
        with suppress(IndexError):  # the queue is empty
            while len(self._taken) < _BATCH_MAX and size_bytes < _BATCH_BYTES_MAX:
                waiter = self._waiting.popleft()
                self._taken.append(waiter)
                size_bytes += waiter.size_bytes

    def _settle(self, batch: Sequence[_Waiter], outcomes: Sequence[_Outcome]) -> None:
        for waiter, outcome in zip(batch, outcomes, strict=True):
            self.held_requests -= 1
            self.held_bytes -= waiter.size_bytes
            done = waiter.done
            if done.done():
                continue  # its caller was cancelled
            if isinstance(outcome, BaseException):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

    def _answer(self, call: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so no caller waits
            self._loop.call_soon_threadsafe(call, *arguments)

    def _commit(self, writer: SmallWriter, batch: Sequence[_Request]) -> list[_Outcome]:
        if not batch:
            return []
        outcomes: list[_Outcome] = [0] * len(batch)
        try:
            if all(isinstance(request, _Link) for request in batch):
                self._place(writer, batch, outcomes)  # nothing to write in sqlite
                return outcomes
            rows = self._rows(batch)
            if len(rows) == len(batch) and writer.insert_alone([*rows.values()]):
                return [1] * len(batch)
            writer.begin()
            self._change(writer, batch, outcomes)
            self._insert(writer, rows, outcomes)
            self._place(writer, batch, outcomes)
            writer.commit()
        except (sqlite3.Error, OSError) as error:
            writer.rollback()
            failure = _failure(error)
            # A link stays, whether or not the rows were written; every other answer depends on the rows.
            for at, request in enumerate(batch):
                if not (isinstance(request, _Link) and outcomes[at] == 1):
                    outcomes[at] = failure
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

    def _rows(self, batch: Sequence[_Request]) -> dict[int, Row]:
        """Returns the rows of the small bodies whose path no large block has, by their positions in the batch."""
        now_us = self._clock.now_us()
        return {
            at: (request.namespace, request.path, now_us, request.body)
            for at, request in enumerate(batch)
            if isinstance(request, _Insert) and not self._tree.exists(request.file)
        }

    def _insert(
        self, writer: SmallWriter, rows: Mapping[int, Row], outcomes: list[_Outcome]
    ) -> None:
        taken = writer.insert([*rows.values()])
        for position, at in enumerate(rows):
            outcomes[at] = 0 if position in taken else 1

    def _place(
        self, writer: SmallWriter, batch: Sequence[_Request], outcomes: list[_Outcome]
    ) -> None:
        for at, request in enumerate(batch):
            if not isinstance(request, _Link) or writer.has(request.namespace, request.path):
                continue
            try:
                request.link()
                outcomes[at] = 1
            except FileExistsError:
                outcomes[at] = 0
            except OSError as error:
                outcomes[at] = error  # unchanged: its caller knows the meaning of a missing file


def _full(requests: int, size_bytes: int) -> TarnError:
    text = (
        f"{requests} writes of {size_bytes} bytes wait in this process for the block store's lock, as"
        f" many as it may hold ({HELD_REQUESTS_MAX} writes, {HELD_BYTES_MAX} bytes); try again later. If"
        " it lasts, look for a process of this store that is stopped, or for a disk that hangs"
    )
    return TarnError(Kind.UNAVAILABLE, Reason.OVERLOADED, text)


def _failure(error: sqlite3.Error | OSError) -> TarnError:
    return from_os(error, _DOING) if isinstance(error, OSError) else from_sqlite(error, _DOING)
