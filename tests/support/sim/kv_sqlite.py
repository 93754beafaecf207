"""A simulated embedded store: one linearised store, shared by all processes, with group writes.

Each process queues its writes and applies them in transactions; a write becomes visible and durable at one
moment. If a process dies, its queued writes are lost. The answer to a transaction may be lost, with or
without its effect. A partition is dropped in pieces, as the real driver drops it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import pyarrow as pa
from tests.support.sim.clock import SimClock
from tests.support.sim.faults import FaultInjector, refused

from tarn.core.errors import TarnError
from tarn.kv.mem import MemKv
from tarn.kv.paging import sifted
from tarn.kv.port import (
    SCAN_LIMIT_MAX,
    Companion,
    CompanionName,
    Group,
    OutcomeUnknownError,
    Partition,
    PartitionInfo,
    PartitionKind,
    Predicate,
    Row,
    RowFilter,
    RowName,
    SiftedPage,
    Versioned,
)

__all__ = ["SimSqlite"]

R = TypeVar("R")
_CHUNK_ROWS = 2
_EXAMINED_ROWS = 20


class SimSqlite:
    """The file that all processes share."""

    def __init__(self, faults: FaultInjector) -> None:
        self._faults = faults
        self._rows = MemKv()

    def open(self, clock: SimClock) -> _Process:
        """Returns the handle of one process."""
        del clock  # the order of transactions decides, not a clock
        return _Process(self._rows, self._faults)

    def token_names(self) -> list[str]:
        """Returns the names of the partitions of staging tokens, dropped ones too; for checkers."""
        return [name for name in self._rows.partition_names() if ":" in name]

    async def peek(self, partition: str) -> tuple[dict[bytes, bytes], list[Companion]]:
        """Returns all rows and companions of a partition at this moment, without faults; for checkers."""
        kind = self._rows.partition_names().get(partition)
        if kind is None:
            return {}, []
        rows = await self._rows.scan(Partition(partition, kind), b"", None, SCAN_LIMIT_MAX)
        companions = await self._rows.scan_companions(
            Partition(partition, kind), b"", None, SCAN_LIMIT_MAX
        )
        return dict(rows), companions


class _Process:
    """`Kv` of one process; `crash` ends it."""

    def __init__(self, rows: MemKv, faults: FaultInjector) -> None:
        self._rows = rows
        self._faults = faults
        self._is_dead = False

    def crash(self) -> None:
        """Drops the queued writes."""
        self._is_dead = True

    async def _read(self, what: str, act: Callable[[], Awaitable[R]]) -> R:
        await self._faults.hop(what)
        self._faults.refuse(what)
        answer = await act()
        await self._faults.hop(what)
        return answer

    async def _write(self, what: str, act: Callable[[], Awaitable[R]]) -> R:
        """Applies a write in a group write."""
        await self._faults.hop(what)
        self._faults.refuse(what)
        await self._faults.hop(what)
        if self._is_dead:
            raise refused(what)
        if self._faults.fails(self._faults.profile.lost_rate):
            if self._faults.random.random() < 0.5:
                await act()
            await self._faults.hop(what)
            raise OutcomeUnknownError(f"the commit of {what} did not answer")
        answer = await act()
        await self._faults.hop(what)
        return answer

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        self._faults.raise_unavailable("get_many")
        return await self._read(
            _hop("read", partition), lambda: self._rows.get_many(partition, keys, settle=settle)
        )

    async def get_together(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        """See `ReadsTogether.get_together`."""
        self._faults.raise_unavailable("get_many")
        return await self._read("read record", lambda: self._rows.get_together(rows))

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`; raises when nothing was written, as the real drivers may."""
        self._faults.raise_unavailable("set_many")
        try:
            return await self._write(
                _hop("write", partition), lambda: self._rows.set_many(partition, groups)
            )
        except TarnError as error:
            return [error for _ in groups]

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
        self._faults.raise_unavailable("set_if")
        return await self._write(
            "change record",
            lambda: self._rows.set_if(partition, key, value, predicate, companions=companions),
        )

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        self._faults.raise_unavailable("delete_many")
        await self._write("clean", lambda: self._rows.delete_many(partition, keys))

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        self._faults.raise_unavailable("delete_if")
        await self._write(
            "change record",
            lambda: self._rows.delete_if(partition, key, predicate, companions=companions),
        )

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        self._faults.raise_unavailable("scan")
        return await self._read("scan", lambda: self._rows.scan(partition, start, end, limit))

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        return await sifted(self, partition, start, end, limit, unwanted, _EXAMINED_ROWS)

    def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Not used: `KvLink` reads pages."""
        raise NotImplementedError

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        self._faults.raise_unavailable("scan_companions")
        return await self._read(
            "scan", lambda: self._rows.scan_companions(partition, start, end, limit)
        )

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        self._faults.raise_unavailable("delete_companions")
        await self._write("clean", lambda: self._rows.delete_companions(partition, names))

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        self._faults.raise_unavailable("drop_partition")
        while rows := await self._rows.scan(partition, b"", None, _CHUNK_ROWS):
            keys = [key for key, _ in rows]
            await self._write("clean", lambda keys=keys: self._rows.delete_many(partition, keys))  # type: ignore[misc]
        if await self._rows.scan_companions(partition, b"", None, 1):
            await self._write("clean", lambda: self._rows.drop_partition(partition))

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`."""
        await self._faults.hop("scan")
        self._faults.refuse("the list of partitions")
        async for each in self._rows.partitions(prefix):
            yield each

    async def close(self) -> None:
        """Does nothing: the file outlives its processes."""


def _hop(verb: str, partition: Partition) -> str:
    if partition.kind is PartitionKind.PLAIN:
        return f"{verb} rows"
    return "read record" if verb == "read" else "change record"
