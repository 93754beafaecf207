"""The read half of the KV port, and how to open a store for reading only.

Code that inspects a store (`tarn fsck`) uses `ReadKv`, which has no method that changes anything. The
connections to an embedded store are also read-only in sqlite itself. Cassandra has no such mode, so there
only the type prevents writes.
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
    """The methods of `tarn.kv.port.Kv` that read, with the same contract. Every `ListingKv` is a `ReadKv`."""

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

    Works while other processes write to the store, and while none runs.

    Raises:
        TarnError: the store cannot be opened or does not exist; the text gives the reason.
    """
    if config.metadata.db.type == "embedded":
        return await open_embedded_to_read(config.metadata.db.embedded.file)
    return await open_store(config, clock, ids)
