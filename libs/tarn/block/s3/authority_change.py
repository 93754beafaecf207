"""Takes other authorities of the bucket's server into use while the store is open."""

from __future__ import annotations

import asyncio

import structlog

from tarn.block.s3.store import S3BlockStore
from tarn.config import Config, certificates_of_blocks, contents_of

__all__ = ["AuthorityChange"]

_log = structlog.get_logger()


class AuthorityChange:
    """Tells a store that the file of its authorities has other contents (`tarn.config.SecretChanges`).

    Args:
        store: the open store.
        contents: what the file held before the store was opened (`tarn.config.contents_of`).
    """

    def __init__(self, store: S3BlockStore, contents: tuple[bytes | None, ...]) -> None:
        self._store = store
        self._used = contents

    async def use(self, config: Config) -> None:
        """Reads the file again if it changed.

        Raises:
            TarnError: as `S3BlockStore.use_authorities`.
        """
        # Before the store reads it: a later change is found by the next call.
        found = await asyncio.to_thread(contents_of, certificates_of_blocks(config.blockstore))
        if found == self._used:
            return
        await self._store.use_authorities()
        self._used = found
        _log.info("certificates reloaded", store="s3")
