"""Metrics of a store: how long each operation takes, how often it fails, and why.

`open_kv` wraps every driver in `MeteredKv`. Two meters are exported, as `docs/operate/metrics.md` describes:

- `kv.duration`, by operation, in seconds: one value per call, successful or not. `scan_arrow` records one
  value per batch, without the consumer's own time. `set_many` records one value per call, however many
  groups it writes.
- `kv.failed`, by operation and reason: calls that raised, and for `set_many` also each group that failed. A
  lost compare-and-set is counted with reason `REF_MOVED`, although it is an answer rather than a fault.

Counting costs about 0.6 µs per call; the export costs nothing while no exporter reads the meters.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Protocol, cast

import pyarrow as pa

from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.kv.port import Group, Listed, ListingKv, Partition, Predicate, Row, SiftedPage, Versioned

__all__ = ["Counter", "Histogram", "MeteredKv", "Meters"]

_OTHER = "OTHER"
"""The reason counted for exceptions other than `TarnError`: a cancelled call or a defect."""


class Counter(Protocol):
    """A number that only grows."""

    def add(self, amount: int = 1) -> None:
        """Adds `amount`."""
        ...


class Histogram(Protocol):
    """A distribution of values in buckets."""

    def record(self, value: float) -> None:
        """Records one value."""
        ...


class Meters(Protocol):
    """Creates meters; `tarn.rpc.process.telemetry.Meters` implements it."""

    def counter(self, name: str, **attributes: str) -> Counter:
        """Returns the counter with this name and these attributes."""
        ...

    def histogram(self, name: str, **attributes: str) -> Histogram:
        """Returns the histogram, in seconds, with this name and these attributes."""
        ...


class _Operation:
    """The meters of one operation; `with operation.call():` measures a call."""

    __slots__ = ("_meters", "duration", "name", "now")

    def __init__(self, name: str, meters: Meters, clock: Clock) -> None:
        self.name = name
        self.now = clock.monotonic
        self.duration = meters.histogram("kv.duration", operation=name)
        self._meters = meters

    def call(self) -> _Call:
        return _Call(self)

    def fail(self, error: BaseException) -> None:
        reason = error.reason.value if isinstance(error, TarnError) else _OTHER
        self._meters.counter("kv.failed", operation=self.name, reason=reason).add()


class _Call:
    """One running call. A class, because `contextmanager` would cost three times as much."""

    __slots__ = ("_began", "_operation")

    def __init__(self, operation: _Operation) -> None:
        self._operation = operation

    def __enter__(self) -> None:
        self._began = self._operation.now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._operation.duration.record(self._operation.now() - self._began)
        if error is not None and not isinstance(error, StopAsyncIteration):
            self._operation.fail(error)


class MeteredKv:
    """`Kv` that measures each operation and forwards it.

    Args:
        kv: the store; closing the wrapper closes it.
        clock: measures durations with its monotonic time.
        meters: creates the meters.
    """

    def __init__(self, kv: ListingKv, clock: Clock, meters: Meters) -> None:
        self._kv = kv
        self._get_many = _Operation("get_many", meters, clock)
        self._set_many = _Operation("set_many", meters, clock)
        self._set_if = _Operation("set_if", meters, clock)
        self._delete_many = _Operation("delete_many", meters, clock)
        self._delete_if = _Operation("delete_if", meters, clock)
        self._scan = _Operation("scan", meters, clock)
        self._scan_without = _Operation("scan_without", meters, clock)
        self._scan_arrow = _Operation("scan_arrow", meters, clock)
        self._drop_partition = _Operation("drop_partition", meters, clock)

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        with self._get_many.call():
            return await self._kv.get_many(partition, keys, settle=settle)

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        with self._set_many.call():
            outcomes = await self._kv.set_many(partition, groups)
        for outcome in filter(None, outcomes):
            self._set_many.fail(outcome)
        return outcomes

    async def set_if(
        self, partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        """See `Kv.set_if`."""
        with self._set_if.call():
            return await self._kv.set_if(partition, key, value, predicate)

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        with self._delete_many.call():
            await self._kv.delete_many(partition, keys)

    async def delete_if(self, partition: Partition, key: bytes, predicate: Predicate) -> None:
        """See `Kv.delete_if`."""
        with self._delete_if.call():
            await self._kv.delete_if(partition, key, predicate)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        with self._scan.call():
            return await self._kv.scan(partition, start, end, limit)

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: bytes
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        with self._scan_without.call():
            return await self._kv.scan_without(partition, start, end, limit, unwanted)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        # Drivers are async generators. Closing theirs with ours releases what a scan holds.
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

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        with self._drop_partition.call():
            await self._kv.drop_partition(partition)

    def partitions(self, prefix: str) -> AsyncIterator[Listed]:
        """See `ListingKv.partitions`. Not measured, because only tools call it."""
        return self._kv.partitions(prefix)

    async def close(self) -> None:
        """See `Kv.close`."""
        await self._kv.close()
