"""Reads of single rows, each sent after it was requested; those of one tick and partition are one read of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tarn.aio.batcher import Batcher
from tarn.aio.task_set import TaskSet
from tarn.kv.port import Kv, Partition, Versioned

__all__ = ["FreshReads"]


class FreshReads:
    """Reads rows of a store together. No request joins a read that was sent before it (`tarn.aio.batcher`)."""

    def __init__(self, kv: Kv, tasks: TaskSet) -> None:
        self._kv = kv
        self._reads = Batcher[Partition, bytes, Versioned | None](self._read_together, tasks)

    def begin(self, partition: Partition, key: bytes) -> asyncio.Future[Versioned | None]:
        """Requests a row; the future is the row, None if there is none, or the error of the store."""
        return self._reads.submit(partition, key)

    async def _read_together(
        self, partition: Partition, keys: Sequence[bytes]
    ) -> Sequence[Versioned | None]:
        wanted = list(dict.fromkeys(keys))
        found = dict(zip(wanted, await self._kv.get_many(partition, wanted), strict=True))
        return [found[key] for key in keys]
