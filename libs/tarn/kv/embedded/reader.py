"""Reads. Short reads run on the event loop's thread, on its own connection. They take 10 µs, less than the
hand-over to a thread pool would cost, and a pool would compete with the loop for the interpreter's lock.

Every statement runs to its end before anything else happens. A half-read statement keeps its snapshot
alive, and another statement on the same connection would read from that old snapshot, so a re-check could
pass wrongly. Between statements there is no snapshot, so each read sees all transactions that any
process has finished.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from tarn.kv.embedded import failures, sql
from tarn.kv.embedded.database import connect_reader
from tarn.kv.embedded.partitions import PartitionIds
from tarn.kv.limits import check_keys, closed_error
from tarn.kv.port import (
    KEY_BYTES_MAX,
    Companion,
    Partition,
    PartitionInfo,
    PartitionKind,
    Predicate,
    Row,
    RowFilter,
    RowName,
    SiftedPage,
    Versioned,
    row_batch,
)

__all__ = ["BulkReader", "Reader"]

_NAMES = 500
_BATCH_ROWS = 4096  # larger batches are no faster and hold the interpreter's lock for longer
_BATCH_BYTES = 8 << 20
_EXAMINED_ROWS = 200_000
"""Rows that one `scan_without` examines: some 20 ms. Other tasks of the process run meanwhile."""
_STEPS_MAX = 3_000_000
"""Steps of sqlite's machine after which a `scan_without` is given up and bounded: 9 to 10 for each examined row."""
_STEPS_PER_CALL = 100_000
_QUICK_STEPS = 60_000
"""Steps that a `scan_without` takes in the event loop before it goes to the thread: some 6,000 rows and 0.7 ms, about
as much as the change of threads costs when the machine is busy.
"""
_QUICK_STEPS_PER_CALL = 10_000
_FEW_ROWS = 3
"""Rows that `get_rows` reads in the order that is asked for; the statement depends on it."""
_PAST_ALL_KEYS = b"\xff" * (KEY_BYTES_MAX + 1)


