"""`EmbeddedKv`: the KV port on one sqlite file, shared by the processes of one machine.

Guarantees: an acknowledged write is durable (as far as `durability` says), and every read that begins after
it, in any process, sees it. A process that is killed loses no acknowledged write.
Non-guarantees: the pages of a scan are separate reads. With durability "os", a power cut may take the last
acknowledged writes (never a part of a group, never out of order).
Do not fork a process that has the store open. Do not open its file with another copy of the sqlite library
in the same process (docs/design/kv.md, "Embedded store").
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import ParamSpec, TypeVar

import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.embedded import sql
from tarn.kv.embedded.actions import (
    DeleteCompanions,
    DeleteIf,
    DeleteRows,
    DropHead,
    SetBeside,
    SetIf,
    SetRows,
    TrimLog,
)
from tarn.kv.embedded.database import Database, open_database
from tarn.kv.embedded.reader import BulkReader, Reader
from tarn.kv.embedded.transaction_writer import EmbeddedLimits
from tarn.kv.embedded.writer import Writer
from tarn.kv.limits import (
    check_companion_names,
    check_companions,
    check_group,
    check_keys,
    check_register,
    check_row,
    check_scan_limit,
    check_scan_without,
    closed_error,
)
from tarn.kv.port import (
    Companion,
    CompanionName,
    Group,
    Partition,
    PartitionInfo,
    Predicate,
    Row,
    RowFilter,
    RowName,
    SiftedPage,
    Versioned,
)
from tarn.telemetry.calls import COUNTED_TOGETHER, CallMeter
from tarn.telemetry.meters import Histogram
from tarn.telemetry.tracing import TRACEPARENT

__all__ = ["EmbeddedKv", "EmbeddedLimits", "open_embedded"]

_CHUNKS_PER_TRANSACTION = 4
_DELETE_KEYS = 512
_TRIM_ROWS = 20_000

_ROWS_AT_ONCE = 8
"""Rows that `get_together` reads by one statement, whose text depends on their number."""

P = ParamSpec("P")
R = TypeVar("R")


async def open_embedded(
    path: Path,
    *,
    durability: sql.Durability = "fsync",
    limits: EmbeddedLimits | None = None,
    alone: bool = False,
) -> EmbeddedKv:
    """Opens the store in file `path`, or creates it (mode 0600, missing folders with 0700).

    Files of the same name with `-wal`, `-shm`, `-gate`, `-lock` and `-users` appended belong to the store.
    Several processes may open and create it concurrently. Each instance belongs to its event loop.

    Args:
        path: the file, on a local disk.
        durability: "fsync" acknowledges a write when it is on the disk. "os" acknowledges it when the
            operating system has it, which survives a crash of the process but not of the machine.
            Processes may use different values.
        limits: bounds; None for the defaults.
        alone: open the store only if no other process has it open, and keep others out until it is closed.

    Raises:
        TarnError: FAILED_PRECONDITION: the folder is not writable or on a network file system; the file belongs to
            another program or to a newer Tarn; or the store is open elsewhere and one of the two processes wants it
            alone. CORRUPT: the file is damaged. UNAVAILABLE: sqlite failed.
    """
    database = await asyncio.to_thread(open_database, path, durability, alone=alone)
    return EmbeddedKv(database, limits or EmbeddedLimits())


class EmbeddedKv:
    """`Kv` on an open database; made by `open_embedded`.

    A dropped partition keeps its kind and may be written again. It then holds the rows written since the
    drop, and also rows that late writers added while it was being dropped.
    """

    def __init__(self, database: Database, limits: EmbeddedLimits) -> None:
        self._reader = Reader(database.reader)
        self._bulk = BulkReader(database.path)
        self._writer = Writer(database, limits)
        self._chunk_bytes = limits.transaction_bytes_max // _CHUNKS_PER_TRANSACTION
        self._closed = False
        self._reads: CallMeter | None = None
        self._sets: CallMeter | None = None

    def measure_reads(self, meter: CallMeter) -> None:
        """See `tarn.kv.metered.MeasuresReads`."""
        self._reads = meter

    def measure_sets(self, meter: CallMeter) -> None:
        """See `tarn.kv.metered.MeasuresSets`."""
        self._sets = meter

    def measure_batches(self, sizes: Histogram) -> None:
        """See `tarn.kv.metered.MeasuresBatches`."""
        self._writer.sizes = sizes

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`. Many keys are read in several steps, and other tasks run between them.

        Raises:
            TarnError: UNAVAILABLE with `settle`, while a failed transaction may still take effect because the
                disk refuses the write that would overwrite it.
        """
        if len(keys) > sql.KEYS_PER_STATEMENT:
            meter = self._reads
            with nullcontext() if meter is None else meter.call():
                return await self._get_in_steps(partition, keys, settle=settle)
        return self._measured(self._get_settled if settle else self._get, partition, keys)

    def get_at_once(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        """See `ReadsAtOnce.get_at_once`. The metrics have it as a `get_many`."""
        self._check_open()
        return self._measured(self._reader.get_rows, rows)

    def get_at_once_beside(
        self, rows: Sequence[RowName], beside: RowName
    ) -> tuple[list[Versioned | None], Predicate | None]:
        """See `ReadsAtOnce.get_at_once_beside`. Measured as `get_at_once`."""
        self._check_open()
        return self._measured(self._reader.get_rows_beside, rows, beside)

    async def get_together(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        """See `ReadsTogether.get_together`. A few rows are one statement, more are one for each partition. The metrics
        have each as a `get_many`."""
        for partition, _ in rows:
            check_register(partition, "get_together")
        if 0 < len(rows) <= _ROWS_AT_ONCE:
            return self.get_at_once(rows)
        found: dict[RowName, Versioned | None] = {}
        for partition in dict.fromkeys(partition for partition, _ in rows):
            keys = [key for each, key in rows if each == partition]
            values = await self.get_many(partition, keys)
            found.update(zip(((partition, key) for key in keys), values, strict=True))
        return [found[row] for row in rows]

    def _measured(self, read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The hottest reads: measured here, without a coroutine of their own."""
        meter = self._reads
        if meter is None:
            return read(*args, **kwargs)
        if TRACEPARENT.get():
            with meter.call():
                return read(*args, **kwargs)
        meter.begun += 1
        began = meter.now()
        try:
            found = read(*args, **kwargs)
        except BaseException as error:
            meter.end_failed(began, error)
            raise
        meter.ended.append(meter.now() - began)
        if len(meter.ended) >= COUNTED_TOGETHER:
            meter.duration.count_waiting()
        return found

    def _get(self, partition: Partition, keys: Sequence[bytes]) -> list[Versioned | None]:
        if self._closed:
            raise closed_error()
        check_keys(keys)
        return self._reader.get(partition, keys)

    def _get_settled(self, partition: Partition, keys: Sequence[bytes]) -> list[Versioned | None]:
        self._check_readable(keys, settle=True)
        return self._reader.get(partition, keys)

    async def _get_in_steps(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool
    ) -> list[Versioned | None]:
        self._check_readable(keys, settle=settle)
        found: list[Versioned | None] = []
        for at in range(0, len(keys), sql.KEYS_PER_STATEMENT):
            self._check_open()
            found += self._reader.get(partition, keys[at : at + sql.KEYS_PER_STATEMENT])
            await asyncio.sleep(0)
        return found

    def _check_readable(self, keys: Sequence[bytes], *, settle: bool) -> None:
        self._check_open()
        if settle and self._writer.unsettled:
            text = "an earlier transaction failed and its outcome cannot be settled yet; try again"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        check_keys(keys)

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`. A group over a limit fails with INVALID; the other groups are written.

        Raises:
            TarnError: INVALID: the partition is of the other kind. UNAVAILABLE: the store is closed.
        """
        self._check_writable(partition)
        outcomes: list[TarnError | None] = [None] * len(groups)
        action = SetRows(partition)
        members: list[int] = []
        for index, group in enumerate(groups):
            try:
                size_bytes = check_group(group)
            except TarnError as error:
                outcomes[index] = error
                continue
            if members and action.size_bytes + size_bytes > self._chunk_bytes:
                await self._land(action, members, outcomes)
                action, members = SetRows(partition), []
            action.add(group, size_bytes)
            members.append(index)
        if members:
            await self._land(action, members, outcomes)
        return outcomes

    def set_beside(
        self, partition: Partition, group: Group, beside: RowName
    ) -> Awaitable[Predicate | None]:
        """See `SetsBeside.set_beside`. The metrics have it as a `set_many`."""
        check_register(beside[0], "set_beside")
        self._check_writable(partition)
        action = SetBeside(partition, group, check_group(group), beside)
        meter = self._sets
        if meter is None:
            return self._writer.submit(action)
        if TRACEPARENT.get():
            return self._traced_set(meter, action)
        return self._writer.submit(action, meter)

    async def _traced_set(self, meter: CallMeter, action: SetBeside) -> Predicate | None:
        with meter.call():
            return await self._writer.submit(action)

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
        check_register(partition, "set_if")
        check_row(key, value)
        check_companions(companions)
        self._check_writable(partition)
        return await self._writer.submit(SetIf(partition, key, value, predicate, companions))

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`. Many keys are removed in several transactions."""
        check_keys(keys)
        self._check_writable(partition)
        for at in range(0, len(keys), _DELETE_KEYS):
            await self._writer.submit(DeleteRows(partition, keys[at : at + _DELETE_KEYS]))

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        check_register(partition, "delete_if")
        check_keys((key,))
        check_companions(companions)
        self._check_writable(partition)
        await self._writer.submit(DeleteIf(partition, key, predicate, companions))

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`. Here a page is one snapshot."""
        check_scan_limit(limit)
        self._check_open()
        return self._reader.page(partition, start, end, limit)

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        check_scan_without(limit, unwanted)
        self._check_open()
        page = self._reader.sifted_quickly(partition, start, end, limit, unwanted)
        if page is None:
            page = await self._bulk.sifted(partition, start, end, limit, unwanted)
        return page

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`. Each batch is a page and one snapshot; the next batch may be newer."""
        self._check_open()
        async for batch in self._bulk.batches(partition, start, end):
            yield batch

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        check_scan_limit(limit)
        self._check_open()
        return self._reader.companions(partition, start, end, limit)

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`. Many are removed in several transactions."""
        check_companion_names(names)
        self._check_writable(partition)
        keys = [key for _, key in names]
        for at in range(0, len(keys), _DELETE_KEYS):
            await self._writer.submit(DeleteCompanions(partition, keys[at : at + _DELETE_KEYS]))

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`. Later writes reuse the space; the file does not shrink."""
        self._check_writable(partition)
        dropped = 0
        while count := await self._writer.submit(DropHead(partition)):
            dropped += count
        if dropped >= _TRIM_ROWS:
            await self._writer.submit(TrimLog())

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`. Yields those that hold rows, in order of their names."""
        async for listed in self._reader.all_partitions(prefix, self._check_open):
            yield listed

    async def close(self) -> None:
        """See `Kv.close`. New operations fail; queued writes are written and answered."""
        self._closed = True
        await self._bulk.close()
        self._reader.close()
        # Last, because the last connection of the machine that closes empties the log.
        await self._writer.close()

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _check_writable(self, partition: Partition) -> None:
        # The writer thread checks again inside the transaction; this check answers without one.
        if self._closed:
            raise closed_error()
        self._reader.check_kind(partition)

    async def _land(
        self, action: SetRows, members: list[int], outcomes: list[TarnError | None]
    ) -> None:
        try:
            await self._writer.submit(action)
        except TarnError as error:
            for index in members:
                outcomes[index] = error
