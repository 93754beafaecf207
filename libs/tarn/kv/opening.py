"""The store that a configuration names."""

from __future__ import annotations

from tarn.config import Config, ConfigError
from tarn.kv.embedded import open_embedded
from tarn.kv.port import Kv

__all__ = ["open_kv"]


async def open_kv(config: Config) -> Kv:
    """Opens the metadata store; the caller closes it.

    Raises:
        ConfigError: this version has no driver for it.
        TarnError: it cannot be opened; says why.
    """
    db = config.metadata.db
    if db.type != "embedded":
        raise ConfigError([f"metadata.db.type: {db.type} is not part of this version"])
    return await open_embedded(db.embedded.file, durability=config.durability)
