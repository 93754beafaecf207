"""Takes other certificates for a store, or of an endpoint, into use while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from tarn.config.secret_changes import contents_of
from tarn.config.sections import Config

__all__ = ["CertificateChange"]

_log = structlog.get_logger()


class CertificateChange:
    """Has an open store read its certificates again when the files have other contents (`SecretChanges`).

    Args:
        store: the kind of store, for the log.
        files: of the certificates; their paths never change.
        contents: what they held before the store was opened (`contents_of`).
        reload: has the store read them; raises `TarnError` or `ConfigError` if it cannot use them, and goes on with
            those that it has.
    """

    def __init__(
        self,
        store: str,
        files: tuple[Path, ...],
        contents: tuple[bytes | None, ...],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._files = files
        self._used = contents
        self._reload = reload

    async def use(self, _: Config) -> None:
        """Has the store read the files again if they changed.

        Raises:
            TarnError, ConfigError: as `reload`. The next call tries again.
        """
        # Read before the store reads them: a later change is found by the next call.
        found = await asyncio.to_thread(contents_of, self._files)
        if found == self._used:
            return
        await self._reload()
        self._used = found
        _log.info("certificates reloaded", store=self._store)
