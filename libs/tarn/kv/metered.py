"""Metrics of a store: how long each operation takes, how often it fails, and why.

`open_kv` wraps every driver in `MeteredKv`. It has these metrics (`tarn.telemetry.metric_table`):

- `kv.duration`, by operation, in seconds: one value per call, successful or not. `scan_arrow` records one
  value per batch, without the consumer's own time. `set_many` records one value per call, however many
  groups it writes.
- `kv.failed`, by operation and reason: calls that raised, and for `set_many` also each group that failed. A
  lost compare-and-set is counted with reason `REF_MOVED`, although it is an answer rather than a fault.
- `kv.in_flight`, by operation: calls that are waiting.

Counting costs some 0.5 µs per call; the export costs nothing while no exporter reads the meters.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol, cast, runtime_checkable

import pyarrow as pa

from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.kv.port import (
    Companion,
    CompanionName,
    Group,
    ListingKv,
    Partition,
    PartitionInfo,
    Predicate,
    ReadsAtOnce,
    ReadsTogether,
    Row,
    RowFilter,
    SetsBeside,
    SiftedPage,
    Versioned,
)
from tarn.telemetry.calls import CallMeter
from tarn.telemetry.meters import Histogram, Meters
from tarn.telemetry.tracing import TRACEPARENT

__all__ = ["MeasuresBatches", "MeasuresReads", "MeasuresSets", "MeteredKv"]


@runtime_checkable
class MeasuresReads(Protocol):
    """A driver that measures its `get_many` (and `get_together`) by itself, which saves a coroutine for each read."""

    def measure_reads(self, meter: CallMeter) -> None:
        """Measures each of these calls from now on, as `with meter.call():` would."""


@runtime_checkable
class MeasuresSets(Protocol):
    """A store that measures its `set_beside` by itself, as `set_many`."""

    def measure_sets(self, meter: CallMeter) -> None:
        """Measures each `set_beside` from now on, as `with meter.call():` would."""


@runtime_checkable
class MeasuresBatches(Protocol):
    """A driver that writes several calls together."""

    def measure_batches(self, sizes: Histogram) -> None:
        """Records the number of writes of each transaction or request from now on."""


class MeteredKv:
    """`Kv` that measures each operation and forwards it.

    Args:
        kv: the store; closing the wrapper closes it.
        clock: measures durations with its monotonic time.
        meters: creates the meters.
    """

    def __init__(self, kv: ListingKv, clock: Clock, meters: Meters) -> None:
        self._kv = kv
        self._get_many = CallMeter("kv", "get_many", meters, clock)
        if isinstance(kv, MeasuresReads):
            kv.measure_reads(self._get_many)
            self.get_many = kv.get_many  # type: ignore[method-assign]
            if isinstance(kv, ReadsTogether):
                self.get_together = kv.get_together
            if isinstance(kv, ReadsAtOnce):
                self.get_at_once = kv.get_at_once
                self.get_at_once_beside = kv.get_at_once_beside
        if isinstance(kv, MeasuresBatches):
            kv.measure_batches(meters.histogram("kv.batch"))
        self._set_many = CallMeter("kv", "set_many", meters, clock)
        if isinstance(kv, MeasuresSets) and isinstance(kv, SetsBeside):
            kv.measure_sets(self._set_many)
            self.set_beside = kv.set_beside
        self._set_if = CallMeter("kv", "set_if", meters, clock)
        self._delete_many = CallMeter("kv", "delete_many", meters, clock)
        self._delete_if = CallMeter("kv", "delete_if", meters, clock)
        self._scan = CallMeter("kv", "scan", meters, clock)
        self._scan_without = CallMeter("kv", "scan_without", meters, clock)
        self._scan_arrow = CallMeter("kv", "scan_arrow", meters, clock)
        self._scan_companions = CallMeter("kv", "scan_companions", meters, clock)
        self._delete_companions = CallMeter("kv", "delete_companions", meters, clock)
        self._drop_partition = CallMeter("kv", "drop_partition", meters, clock)

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        meter = self._get_many
        if TRACEPARENT.get():
            with meter.call():
                return await self._kv.get_many(partition, keys, settle=settle)
        meter.begun += 1
        began = meter.now()
        try:
            found = await self._kv.get_many(partition, keys, settle=settle)
        except BaseException as error:
            meter.end_failed(began, error)
            raise
        meter.end(began)
        return found

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        meter = self._set_many
        if TRACEPARENT.get():
            with meter.call():
                outcomes = await self._kv.set_many(partition, groups)
        else:
            meter.begun += 1
            began = meter.now()
            try:
                outcomes = await self._kv.set_many(partition, groups)
            except BaseException as error:
                meter.end_failed(began, error)
                raise
            meter.end(began)
        for outcome in filter(None, outcomes):
            self._set_many.fail(outcome)
        return outcomes

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
        with self._set_if.call():
            return await self._kv.set_if(partition, key, value, predicate, companions=companions)

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        with self._delete_many.call():
            await self._kv.delete_many(partition, keys)

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        with self._delete_if.call():
            await self._kv.delete_if(partition, key, predicate, companions=companions)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        with self._scan.call():
            return await self._kv.scan(partition, start, end, limit)

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        with self._scan_without.call():
            return await self._kv.scan_without(partition, start, end, limit, unwanted)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        # Drivers are async generators. Closing theirs with ours releases the resources of a scan.
        batches = cast(
            "AsyncGenerator[pa.RecordBatch, None]", self._kv.scan_arrow(partition, start, end)
        )
        async with aclosing(batches):
            while True:
                try:
                    with self._scan_arrow.call():
                        batch = await anext(batches)
                except StopAsyncIteration:
                    return
                yield batch

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        with self._scan_companions.call():
            return await self._kv.scan_companions(partition, start, end, limit)

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        with self._delete_companions.call():
            await self._kv.delete_companions(partition, names)

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        with self._drop_partition.call():
            await self._kv.drop_partition(partition)

    def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`. Not measured, because only tools call it."""
        return self._kv.partitions(prefix)

    async def close(self) -> None:
        """See `Kv.close`."""
        await self._kv.close()
