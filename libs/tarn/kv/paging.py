"""Scans of ranges that may be longer than one page.

Pages are separate reads, so a scan beside concurrent writes is not a snapshot:

- A row that was acknowledged before the first page was requested, and is not removed, is returned exactly
  once and in order.
- A row written during the scan is returned only if it lies behind the pages read by then. So of two such
  rows, the scan may return the later one and miss the earlier one.
- A row removed during the scan may still be returned.

A caller that needs stronger guarantees reads the rows again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from tarn.kv.port import Partition, Row, RowFilter, SiftedPage, Versioned

__all__ = ["Gettable", "Scannable", "pages_of", "rows_of", "sifted", "without_hidden"]


class Scannable(Protocol):
    """A source of pages of rows. Every `Kv` is one."""

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        ...


class Gettable(Protocol):
    """A source of single rows. Every `Kv` is one."""

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes]
    ) -> Sequence[Versioned | None]:
        """See `Kv.get_many`."""
        ...


class _Readable(Scannable, Gettable, Protocol):
    """A source of pages and of single rows."""


async def pages_of(
    kv: Scannable, partition: Partition, start: bytes, end: bytes | None, limit: int
) -> AsyncIterator[list[Row]]:
    """Yields the rows of `[start, end)` in pages of up to `limit`, none of them empty.

    The next page is read when the caller asks for it, and only if the last page was full.
    """
    while True:
        page = await kv.scan(partition, start, end, limit)
        if page:
            yield page
        if len(page) < limit:
            return
        # The smallest key greater than the last key is the last key plus a zero byte.
        start = page[-1][0] + b"\0"


async def rows_of(
    kv: Scannable, partition: Partition, start: bytes, end: bytes | None, limit: int
) -> AsyncIterator[Row]:
    """Yields the rows of `[start, end)` one by one; each read fetches up to `limit` rows."""
    async for page in pages_of(kv, partition, start, end, limit):
        for row in page:
            yield row


async def sifted(
    kv: _Readable,
    partition: Partition,
    start: bytes,
    end: bytes | None,
    limit: int,
    unwanted: RowFilter,
    examined_max: int,
) -> SiftedPage:
    """`Kv.scan_without` by ordinary scans and point reads, for engines that cannot look at values. Examines about
    `examined_max` rows."""
    page = await _wanted(kv, partition, start, end, limit, unwanted.value_begins, examined_max)
    return await without_hidden(kv, page, unwanted.hidden_by)


async def without_hidden(
    kv: Gettable, page: SiftedPage, hidden_by: Sequence[Partition]
) -> SiftedPage:
    """Leaves out the rows of a page whose key has a row in one of other partitions. Looks for each."""
    rows, probes = page.rows, page.probes
    for partition in hidden_by:
        if not rows:
            break
        probes += len(rows)
        found = await kv.get_many(partition, [key for key, _ in rows])
        rows = [row for row, over in zip(rows, found, strict=True) if over is None]
    return SiftedPage(rows, page.upto, probes)


async def _wanted(
    kv: Scannable,
    partition: Partition,
    start: bytes,
    end: bytes | None,
    limit: int,
    begins: bytes,
    examined_max: int,
) -> SiftedPage:
    rows: list[Row] = []
    examined = 0
    async for page in pages_of(kv, partition, start, end, limit):
        examined += len(page)
        rows += [row for row in page if not row[1].startswith(begins)]
        if len(rows) >= limit:
            return SiftedPage(rows[:limit], rows[limit - 1][0])
        if len(page) == limit and examined >= examined_max:
            return SiftedPage(rows, page[-1][0])
    return SiftedPage(rows, None)
