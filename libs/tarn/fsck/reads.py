"""Read access to the two stores for a check, with rate limit and request counter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import pyarrow as pa

from tarn.block.port import WHOLE_BYTES_MAX, BlockInfo, BlockKey, ReadBlocks, read_whole
from tarn.core.clock import Clock
from tarn.fsck.progress import CheckProgress
from tarn.kv.paging import rows_of
from tarn.kv.port import Partition, PartitionInfo, ReadKv, Row, Versioned

__all__ = ["Reads"]


_PAGE = 1000
_LIST_PAGE = 10_000


class Reads:
    """All reads of a check.

    Args:
        requests_per_second: limit for both stores together; 0: no limit.
    """

    def __init__(
        self,
        kv: ReadKv,
        blocks: ReadBlocks,
        clock: Clock,
        progress: CheckProgress,
        requests_per_second: float,
    ) -> None:
        self._kv = kv
        self._blocks = blocks
        self._clock = clock
        self._progress = progress
        self._pause = 1 / requests_per_second if requests_per_second else 0.0
        self._next = 0.0

    async def _take(self) -> None:
        """Waits until this request may be sent; requests are spread evenly, without bursts."""
        self._progress.requests += 1
        if self._pause:
            now = self._clock.monotonic()
            self._next = max(self._next + self._pause, now)
            if self._next > now:
                await self._clock.sleep(self._next - now)

    async def get(self, partition: Partition, key: bytes) -> Versioned | None:
        """Reads one row, by a read issued after this call."""
        await self._take()
        return (await self._kv.get_many(partition, [key]))[0]

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """Reads one page."""
        await self._take()
        return await self._kv.scan(partition, start, end, limit)

    def rows(
        self, partition: Partition, start: bytes = b"", end: bytes | None = None
    ) -> AsyncIterator[Row]:
        """Yields all rows of a range, page by page."""
        return rows_of(self, partition, start, end, _PAGE)

    async def batches(self, partition: Partition) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yields all rows of a partition as batches of `key` and `value`."""
        batches = cast(
            "AsyncGenerator[pa.RecordBatch, None]", self._kv.scan_arrow(partition, b"", None)
        )
        async with aclosing(batches):
            async for batch in batches:
                await self._take()
                yield batch

    def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`."""
        return self._kv.partitions(prefix)

    async def read(self, key: BlockKey, most: int = WHOLE_BYTES_MAX) -> bytes:
        """Reads a whole block. Raises `BlockNotFoundError`, or CORRUPT if it has more bytes than `most`."""
        await self._take()
        return await read_whole(self._blocks, key, most)

    async def stat(self, key: BlockKey) -> BlockInfo:
        """Returns a block's size. Raises `BlockNotFoundError`."""
        await self._take()
        return await self._blocks.stat(key)

    async def stream(self, key: BlockKey, length: int) -> AsyncIterator[bytes | memoryview]:
        """Streams a block's bytes in one request."""
        await self._take()
        async for chunk in self._blocks.stream(key, 0, length):
            yield chunk

    async def page(self, namespace: str, prefix: str, after: str) -> list[BlockInfo]:
        """Returns the next blocks of a listing; empty at its end."""
        await self._take()
        return await self._blocks.list_page(namespace, prefix, after, _LIST_PAGE)
