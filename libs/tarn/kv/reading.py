"""The half of the KV port that reads, and stores that are opened for it alone.

What inspects a store (`tarn fsck`) is written against `ReadKv`, which has nothing that could change it.
An embedded store is opened by connections that sqlite itself keeps from writing; a cluster has no such
thing, so there the type is what protects it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import pyarrow as pa

from tarn.config import Config
from tarn.core.clock import Clock, IdSource
from tarn.kv.embedded.reading import open_embedded_to_read
from tarn.kv.opening import open_store
from tarn.kv.port import Listed, Partition, Row, Versioned

__all__ = ["ReadKv", "open_kv_to_read"]


class ReadKv(Protocol):
    """What `tarn.kv.port.Kv` says of the same methods. Every `ListingKv` is one."""

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        ...

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        ...

    def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        ...

    def partitions(self, prefix: str) -> AsyncIterator[Listed]:
        """See `ListingKv.partitions`."""
        ...

    async def close(self) -> None:
        """See `Kv.close`."""
        ...


async def open_kv_to_read(config: Config, clock: Clock, ids: IdSource) -> ReadKv:
    """Opens the metadata store of a configuration for reading; the caller closes it.

    Works beside processes that write to it, and while none runs.

    Raises:
        TarnError: it cannot be opened, or was never made; says why.
    """
    if config.metadata.db.type == "embedded":
        return await open_embedded_to_read(config.metadata.db.embedded.file)
    return await open_store(config, clock, ids)
