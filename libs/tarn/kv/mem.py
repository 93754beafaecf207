"""A KV store in memory, for tests and simulations: one dict and one sorted key list per partition.

Every operation is a single step of the event loop, so operations are linearized by construction. Not meant
for many rows: inserting a new key costs O(rows of its partition).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from tarn.core.clock import IdSource
from tarn.core.errors import TarnError
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
    kinds_mixed_error,
)
from tarn.kv.paging import sifted
from tarn.kv.port import (
    Companion,
    CompanionName,
    Group,
    Partition,
    PartitionInfo,
    PartitionKind,
    Predicate,
    PredicateFailedError,
    Row,
    RowFilter,
    RowName,
    SiftedPage,
    Versioned,
    row_batch,
)

__all__ = ["MemKv"]

_BATCH_ROWS = 4096
_BATCH_BYTES = 8 << 20
_EXAMINED_ROWS = 20_000


@dataclass(slots=True)
class _Rows:
    """The rows of one partition. Invariant: `keys` is sorted and equals the keys of `values`.

    Attributes:
        beside: keys of rows that are not the anchor of their group; `get_many` does not find them.
        companions: by key.
    """

    kind: PartitionKind
    values: dict[bytes, Versioned] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    beside: set[bytes] = field(default_factory=set)
    companions: dict[bytes, Companion] = field(default_factory=dict)

    def put(self, key: bytes, versioned: Versioned) -> None:
        if key not in self.values:
            insort(self.keys, key)
        self.values[key] = versioned
        self.beside.discard(key)

    def remove(self, key: bytes) -> None:
        self.beside.discard(key)
        if self.values.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


class MemKv:
    """`Kv` in memory, as strict as any driver: only scans find rows beside their anchor (`Kv.get_many`).

    A dropped partition keeps its kind and may be written again.

    Args:
        ids: makes the versions of rows. None: versions are numbers, which are unique and repeatable too.
    """

    def __init__(self, ids: IdSource | None = None) -> None:
        self._ids = ids
        self._versions = 0
        self._order = 0
        self._partitions: dict[str, _Rows] = {}
        self._closed = False

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`; `settle` changes nothing."""
        del settle
        check_keys(keys)
        rows = self._find(partition)
        return [None if key in rows.beside else rows.values.get(key) for key in keys]

    async def get_together(self, rows: Sequence[RowName]) -> list[Versioned | None]:
        """See `ReadsTogether.get_together`."""
        for partition, _ in rows:
            check_register(partition, "get_together")
        return [found for partition, key in rows for found in await self.get_many(partition, [key])]

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`. Groups over a limit are INVALID one by one."""
        rows = self._find(partition, create=True)
        outcomes: list[TarnError | None] = []
        for group in groups:
            try:
                check_group(group)
            except TarnError as error:
                outcomes.append(error)
                continue
            for key, value in group.rows:
                rows.put(key, Versioned(value, self._next_version()))
                if partition.buckets > 1 and key != group.anchor:
                    rows.beside.add(key)
            self._accompany(rows, group.companions)
            outcomes.append(None)
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
        check_register(partition, "set_if")
        check_row(key, value)
        check_companions(companions)
        rows = self._find(partition, create=True)
        self._check_version(rows, key, predicate)
        version = self._next_version()
        rows.put(key, Versioned(value, version))
        self._accompany(rows, companions)
        return version

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        check_keys(keys)
        rows = self._find(partition)
        for key in keys:
            rows.remove(key)

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
        rows = self._find(partition)
        if key not in rows.values:
            raise PredicateFailedError(key, None)
        self._check_version(rows, key, predicate)
        rows.remove(key)
        self._accompany(rows, companions)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        check_scan_limit(limit)
        return self._page(self._find(partition), start, end, limit)

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        check_scan_without(limit, unwanted)
        return await sifted(self, partition, start, end, limit, unwanted, _EXAMINED_ROWS)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        while page := self._page(self._find(partition), start, end, _BATCH_ROWS):
            sizes = accumulate(len(key) + len(value) for key, value in page)
            fitting = bisect_left(list(sizes), _BATCH_BYTES) + 1
            keys, values = zip(*page[:fitting], strict=True)
            yield row_batch(keys, values)
            start = keys[-1] + b"\0"

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        check_scan_limit(limit)
        companions = self._find(partition).companions
        keys = sorted(key for key in companions if key >= start and (end is None or key < end))
        return [companions[key] for key in keys[:limit]]

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        check_companion_names(names)
        companions = self._find(partition).companions
        for _, key in names:
            companions.pop(key, None)

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        rows = self._find(partition)
        rows.companions.clear()
        rows.values.clear()
        rows.keys.clear()

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`."""
        if self._closed:
            raise closed_error()
        for name, rows in list(self._partitions.items()):
            if rows.keys and name.startswith(prefix):
                yield PartitionInfo(name, rows.kind, None)

    def partition_names(self) -> dict[str, PartitionKind]:
        """Returns the partitions that were ever written, for tests."""
        return {name: rows.kind for name, rows in self._partitions.items()}

    async def close(self) -> None:
        """See `Kv.close`."""
        self._closed = True

    def _find(self, partition: Partition, *, create: bool = False) -> _Rows:
        if self._closed:
            raise closed_error()
        rows = self._partitions.get(partition.name)
        if rows is None:
            rows = _Rows(partition.kind)
            if create:
                self._partitions[partition.name] = rows
        elif rows.kind is not partition.kind:
            raise kinds_mixed_error(partition, rows.kind)
        return rows

    def _accompany(self, rows: _Rows, companions: Sequence[Row]) -> None:
        for key, value in companions:
            self._order += 1
            rows.companions[key] = Companion(key, value, self._order)

    def _next_version(self) -> Predicate:
        if self._ids is not None:
            return Predicate(self._ids.nonce())
        self._versions += 1
        return Predicate(self._versions.to_bytes(8, "big"))

    @staticmethod
    def _check_version(rows: _Rows, key: bytes, predicate: Predicate | None) -> None:
        current = rows.values.get(key)
        if predicate != (None if current is None else current.predicate):
            raise PredicateFailedError(key, current)

    @staticmethod
    def _page(rows: _Rows, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        first = bisect_left(rows.keys, start)
        last = len(rows.keys) if end is None else bisect_left(rows.keys, end)
        keys = rows.keys[first : min(last, first + limit)]
        return [(key, rows.values[key].value) for key in keys]