class Reader:
    """Short reads on one connection, for one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._partitions = PartitionIds(connection)
        self._known = self._partitions.known

    def check_kind(self, partition: Partition) -> None:
        """Raises `TarnError` INVALID if the name belongs to a partition of the other kind."""
        known = self._known(partition.name)
        if known is None or known[1] is not partition.kind:
            self._find(partition)

    def get(self, partition: Partition, keys: Sequence[bytes]) -> list[Versioned | None]:
        """Returns values in the order of `keys`, at most `sql.KEYS_PER_STATEMENT` of them."""
        number = self._find(partition)
        if number is None or not keys:
            return [None] * len(keys)
        statements = sql.STATEMENTS[partition.kind]
        try:
            if len(keys) == 1:
                rows = self._connection.execute(statements.get, (number, keys[0])).fetchall()
                return [Versioned(rows[0][0], Predicate(rows[0][1]))] if rows else [None]
            room = 1 << (len(keys) - 1).bit_length()
            wanted = (number, *keys, *([keys[-1]] * (room - len(keys))))
            rows = self._connection.execute(statements.get_some[room], wanted).fetchall()
        except sqlite3.Error as error:
            raise failures.read_error(error) from error
        found = {key: Versioned(value, Predicate(version)) for key, value, version in rows}
        return [found.get(key) for key in keys]

    def get_rows(self, names: Sequence[RowName]) -> list[Versioned | None]:
        """Returns the values of 1 to `ROWS_AT_ONCE_MAX` rows of any partitions, by one statement: as of one moment."""
        if len(names) > _FEW_ROWS:
            arranged, places = _arranged(names)
            found = _versioned(self._select_rows(arranged))
            return [found[place] for place in places]
        return _versioned(self._select_rows(names))

    def get_rows_beside(
        self, names: Sequence[RowName], beside: RowName
    ) -> tuple[list[Versioned | None], Predicate | None]:
        """As `get_rows`, and returns the version of a further register row."""
        if len(names) > _FEW_ROWS:
            *rows, last = self.get_rows((*names, beside))
            return rows, None if last is None else last.predicate
        found = self._select_rows((*names, beside), True)
        version = found.pop()
        return _versioned(found), version

    def _select_rows(self, names: Sequence[RowName], is_last_version: bool = False) -> list[Any]:
        """Returns value and version of each row, or of the last one only the version; None for an absent one."""
        wanted: list[int | bytes | None] = []
        kinds: tuple[PartitionKind, ...] = ()
        known_of = self._known
        for partition, key in names:
            if type(key) is not bytes or len(key) > KEY_BYTES_MAX:
                check_keys((key,))  # raises
            known, kind = known_of(partition.name), partition.kind
            if known is not None and known[1] is kind:
                wanted += (known[0], key)
            else:
                wanted += (self._find(partition), key)  # that of a new partition equals none
            kinds += (kind,)
        try:
            statement = sql.get_rows(kinds, is_last_version)
            found: list[Any]
            ((*found,),) = self._connection.execute(statement, wanted).fetchall()
        except sqlite3.Error as error:
            raise failures.read_error(error) from error
        return found

    def page(self, partition: Partition, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        """Returns up to `limit` rows of `[start, end)`."""
        number = self._find(partition)
        if number is None:
            return []
        try:
            return self._select(partition, number, start, end, limit).fetchall()
        except sqlite3.Error as error:
            raise failures.read_error(error) from error

    def companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """Returns up to `limit` companions of `[start, end)`."""
        number = self._find(partition)
        if number is None:
            return []
        wanted = (number, start, _PAST_ALL_KEYS if end is None else end, limit)
        try:
            rows = self._connection.execute(sql.PAGE_OF_COMPANIONS, wanted).fetchall()
        except sqlite3.Error as error:
            raise failures.read_error(error) from error
        return [Companion(*row) for row in rows]

    def bounded_page(self, partition: Partition, start: bytes, end: bytes | None) -> list[Row]:
        """Returns the first rows of `[start, end)`: as many as fit the bounds of a batch in rows and bytes,
        but at least one if the range is not empty."""
        number = self._find(partition)
        if number is None:
            return []
        rows: list[Row] = []
        left_bytes = _BATCH_BYTES
        try:
            cursor = self._select(partition, number, start, end, _BATCH_ROWS)
            try:
                for row in cursor:
                    rows.append(row)
                    left_bytes -= len(row[0]) + len(row[1])
                    if left_bytes <= 0:
                        break
            finally:
                cursor.close()
        except sqlite3.Error as error:
            raise failures.read_error(error) from error
        return rows

    def sifted(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`. Examines all rows of the range, unless they are more than `_EXAMINED_ROWS`.

        The number of rows is found only if the statement is interrupted, because counting them costs as much as
        examining them.
        """
        number = self._find(partition)
        if number is None:
            return SiftedPage([], None)
        end = _PAST_ALL_KEYS if end is None else end
        page = self._pages_without(partition, number, limit, unwanted)
        try:
            rows = self._bounded(lambda: page(start, end, True), _STEPS_MAX, _STEPS_PER_CALL)
            if rows is None:
                nth = (number, start, end, _EXAMINED_ROWS - 1)
                statement = sql.STATEMENTS[partition.kind].nth_key
                last = self._connection.execute(statement, nth).fetchall()
                if last:
                    rows = page(start, last[0][0] + b"\0", True)
                    upto = rows[-1][0] if len(rows) == limit else last[0][0]
                    return SiftedPage(rows, upto)
                rows = page(start, end, True)
        except sqlite3.Error as error:
            raise failures.read_error(error) from error
        return _sifted(rows, limit)

    def sifted_quickly(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage | None:
        """As `sifted`; None if that takes too long for the event loop."""
        number = self._find(partition)
        if number is None:
            return SiftedPage([], None)
        end = _PAST_ALL_KEYS if end is None else end
        page = self._pages_without(partition, number, limit, unwanted)

        def quick_page(start: bytes, *, may_use_index: bool = True) -> list[Row] | None:
            return self._bounded(
                lambda: page(start, end, may_use_index), _QUICK_STEPS, _QUICK_STEPS_PER_CALL
            )

        try:
            rows = None
            if _is_indexed(partition, unwanted):
                # The tombstones of a queue lie in front. Behind them, a walk takes half the time of the index.
                first = self._connection.execute(sql.FIRST_LIVE, (number, start, end)).fetchall()
                if not first:
                    return SiftedPage([], None)
                start = first[0][0]
                rows = quick_page(start, may_use_index=False)
            if rows is None:
                rows = quick_page(start)
        except sqlite3.Error as error:
            raise failures.read_error(error) from error
        return None if rows is None else _sifted(rows, limit)

    def _pages_without(
        self, partition: Partition, number: int, limit: int, unwanted: RowFilter
    ) -> Callable[[bytes, bytes, bool], list[Row]]:
        """Returns a function that reads the first wanted rows of `[start, end)`, by the index if it may and can."""
        above: dict[PartitionKind, list[int]] = {kind: [] for kind in PartitionKind}
        for each in unwanted.hidden_by:
            if (other := self._find(each)) is not None:
                above[each.kind].append(other)
        counts = tuple(map(len, above.values()))
        numbers = tuple(chain(*above.values()))
        is_indexed = _is_indexed(partition, unwanted)

        def page(start: bytes, end: bytes, may_use_index: bool) -> list[Row]:
            if may_use_index and is_indexed:
                statement = sql.page_of_live(counts)
                values: tuple[bytes, ...] = ()
            else:
                statement = sql.page_without(partition.kind, counts)
                begins = unwanted.value_begins
                values = (begins, sql.past_prefix(begins))
            wanted = (number, start, end, *numbers, *values, limit)
            return self._connection.execute(statement, wanted).fetchall()

        return page

    def _bounded(
        self, select: Callable[[], list[Row]], steps_max: int, steps_per_call: int
    ) -> list[Row] | None:
        """Runs a statement; returns None if it was interrupted because it takes too many steps."""
        calls = 0

        def count() -> bool:
            nonlocal calls
            calls += 1
            return calls > steps_max // steps_per_call

        self._connection.set_progress_handler(count, steps_per_call)
        try:
            return select()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                return None
            raise
        finally:
            self._connection.set_progress_handler(None, 0)

    async def all_partitions(
        self, prefix: str, check_open: Callable[[], None]
    ) -> AsyncIterator[PartitionInfo]:
        """Yields the partitions that hold rows, by name; `check_open` raises if the store was closed meanwhile."""
        after = ""
        while True:
            check_open()
            page = self.partitions(prefix, after, _NAMES)
            for listed in page:
                yield listed
            if len(page) < _NAMES:
                return
            after = page[-1].name
            await asyncio.sleep(0)

    def partitions(self, prefix: str, after: str, limit: int) -> list[PartitionInfo]:
        """Returns up to `limit` partitions that hold rows, by name, beginning after the name `after`."""
        wanted = (after, len(prefix), prefix, limit)
        try:
            rows = self._connection.execute(sql.LIST_PARTITIONS, wanted).fetchall()
        except sqlite3.Error as error:
            raise failures.read_error(error) from error
        return [PartitionInfo(name, sql.KINDS_BY_NUMBER[kind], None) for name, kind in rows]

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._connection.close()

    def _find(self, partition: Partition) -> int | None:
        try:
            return self._partitions.find(partition)
        except sqlite3.Error as error:
            raise failures.read_error(error) from error

    def _select(
        self, partition: Partition, number: int, start: bytes, end: bytes | None, limit: int
    ) -> sqlite3.Cursor:
        statements = sql.STATEMENTS[partition.kind]
        if end is None:
            return self._connection.execute(statements.page, (number, start, limit))
        return self._connection.execute(statements.page_before, (number, start, end, limit))


def _is_indexed(partition: Partition, unwanted: RowFilter) -> bool:
    """Whether the rows without the unwanted ones have an index."""
    return unwanted.value_begins == sql.TOMBSTONE_BEGINS and partition.kind is PartitionKind.PLAIN


def _sifted(rows: list[Row], limit: int) -> SiftedPage:
    """The page of rows of a range that was examined to its end, or until the page was full."""
    return SiftedPage(rows, rows[-1][0] if len(rows) == limit else None)


class BulkReader:
    """Reads whole ranges page by page in its own thread, while the event loop continues. No snapshot
    outlives a page, so the write-ahead log can be emptied between pages.

    All scans of the process share one thread. Most of the work is to build objects under the interpreter's
    lock, which more threads would not speed up.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tarn-kv-scan")
        self._reader: Reader | None = None
        self._closing = False

    async def batches(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """See `Kv.scan_arrow`."""
        loop = asyncio.get_running_loop()
        while True:
            if self._closing:
                raise closed_error()
            found = await loop.run_in_executor(self._pool, self._read, partition, start, end)
            if found is None:
                return
            batch, start = found
            yield batch

    async def close(self) -> None:
        """Waits for the page that is being read. Idempotent."""
        if not self._closing:
            self._closing = True
            await asyncio.get_running_loop().run_in_executor(self._pool, self._close)
            self._pool.shutdown()

    async def sifted(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        if self._closing:
            raise closed_error()

        def read() -> SiftedPage:
            return self._opened().sifted(partition, start, end, limit, unwanted)

        return await asyncio.get_running_loop().run_in_executor(self._pool, read)

    def _opened(self) -> Reader:
        if self._reader is None:
            try:
                self._reader = Reader(connect_reader(self._path))
            except sqlite3.Error as error:
                raise failures.read_error(error) from error
        return self._reader

    def _read(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> tuple[pa.RecordBatch, bytes] | None:
        rows = self._opened().bounded_page(partition, start, end)
        if not rows:
            return None
        keys, values = zip(*rows, strict=True)
        # The smallest key greater than the last key is the last key plus a zero byte.
        return row_batch(keys, values), keys[-1] + b"\0"

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _versioned(columns: Sequence[Any]) -> list[Versioned | None]:
    """Returns rows of their values and versions."""
    each = iter(columns)
    return [
        None if value is None else Versioned(value, version)
        for value, version in zip(each, each, strict=True)
    ]


def _arranged(names: Sequence[RowName]) -> tuple[list[RowName], list[int]]:
    """Returns rows for which there are few statements, and the place of each of `names` among them.

    The rows are sorted by kind, and of each kind they are a power of two: the last one is repeated.
    """
    arranged: list[RowName] = []
    places = [0] * len(names)
    for kind in PartitionKind:
        of_kind = [number for number, (partition, _) in enumerate(names) if partition.kind is kind]
        if not of_kind:
            continue
        for place, number in enumerate(of_kind, len(arranged)):
            places[number] = place
        arranged += [names[number] for number in of_kind]
        room = 1 << (len(of_kind) - 1).bit_length()
        arranged += [names[of_kind[-1]]] * (room - len(of_kind))
    return arranged, places
