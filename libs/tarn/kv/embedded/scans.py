"""Bulk reads of the embedded store, for a process that does nothing else with the store.

ADBC's sqlite driver turns rows into Arrow columns in C, without a Python object per row. This takes a quarter
of the processor time of `BulkReader`, and other threads can run meanwhile.

The driver has a sqlite library of its own. Two libraries in one process break each other's locks on a file
(POSIX drops all locks of a process on a file when it closes any descriptor of that file). So a process opens
the store either in this way or through `sqlite3`, never both. The only user is the heavy process of
graveler, which reads nothing but staging tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa
from adbc_driver_manager import Error as DriverError
from adbc_driver_sqlite import StatementOptions, dbapi

from tarn.aio.futures import ignore_outcome
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.embedded import sql
from tarn.kv.limits import closed_error, kinds_mixed_error
from tarn.kv.port import ROW_SCHEMA, Partition

__all__ = ["EmbeddedScans", "open_embedded_scans"]

_PAGE_ROWS: Final = 32_768
_FIRST_PAGE_ROWS: Final = 2_048
"""Each page has twice the rows of the one before it: the consumer begins early, and few pages are small."""
_PAGE_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 2_048
"""Rows per batch of the driver. The byte bound of a page is checked after each batch."""
_DAMAGE: Final = ("malformed", "not a database", "unsupported file format")


async def open_embedded_scans(path: Path) -> EmbeddedScans:
    """Opens the store in file `path`, which another process has created and keeps open.

    Raises:
        TarnError: CORRUPT: the file is damaged. UNAVAILABLE: the file cannot be read.
    """
    scans = EmbeddedScans(path)
    try:
        await scans.open()
    except BaseException:
        await scans.close()
        raise
    return scans


class EmbeddedScans:
    """`ScanKv` on an embedded store; made by `open_embedded_scans`.

    A thread reads the pages one after the other, one page ahead of the consumer. Each page is a snapshot.
    No snapshot outlives its page, so the write-ahead log can be emptied between pages.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tarn-kv-scan")
        self._connection: dbapi.Connection | None = None
        self._closed = False

    async def open(self) -> None:
        """Connects to the store.

        Raises:
            TarnError: CORRUPT: the file is damaged. UNAVAILABLE: the file cannot be read.
        """
        await asyncio.get_running_loop().run_in_executor(self._pool, self._open)

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """See `Kv.scan_arrow`."""
        self._check_open()
        loop = asyncio.get_running_loop()
        number = await loop.run_in_executor(self._pool, self._find, partition)
        if number is None:
            return
        page_of = partial(self._page, partition, number)
        rows = min(_FIRST_PAGE_ROWS, _PAGE_ROWS)
        ahead = loop.run_in_executor(self._pool, page_of, start, end, rows)
        try:
            while (page := await ahead) is not None:
                self._check_open()
                # The smallest key greater than the last key is the last key plus a zero byte.
                start = page.column(0)[-1].as_py() + b"\0"
                rows = min(2 * rows, _PAGE_ROWS)
                ahead = loop.run_in_executor(self._pool, page_of, start, end, rows)
                yield page
        finally:
            if not ahead.cancel():
                ignore_outcome(ahead)

    async def close(self) -> None:
        """Waits for the pages that are being read. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._pool, self._close)
            self._pool.shutdown()

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    # The methods below run in the thread.

    def _open(self) -> None:
        uri = f"file:{quote(str(self._path))}?mode=ro"
        with _failures_told():
            # Without `autocommit`, the first read begins a transaction whose snapshot is never released.
            self._connection = dbapi.connect(uri, autocommit=True)
        self._read(f"PRAGMA busy_timeout = {sql.BUSY_TIMEOUT_MS}", ())

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _find(self, partition: Partition) -> int | None:
        batches = self._read(sql.FIND_PARTITION, (partition.name,))
        if not batches:
            return None
        number, kind = (column[0].as_py() for column in batches[0].columns)
        assert isinstance(number, int)
        assert isinstance(kind, int)
        if sql.KINDS_BY_NUMBER[kind] is not partition.kind:
            raise kinds_mixed_error(partition, sql.KINDS_BY_NUMBER[kind])
        return number

    def _page(
        self, partition: Partition, number: int, start: bytes, end: bytes | None, rows_max: int
    ) -> pa.RecordBatch | None:
        """Returns the first rows of `[start, end)`, bounded in rows and bytes; None if there are none."""
        statements = sql.STATEMENTS[partition.kind]
        statement = statements.page if end is None else statements.page_before
        bounds = (start,) if end is None else (start, end)
        batches = self._read(statement, (number, *bounds, rows_max))
        if not batches:
            return None
        return pa.Table.from_batches(batches).cast(ROW_SCHEMA).combine_chunks().to_batches()[0]

    def _read(self, statement: str, values: tuple[object, ...]) -> list[pa.RecordBatch]:
        """Runs a statement and returns its rows up to the byte bound of a page; no batch is empty.

        Raises:
            TarnError: CORRUPT: the file is damaged. UNAVAILABLE: the read failed.
        """
        assert self._connection is not None, "it was opened"
        batches: list[pa.RecordBatch] = []
        left_bytes = _PAGE_BYTES
        with _failures_told(), closing(self._connection.cursor()) as cursor:
            cursor.adbc_statement.set_options(
                **{StatementOptions.BATCH_ROWS.value: str(_BATCH_ROWS)}
            )
            cursor.execute(statement, values)
            with cursor.fetch_record_batch() as reader:
                for batch in reader:
                    if not batch.num_rows:
                        continue
                    batches.append(batch)
                    left_bytes -= batch.nbytes
                    if left_bytes <= 0:
                        break
        return batches


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except (DriverError, pa.ArrowException, OSError) as error:
        text = str(error)
        if any(mark in text for mark in _DAMAGE):
            what = f"the store's file is damaged, read failed: {text}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, what) from error
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, f"read failed: {text}") from error
