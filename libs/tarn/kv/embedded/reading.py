"""The embedded store for a process that only reads. It has no writer and no write lock, and takes no
opening number.

Its connections are read-only in sqlite itself. Beside a running Tarn they read all finished transactions.
On a store that no process has open they also read the transactions that a crash left in the write-ahead log, without
copying it into the file. The side files `-wal` and `-shm` may be created; the store's contents never change.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.embedded import failures, sql
from tarn.kv.embedded.database import connect_reader
from tarn.kv.embedded.files import check_filesystem, unusable_error
from tarn.kv.embedded.reader import BulkReader, Reader
from tarn.kv.limits import check_keys, check_scan_limit, closed_error
from tarn.kv.port import Partition, PartitionInfo, Row, Versioned

__all__ = ["EmbeddedReader", "open_embedded_to_read"]


async def open_embedded_to_read(path: Path) -> EmbeddedReader:
    """Opens the existing store in file `path`.

    Raises:
        TarnError: NOT_FOUND: the file does not exist. FAILED_PRECONDITION: it is not a store of this schema
            version, or is on a network file system. CORRUPT, UNAVAILABLE: as `open_embedded`.
    """
    return EmbeddedReader(path, await asyncio.to_thread(_connect, path))


def _connect(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        text = f"there is no store at {path}; check metadata.db.embedded.path"
        raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, text, path=str(path))
    check_filesystem(path.parent)
    try:
        connection = connect_reader(path)
        try:
            application = connection.execute("PRAGMA application_id").fetchall()[0][0]
            version = connection.execute("PRAGMA user_version").fetchall()[0][0]
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise failures.read_error(error) from error
    if application != sql.APPLICATION_ID or version != sql.SCHEMA_VERSION:
        connection.close()
        raise unusable_error(path, f"it is not a store of schema {sql.SCHEMA_VERSION}")
    return connection


class EmbeddedReader:
    """`ReadKv` on an embedded store; made by `open_embedded_to_read`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._reader = Reader(connection)
        self._bulk = BulkReader(path)
        self._closed = False

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`. `settle` changes nothing: this process has no writes to settle."""
        del settle
        self._check_open()
        check_keys(keys)
        found: list[Versioned | None] = []
        for at in range(0, len(keys), sql.KEYS_PER_STATEMENT):
            found += self._reader.get(partition, keys[at : at + sql.KEYS_PER_STATEMENT])
            await asyncio.sleep(0)
        return found

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        check_scan_limit(limit)
        self._check_open()
        return self._reader.page(partition, start, end, limit)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        self._check_open()
        async for batch in self._bulk.batches(partition, start, end):
            yield batch

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`. Yields those that hold rows, in order of their names."""
        async for listed in self._reader.all_partitions(prefix, self._check_open):
            yield listed

    async def close(self) -> None:
        """See `Kv.close`."""
        if not self._closed:
            self._closed = True
            await self._bulk.close()
            self._connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()
