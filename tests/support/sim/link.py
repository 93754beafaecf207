"""The connection between a replica and a store: a request that was sent runs without its sender.

A replica's tasks may be cancelled at any await, because it crashed or its client hung up. The store decides
what becomes of the requests that it had sent before. Requests that a dead process tries to send (from a
`finally`, for example) are not sent.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from tests.support.sim.faults import refused

from tarn.aio.task_set import TaskSet
from tarn.core.errors import TarnError
from tarn.kv.paging import pages_of
from tarn.kv.port import (
    Companion,
    CompanionName,
    Group,
    Kv,
    Partition,
    Predicate,
    ReadsTogether,
    Row,
    RowFilter,
    RowName,
    SiftedPage,
    Versioned,
    row_batch,
)

__all__ = ["KvLink", "Wire"]

R = TypeVar("R")

Trace = Callable[[str], None]


class Wire:
    """Sends work that outlives its caller.

    Args:
        tasks: tasks of the world, which outlive the replica.
        trace: called with each operation and its answer.

    Attributes:
        is_cut: whether the process is dead.
    """

    def __init__(self, name: str, tasks: TaskSet, trace: Trace | None) -> None:
        self._name = name
        self._tasks = tasks
        self._trace = trace
        self.is_cut = False

    def cut(self) -> None:
        """Cuts the wire: the process is dead and sends nothing more."""
        self.is_cut = True

    async def send(self, what: str, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Does the work in a separate task and waits for its answer."""
        if self.is_cut:
            raise refused(f"{what} of a dead process")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                result = await work()
            except Exception as error:  # noqa: BLE001 - the waiting caller gets it
                self.note(what, repr(error))
                if not answer.done():
                    answer.set_exception(error)
                return
            self.note(what, result)
            if not answer.done():
                answer.set_result(result)

        self.note(what, "sent")
        # The task has no process in its context, so it continues while its sender pauses.
        contextvars.Context().run(self._tasks.spawn, run())
        return await answer

    def leave(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Goes on with a request whose caller has stopped waiting."""

        async def run() -> None:
            with suppress(TarnError):
                await work()

        contextvars.Context().run(self._tasks.spawn, run())

    def note(self, what: str, answer: object) -> None:
        """Tells the trace of a request, or of its answer."""
        if self._trace is not None:
            self._trace(f"  {self._name} {what}: {_shown(answer)}")


def _shown(answer: object) -> str:
    text = answer if isinstance(answer, str) else repr(answer)
    return text if len(text) <= 400 else f"{text[:400]}…"


class KvLink:
    """`Kv` of one replica, over a wire. Bulk scans are read in small pages, with time between them.

    Args:
        kv: this replica's handle of the simulated store.
        page_rows: rows in one page of a bulk scan.
    """

    def __init__(self, kv: Kv, wire: Wire, page_rows: int) -> None:
        self._kv = kv
        self._wire = wire
        self._page_rows = page_rows
        if isinstance(kv, ReadsTogether):
            self._read_together = kv.get_together
            self.get_together = self._get_together

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        what = f"get_many {partition.name} {list(keys)} settle={settle}"
        return await self._wire.send(
            what, lambda: self._kv.get_many(partition, keys, settle=settle)
        )

    async def _get_together(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        """See `ReadsTogether.get_together`."""
        what = f"get_together {[(partition.name, key) for partition, key in rows]}"
        return await self._wire.send(what, lambda: self._read_together(rows))

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        what = f"set_many {partition.name} {[group.rows for group in groups]}"
        return await self._wire.send(what, lambda: self._kv.set_many(partition, groups))

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """See `Kv.set_if`."""
        what = f"set_if {partition.name} {key!r} if {predicate!r}"
        return await self._wire.send(
            what, lambda: self._kv.set_if(partition, key, value, predicate, companions=companions)
        )

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        what = f"delete_many {partition.name} {list(keys)}"
        await self._wire.send(what, lambda: self._kv.delete_many(partition, keys))

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        what = f"delete_if {partition.name} {key!r} if {predicate!r}"
        await self._wire.send(
            what, lambda: self._kv.delete_if(partition, key, predicate, companions=companions)
        )

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        what = f"scan {partition.name} from {start!r} limit {limit}"
        return await self._wire.send(what, lambda: self._kv.scan(partition, start, end, limit))

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        what = f"scan_without {partition.name} from {start!r} limit {limit}"
        return await self._wire.send(
            what, lambda: self._kv.scan_without(partition, start, end, limit, unwanted)
        )

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        async for page in pages_of(self, partition, start, end, self._page_rows):
            keys, values = zip(*page, strict=True)
            yield row_batch(keys, values)

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        what = f"scan_companions {partition.name} from {start!r} limit {limit}"
        return await self._wire.send(
            what, lambda: self._kv.scan_companions(partition, start, end, limit)
        )

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        what = f"delete_companions {partition.name} {names}"
        await self._wire.send(what, lambda: self._kv.delete_companions(partition, names))

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        what = f"drop_partition {partition.name}"
        await self._wire.send(what, lambda: self._kv.drop_partition(partition))

    async def close(self) -> None:
        """Does nothing: the store outlives the replica."""
