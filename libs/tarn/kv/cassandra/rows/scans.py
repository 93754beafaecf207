"""Scans: pages of rows, and Arrow batches of rows that are fetched ahead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import cast

import pyarrow as pa

from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.cluster.session import CassandraSession, Profile, Rows
from tarn.kv.cassandra.cluster.statements import Statements, open_value, seal_value
from tarn.kv.cassandra.partitions.buckets import AskPage, MergedScan, RowT, rows_of_first_page
from tarn.kv.cassandra.settings import CassandraLimits
from tarn.kv.port import (
    COMPANION_KEYS,
    PAST_COMPANIONS,
    Companion,
    Partition,
    PartitionKind,
    Row,
    SiftedPage,
    row_batch,
)

__all__ = ["Scans"]

_BATCH_ROWS_MAX = 65_536
_BATCH_ROWS = 8_192
_BATCH_BYTES = 8 << 20
_ROWS_AT_ONCE = 8_000
_EXAMINED_ROWS = 50_000


class Scans:
    """Reads ranges of partitions. Belongs to the running event loop."""

    def __init__(
        self,
        session: CassandraSession,
        statements: Statements,
        limits: CassandraLimits,
        retry: Retry,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._limits = limits
        self._retry = retry
        self._page = {
            PartitionKind.REGISTER: statements.cas_page,
            PartitionKind.PLAIN: statements.plain_page,
        }
        self._page_to_end = {
            PartitionKind.REGISTER: statements.cas_page_to_end,
            PartitionKind.PLAIN: statements.plain_page_to_end,
        }
        self._companions = {
            PartitionKind.REGISTER: statements.cas_companions,
            PartitionKind.PLAIN: statements.plain_companions,
        }

    async def page(
        self, partition: Partition, p: bytes, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`.

        Raises:
            Exception: an error of the driver.
        """
        first_rows = rows_of_first_page(limit, partition.buckets)
        found: list[Row] = []
        for first, last in _beside_companions(start, end):
            scan = self._scan(partition, p, first, last, first_rows, limit, ahead=False)
            async for rows in scan.lists():
                found += rows
                if len(found) >= limit:
                    break
            if len(found) >= limit:
                break
        return [(key, open_value(cell)) for key, cell in found[:limit]]

    async def companions(
        self, partition: Partition, p: bytes, start: bytes, end: bytes, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`. The order is the time of the write, or the ballot's time, in microseconds.

        Raises:
            Exception: an error of the driver.
        """
        prepared = self._companions[partition.kind]

        def ask(bucket: int, first: bytes, rows: int) -> asyncio.Future[Rows]:
            bound = prepared.bind((p, bucket, first, end, rows))
            bound.fetch_size = None
            return self._session.ask(bound, Profile.READ)

        scan = self._merged(
            ask, partition, start, rows_of_first_page(limit, partition.buckets), limit, ahead=False
        )
        found: list[Companion] = []
        async for rows in scan.lists():
            found += [Companion(key, open_value(cell), order) for key, cell, order in rows]
            if len(found) >= limit:
                break
        return found[:limit]

    async def sifted(
        self,
        partition: Partition,
        p: bytes,
        start: bytes,
        end: bytes | None,
        limit: int,
        begins: bytes,
    ) -> SiftedPage:
        """A page of `Kv.scan_without` without the rows whose value begins so.

        Raises:
            Exception: an error of the driver.
        """
        sealed = seal_value(begins)
        rows_max = max(1, _ROWS_AT_ONCE // partition.buckets)
        first_rows = min(rows_max, rows_of_first_page(_ROWS_AT_ONCE, partition.buckets))
        scan = self._scan(partition, p, start, end, first_rows, rows_max, ahead=True)
        found: list[Row] = []
        examined = 0
        lists = cast("AsyncGenerator[list[Row], None]", scan.lists())
        async with aclosing(lists):
            async for rows in lists:
                examined += len(rows)
                wanted = _without_companions(rows)
                found += [row for row in wanted if not row[1].startswith(sealed)]
                if len(found) >= limit or examined >= _EXAMINED_ROWS:
                    upto = found[limit - 1][0] if len(found) >= limit else rows[-1][0]
                    break
                await asyncio.sleep(0)
            else:
                upto = None
        return SiftedPage([(key, open_value(cell)) for key, cell in found[:limit]], upto)

    async def batches(
        self, partition: Partition, p: bytes, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`. While the consumer uses a batch, the next page of every bucket is requested.

        Raises:
            Exception: an error of the driver.
        """
        rows_max = max(1, _ROWS_AT_ONCE // partition.buckets)
        first_rows = min(rows_max, rows_of_first_page(_ROWS_AT_ONCE, partition.buckets))
        gathered: list[Row] = []
        size_bytes = 0
        for first, last in _beside_companions(start, end):
            scan = self._scan(partition, p, first, last, first_rows, rows_max, ahead=True)
            lists = cast("AsyncGenerator[list[Row], None]", scan.lists())
            async with aclosing(lists):
                async for rows in lists:
                    gathered += rows
                    size_bytes += _size(rows)
                    if len(gathered) >= _BATCH_ROWS or size_bytes >= _BATCH_BYTES:
                        for batch in _batches(gathered):
                            yield batch
                        gathered, size_bytes = [], 0
                    # Pages that have already arrived must not keep other tasks from running.
                    await asyncio.sleep(0)
        for batch in _batches(gathered):
            yield batch

    def _scan(
        self,
        partition: Partition,
        p: bytes,
        start: bytes,
        end: bytes | None,
        first_rows: int,
        rows_max: int,
        *,
        ahead: bool,
    ) -> MergedScan[Row]:
        prepared = (self._page_to_end if end is None else self._page)[partition.kind]

        def ask(bucket: int, first: bytes, rows: int) -> asyncio.Future[Rows]:
            last = () if end is None else (end,)
            bound = prepared.bind((p, bucket, first, *last, rows))
            # We page by keys, because a repeated request can continue from a key.
            bound.fetch_size = None
            return self._session.ask(bound, Profile.READ)

        return self._merged(ask, partition, start, first_rows, rows_max, ahead=ahead)

    def _merged(
        self,
        ask: AskPage[RowT],
        partition: Partition,
        start: bytes,
        first_rows: int,
        rows_max: int,
        *,
        ahead: bool,
    ) -> MergedScan[RowT]:
        return MergedScan(
            ask,
            self._retry,
            buckets=partition.buckets,
            start=start,
            first_rows=first_rows,
            rows_max=min(rows_max, self._limits.page_rows_max),
            page_bytes=self._limits.page_bytes,
            ahead=ahead,
        )


def _beside_companions(start: bytes, end: bytes | None) -> list[tuple[bytes, bytes | None]]:
    """The range without that of companions: no scan walks over the Cassandra tombstones of those that were removed."""
    if start >= PAST_COMPANIONS or (end is not None and end <= COMPANION_KEYS):
        return [(start, end)]
    before = [(start, COMPANION_KEYS)] if start < COMPANION_KEYS else []
    is_past = end is None or end > PAST_COMPANIONS
    return [*before, *([(PAST_COMPANIONS, end)] if is_past else [])]


def _without_companions(rows: list[Row]) -> list[Row]:
    """The rows of a sorted list that are no companions."""
    if rows[-1][0] < COMPANION_KEYS or rows[0][0] >= PAST_COMPANIONS:
        return rows
    return [row for row in rows if not row[0].startswith(COMPANION_KEYS)]


def _size(rows: Sequence[Row]) -> int:
    return sum([len(key) + len(cell) for key, cell in rows])


def _batches(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    """Splits rows into batches within the bounds of rows and bytes; each has at least one row."""
    part: list[Row] = []
    size_bytes = 0
    for row in rows:
        size_bytes += len(row[0]) + len(row[1])
        if part and (size_bytes > _BATCH_BYTES or len(part) >= _BATCH_ROWS_MAX):
            yield _batch(part)
            part, size_bytes = [], len(row[0]) + len(row[1])
        part.append(row)
    if part:
        yield _batch(part)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    return row_batch([key for key, _ in rows], [open_value(cell) for _, cell in rows])
