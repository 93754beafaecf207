"""The block store that a configuration names."""

from __future__ import annotations

from tarn.block.local import open_local
from tarn.block.port import BlockStore
from tarn.config import Config, ConfigError
from tarn.core.clock import Clock

__all__ = ["open_blocks"]


async def open_blocks(config: Config, clock: Clock) -> BlockStore:
    """Opens the block store; the caller closes it.

    Raises:
        ConfigError: this version has no driver for it.
        TarnError: it cannot be opened; says why.
    """
    if config.blockstore.type != "local":
        raise ConfigError(
            [f"blockstore.type: {config.blockstore.type} is not part of this version"]
        )
    path = config.blockstore.local.path
    return await open_local(path, clock=clock, durability=config.durability)
