"""Code for the Python processes of executors: an open block store, and tasks over Arrow batches.

Spark uses a Python process for many tasks. It keeps one event loop and one open store, because opening a bucket costs
several requests. A `TarnError` crosses Spark, which knows only texts, as a token in the text.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import pickle
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Final, Protocol, TypeVar
from zipimport import zipimporter

import pyarrow as pa

from tarn.block.port import BlockStore
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.process.system import SystemClock

__all__ = [
    "BatchWork",
    "ExecutorError",
    "PartitionWork",
    "StorePlace",
    "arrow_task",
    "call_with_store",
    "close_stores",
    "error_in",
    "partition_task",
]

T = TypeVar("T")
Given_contra = TypeVar("Given_contra", contravariant=True)
Made_co = TypeVar("Made_co", covariant=True)

_TOKEN: Final = re.compile(r"tarn-error:([A-Za-z0-9+/=]+);")


class StorePlace(Protocol):
    """Opens the block store in any process. Can be pickled. `tarn.block.opening.BlockPlace` is one."""

    async def open(self, clock: Clock) -> BlockStore:
        """Opens the block store; the caller closes it."""
        ...


class BatchWork(Protocol):
    """Work on one Arrow batch. Can be pickled."""

    def __call__(self, blocks: BlockStore, batch: pa.RecordBatch) -> AsyncIterator[pa.RecordBatch]:
        """Yields the batches that come from this one."""
        ...


class PartitionWork(Protocol[Given_contra, Made_co]):
    """Work on all items of a partition of an RDD. Can be pickled."""

    def __call__(self, blocks: BlockStore, items: Iterable[Given_contra]) -> AsyncIterator[Made_co]:
        """Yields the items that come from these."""
        ...


class ExecutorError(RuntimeError):
    """A `TarnError` on its way through Spark."""

    def __init__(self, error: TarnError) -> None:
        told = json.dumps([error.kind.value, error.reason.value, error.message]).encode()
        super().__init__(f"{error.message} tarn-error:{base64.b64encode(told).decode()};")


def error_in(text: str) -> TarnError | None:
    """Returns the `TarnError` of an executor that a text of Spark holds; None if it holds none."""
    found = _TOKEN.search(text)
    if found is None:
        return None
    kind, reason, message = json.loads(base64.b64decode(found[1]))
    return TarnError(Kind(kind), Reason(reason), message)


class _Worker:
    """The event loop of this process, and its store."""

    def __init__(self, place: StorePlace) -> None:
        self.runner = asyncio.Runner()
        try:
            self.blocks = self.runner.run(place.open(SystemClock()))
        except BaseException:
            self.runner.close()
            raise

    def close(self) -> None:
        self.runner.run(self.blocks.close())
        self.runner.close()


# Module state, because Spark gives its tasks no other place that lives as long as the process. Invariant: only the
# thread that runs tasks uses it.
_workers: dict[bytes, _Worker] = {}


def _worker(place: StorePlace) -> _Worker:
    _forget_archives()
    key = pickle.dumps(place)
    if key not in _workers:
        _workers[key] = _Worker(place)
        # Spark collects garbage after each task. What is loaded now stays until the process ends.
        gc.freeze()
    return _workers[key]


def _forget_archives() -> None:
    """Drops what Python knows of archives of code; an import opens them again.

    Before each task, Spark lets Python look at all of them again. Its own archive is read anew then, in Python code
    and once for each package in it: that took 0.06 s and more of a task.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def close_stores() -> None:
    """Closes the stores of this process. Executors do without: Spark kills their processes."""
    while _workers:
        _workers.popitem()[1].close()
    gc.unfreeze()


def call_with_store(place: StorePlace, work: Callable[[BlockStore], Awaitable[T]]) -> T:
    """Runs `work` with the store of this process; for tasks of RDDs.

    Raises:
        ExecutorError: for a `TarnError`.
    """
    try:
        worker = _worker(place)

        async def run() -> T:
            return await work(worker.blocks)

        return worker.runner.run(run())
    except TarnError as error:
        raise ExecutorError(error) from error


def arrow_task(
    place: StorePlace, work: BatchWork
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Returns a function for `DataFrame.mapInArrow`.

    Raises:
        ExecutorError: in the task, for a `TarnError`.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            worker = _worker(place)
            for batch in batches:
                yield from _stepped(worker, work(worker.blocks, batch))
        except TarnError as error:
            raise ExecutorError(error) from error

    return task


def partition_task(
    place: StorePlace, work: PartitionWork[Given_contra, Made_co]
) -> Callable[[Iterable[Given_contra]], Iterable[Made_co]]:
    """Returns a function for `RDD.mapPartitions`.

    Raises:
        ExecutorError: in the task, for a `TarnError`.
    """

    def task(items: Iterable[Given_contra]) -> Iterator[Made_co]:
        try:
            worker = _worker(place)
            yield from _stepped(worker, work(worker.blocks, items))
        except TarnError as error:
            raise ExecutorError(error) from error

    return task


def _stepped(worker: _Worker, found: AsyncIterator[T]) -> Iterator[T]:
    """Yields the items of an async generator, by running the event loop from one item to the next."""
    # `Runner.run` would set the handler of a signal each time. Python then writes out the one before, as a text: with
    # the item that its task has returned, which may be large.
    loop = worker.runner.get_loop()

    async def following() -> T | None:
        return await anext(found, None)

    try:
        while (item := loop.run_until_complete(following())) is not None:
            yield item
    finally:
        worker.runner.run(_closed(found))


async def _closed(found: AsyncIterator[object]) -> None:
    async with aclosing(found):  # type: ignore[type-var]  # an async generator, which its type does not say
        pass
