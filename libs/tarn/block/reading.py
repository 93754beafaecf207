"""The half of the block port that reads, and stores that are opened for it alone (see `tarn.kv.reading`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from tarn.block.local import open_local
from tarn.block.opening import open_blocks
from tarn.block.port import BlockInfo, BlockKey
from tarn.config import Config
from tarn.core.clock import Clock

__all__ = ["ReadBlocks", "open_blocks_to_read"]


class ReadBlocks(Protocol):
    """What `tarn.block.port.BlockStore` says of the same methods. Every `BlockStore` is one."""

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """See `BlockStore.read`."""
        ...

    def stream(self, key: BlockKey, start: int, length: int) -> AsyncIterator[bytes]:
        """See `BlockStore.stream`."""
        ...

    async def stat(self, key: BlockKey) -> BlockInfo:
        """See `BlockStore.stat`."""
        ...

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`."""
        ...

    async def close(self) -> None:
        """See `BlockStore.close`."""
        ...


async def open_blocks_to_read(config: Config, clock: Clock) -> ReadBlocks:
    """Opens the block store of a configuration for reading; the caller closes it.

    Raises:
        ConfigError: this version has no driver for it.
        TarnError: it cannot be opened, or was never made; says why.
    """
    if config.blockstore.type == "local":
        return await open_local(config.blockstore.local.path, clock=clock, read_only=True)
    return await open_blocks(config, clock)
