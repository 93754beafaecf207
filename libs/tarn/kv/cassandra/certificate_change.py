"""Takes other certificates for the nodes into use while the store is open."""

from __future__ import annotations

import asyncio

import structlog

from tarn.config import Config, certificates_of_kv, contents_of
from tarn.kv.cassandra.settings import CassandraTls
from tarn.kv.cassandra.store import CassandraKv

__all__ = ["CertificateChange"]

_log = structlog.get_logger()


class CertificateChange:
    """Tells a store that the files of its certificates have other contents (`tarn.config.SecretChanges`).

    Args:
        store: the open store.
        tls: the files.
        contents: their contents before the store was opened (`tarn.config.contents_of`).
    """

    def __init__(
        self, store: CassandraKv, tls: CassandraTls, contents: tuple[bytes | None, ...]
    ) -> None:
        self._store = store
        self._tls = tls
        self._used = contents

    async def use(self, config: Config) -> None:
        """Reads the files again if they changed.

        Raises:
            TarnError: as `CassandraKv.use_certificates`.
        """
        # Before the store reads them: a later change is found by the next call.
        found = await asyncio.to_thread(contents_of, certificates_of_kv(config))
        if found == self._used:
            return
        await self._store.use_certificates(self._tls)
        self._used = found
        _log.info("certificates reloaded", store="cassandra")
