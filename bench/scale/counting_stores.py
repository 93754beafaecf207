"""Stores in memory that count requests, rows and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pyarrow as pa

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.kv.mem import MemKv
from tarn.kv.port import (
    Companion,
    CompanionName,
    Group,
    Partition,
    Predicate,
    Row,
    RowFilter,
    SiftedPage,
    Versioned,
)

__all__ = ["CountingBlocks", "CountingKv"]


class CountingKv:
    """A store in memory, which counts as Cassandra would be asked: it reads no two partitions together.

    Attributes:
        counts: `reads`, `writes`, `cas`, `scans` and `drops` are requests, `rows` the rows that they read or wrote.
    """

    def __init__(self) -> None:
        self._kv = MemKv()
        self.counts: Counter[str] = Counter()

    def _count(self, kind: str, rows: int) -> None:
        self.counts[kind] += 1
        self.counts["rows"] += rows

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        self._count("reads", len(keys))
        return await self._kv.get_many(partition, keys, settle=settle)

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`."""
        self._count("writes", sum(len(group.rows) for group in groups))
        return await self._kv.set_many(partition, groups)

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
        self._count("cas", 1)
        return await self._kv.set_if(partition, key, value, predicate, companions=companions)

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        self._count("writes", len(keys))
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
        self._count("cas", 1)
        await self._kv.delete_if(partition, key, predicate, companions=companions)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        found = await self._kv.scan(partition, start, end, limit)
        self._count("scans", len(found))
        return found

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        found = await self._kv.scan_companions(partition, start, end, limit)
        self._count("scans", len(found))
        return found

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        found = await self._kv.scan_without(partition, start, end, limit, unwanted)
        self._count("scans", len(found.rows))
        return found

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        async for batch in self._kv.scan_arrow(partition, start, end):
            self._count("scans", len(batch))
            yield batch

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        await self._kv.delete_companions(partition, names)

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        self._count("drops", 0)
        await self._kv.drop_partition(partition)

    async def close(self) -> None:
        """See `Kv.close`."""
        await self._kv.close()


class CountingBlocks(MemBlockStore):
    """Blocks in memory.

    Attributes:
        counts: files that were read and written whole or in part, and their bytes.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.counts: Counter[str] = Counter()

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """See `BlockStore.read`."""
        body = await super().read(key, start, length)
        self.counts["files_read"] += 1
        self.counts["bytes_read"] += len(body)
        return body

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        """See `BlockStore.put`."""
        self.counts["files_written"] += 1
        self.counts["bytes_written"] += len(body)
        await super().put(key, body)
