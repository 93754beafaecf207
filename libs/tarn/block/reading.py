"""The read-only half of the block port, and stores that are opened only for reading (see `tarn.kv.reading`)."""

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
    """Methods as in `tarn.block.port.BlockStore`. Every `BlockStore` satisfies this protocol."""

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
    """Opens the configured block store for reading; the caller closes it.

    Raises:
        ConfigError: this version has no driver for the configured store.
        TarnError: the store cannot be opened or does not exist; the message gives the reason.
    """
    if config.blockstore.type == "local":
        return await open_local(config.blockstore.local.path, clock=clock, read_only=True)
    return await open_blocks(config, clock)
