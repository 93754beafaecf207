"""Bulk reads of the embedded store for a process that does nothing else with it.

Rows become Arrow columns inside C (ADBC's sqlite driver), without a Python object for each: a quarter of
the processor time of `BulkReader`, and other threads run meanwhile.

The driver brings a sqlite library of its own. Two of them in one process undo each other's locks on a file
(POSIX drops them when either closes a descriptor of it), so a process has the store open in this way or
through `sqlite3`, never both: the heavy process of graveler, which reads tokens and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
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
from tarn.kv.port import Partition
from tarn.kv.rows import ROW_SCHEMA

__all__ = ["EmbeddedScans", "open_embedded_scans"]

_PAGE_ROWS: Final = 32_768
_PAGE_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 2_048
"""What the driver gives at once: the page's bound in bytes is looked at as often."""
_DAMAGE: Final = ("malformed", "not a database", "unsupported file format")


async def open_embedded_scans(path: Path) -> EmbeddedScans:
    """Opens the store in file `path`, which somebody else in another process has made and keeps open.

    Raises:
        TarnError: CORRUPT, UNAVAILABLE: it cannot be read.
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

    Pages are read one after the other in a thread of its own, one ahead of the consumer. Each is a
    snapshot; none outlives its page, so that the write-ahead log can be emptied in between.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tarn-kv-scan")
        self._connection: dbapi.Connection | None = None
        self._closed = False

    async def open(self) -> None:
        """Connects.

        Raises:
            TarnError: CORRUPT, UNAVAILABLE.
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
        ahead = loop.run_in_executor(self._pool, self._page, partition, number, start, end)
        try:
            while (page := await ahead) is not None:
                self._check_open()
                # The smallest key after the last one is that key and a zero byte.
                start = page.column(0)[-1].as_py() + b"\0"
                ahead = loop.run_in_executor(self._pool, self._page, partition, number, start, end)
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

    # In the thread:

    def _open(self) -> None:
        uri = f"file:{quote(str(self._path))}?mode=ro"
        with _failures_told():
            # Without `autocommit` the first read begins a transaction, whose snapshot stays for ever.
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
        self, partition: Partition, number: int, start: bytes, end: bytes | None
    ) -> pa.RecordBatch | None:
        """The first rows of `[start, end)`, bounded in number and bytes; None if there are none."""
        statements = sql.STATEMENTS[partition.kind]
        statement = statements.page if end is None else statements.page_before
        bounds = (start,) if end is None else (start, end)
        batches = self._read(statement, (number, *bounds, _PAGE_ROWS))
        if not batches:
            return None
        return pa.Table.from_batches(batches).cast(ROW_SCHEMA).combine_chunks().to_batches()[0]

    def _read(self, statement: str, values: tuple[object, ...]) -> list[pa.RecordBatch]:
        """What a statement gives, up to a page's bytes; no batch is empty.

        Raises:
            TarnError: CORRUPT, UNAVAILABLE.
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
