"""Counts what a store does: calls, failures and latency per operation, in plain lists.

Composed around any driver. Counting costs two clock reads and four list updates (well under a
microsecond); an exporter asks for a `snapshot()` when it is asked itself, never on the way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.kv.port import (
    Group,
    Kv,
    Partition,
    Predicate,
    PredicateFailedError,
    Row,
    Versioned,
)

__all__ = ["BUCKET_BOUNDS_SECONDS", "MeteredKv", "OperationMeter"]

_BUCKETS = 26
BUCKET_BOUNDS_SECONDS = tuple((1 << power) / 1e6 for power in range(_BUCKETS - 1))
"""Bucket i counts latencies below bound i (and not below bound i - 1): 1 µs, 2 µs, … 16.8 s. The
last bucket has no bound."""


@dataclass(frozen=True, slots=True)
class OperationMeter:
    """What one operation has done since the store was wrapped.

    Attributes:
        calls: how often it ended, well or not; for `scan_arrow` its batches, the last (none) too.
        errors: calls that raised, conflicts apart; failed *groups* for `set_many`, which may be
            several in one call.
        conflicts: lost compare-and-sets, an answer rather than an error.
        seconds: latency, summed.
        buckets: latency, counted by `BUCKET_BOUNDS_SECONDS`.
    """

    calls: int
    errors: int
    conflicts: int
    seconds: float
    buckets: tuple[int, ...]


class _Meter:
    """The growing numbers behind an `OperationMeter`."""

    __slots__ = ("buckets", "conflicts", "errors", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * _BUCKETS
        self.errors = 0
        self.conflicts = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.seconds += seconds
        # The bit length of whole microseconds is the power of two above them: no search.
        bucket = int(seconds * 1e6).bit_length()
        self.buckets[bucket if bucket < _BUCKETS else _BUCKETS - 1] += 1

    def fail(self, error: BaseException) -> None:
        if isinstance(error, PredicateFailedError):
            self.conflicts += 1
        else:
            self.errors += 1

    def snapshot(self) -> OperationMeter:
        return OperationMeter(
            calls=sum(self.buckets),
            errors=self.errors,
            conflicts=self.conflicts,
            seconds=self.seconds,
            buckets=tuple(self.buckets),
        )


class MeteredKv:
    """`Kv` that counts and hands on.

    Args:
        kv: the store; closing the wrapper closes it.
        clock: measures latency by its monotonic time.
    """

    def __init__(self, kv: Kv, clock: Clock) -> None:
        self._kv = kv
        self._now = clock.monotonic
        self._get_many = _Meter()
        self._set_many = _Meter()
        self._set_if = _Meter()
        self._delete_many = _Meter()
        self._delete_if = _Meter()
        self._scan = _Meter()
        self._scan_arrow = _Meter()
        self._drop_partition = _Meter()

    def snapshot(self) -> dict[str, OperationMeter]:
        """The counts so far, by name of the operation; they only ever grow."""
        return {
            "get_many": self._get_many.snapshot(),
            "set_many": self._set_many.snapshot(),
            "set_if": self._set_if.snapshot(),
            "delete_many": self._delete_many.snapshot(),
            "delete_if": self._delete_if.snapshot(),
            "scan": self._scan.snapshot(),
            "scan_arrow": self._scan_arrow.snapshot(),
            "drop_partition": self._drop_partition.snapshot(),
        }

    # The same five lines eight times: a generic wrapper would cost a second coroutine per call.

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        began = self._now()
        try:
            return await self._kv.get_many(partition, keys, settle=settle)
        except BaseException as error:
            self._get_many.fail(error)
            raise
        finally:
            self._get_many.add(self._now() - began)

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        began = self._now()
        try:
            outcomes = await self._kv.set_many(partition, groups)
            if any(outcomes):
                for outcome in filter(None, outcomes):
                    self._set_many.fail(outcome)
            return outcomes
        except BaseException as error:
            self._set_many.fail(error)
            raise
        finally:
            self._set_many.add(self._now() - began)

    async def set_if(
        self, partition: Partition, key: bytes, value: bytes, predicate: Predicate | None
    ) -> Predicate:
        """See `Kv.set_if`."""
        began = self._now()
        try:
            return await self._kv.set_if(partition, key, value, predicate)
        except BaseException as error:
            self._set_if.fail(error)
            raise
        finally:
            self._set_if.add(self._now() - began)

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        began = self._now()
        try:
            await self._kv.delete_many(partition, keys)
        except BaseException as error:
            self._delete_many.fail(error)
            raise
        finally:
            self._delete_many.add(self._now() - began)

    async def delete_if(self, partition: Partition, key: bytes, predicate: Predicate) -> None:
        """See `Kv.delete_if`."""
        began = self._now()
        try:
            await self._kv.delete_if(partition, key, predicate)
        except BaseException as error:
            self._delete_if.fail(error)
            raise
        finally:
            self._delete_if.add(self._now() - began)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        began = self._now()
        try:
            return await self._kv.scan(partition, start, end, limit)
        except BaseException as error:
            self._scan.fail(error)
            raise
        finally:
            self._scan.add(self._now() - began)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`; each batch counts as a call, the consumer's own time does not."""
        # Drivers are async generators; closing theirs with ours releases what a scan holds.
        batches = cast(
            "AsyncGenerator[pa.RecordBatch, None]", self._kv.scan_arrow(partition, start, end)
        )
        async with aclosing(batches):
            while True:
                began = self._now()
                try:
                    batch = await anext(batches)
                except StopAsyncIteration:
                    return
                except BaseException as error:
                    self._scan_arrow.fail(error)
                    raise
                finally:
                    self._scan_arrow.add(self._now() - began)
                yield batch

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        began = self._now()
        try:
            await self._kv.drop_partition(partition)
        except BaseException as error:
            self._drop_partition.fail(error)
            raise
        finally:
            self._drop_partition.add(self._now() - began)

    async def close(self) -> None:
        """See `Kv.close`."""
        await self._kv.close()
