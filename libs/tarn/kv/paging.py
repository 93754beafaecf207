"""Ranges of rows that may be longer than a page.

Pages are separate reads, so what is read while others write is no snapshot. A row that was acknowledged
before the first page was asked for, and stays, comes exactly once and in order. One that is written
meanwhile comes if it lies behind the pages that were read by then: of two such rows, the later may come
and the earlier not. A removed one may come still. Whoever needs more reads again what was found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from tarn.kv.port import Partition, Row

__all__ = ["Scannable", "pages_of", "rows_of"]


class Scannable(Protocol):
    """What has pages of rows: every `Kv`."""

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        ...


async def pages_of(
    kv: Scannable, partition: Partition, start: bytes, end: bytes | None, limit: int
) -> AsyncIterator[list[Row]]:
    """The rows of `[start, end)` in pages of up to `limit`, none of them empty.

    The next one is read when it is asked for, and only if the one before was full.
    """
    while True:
        page = await kv.scan(partition, start, end, limit)
        if page:
            yield page
        if len(page) < limit:
            return
        # The smallest key after the last one is that key and a zero byte.
        start = page[-1][0] + b"\0"


async def rows_of(
    kv: Scannable, partition: Partition, start: bytes, end: bytes | None, limit: int
) -> AsyncIterator[Row]:
    """The rows of `[start, end)`, one by one; `limit` is what is read at once."""
    async for page in pages_of(kv, partition, start, end, limit):
        for row in page:
            yield row
