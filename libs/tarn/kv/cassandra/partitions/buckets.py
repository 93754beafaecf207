"""Buckets: the physical pieces of a partition, and how a scan merges them back into one order.

A partition of N buckets is N Cassandra partitions. This spreads its load over several sets of replicas, and
over several Paxos instances, as Paxos serialises the writes of each partition (docs/design/kv.md, "Buckets").
The hash of a group's anchor decides its bucket. A scan asks every bucket and merges whole pages: of all
unfinished buckets, it takes the last key read so far; up to the least of these keys, the rows are complete.
Sorting the concatenation of sorted runs is linear in C. Cost: N requests per page, O(rows) to merge.
"""

from __future__ import annotations

import asyncio
import zlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from operator import itemgetter
from typing import Any, Generic, TypeVar

from tarn.aio.futures import ignore_outcome
from tarn.kv.cassandra.cluster.retry import Retry

__all__ = ["BUCKETS_MAX", "AskPage", "MergedScan", "RowT", "bucket_of", "rows_of_first_page"]

BUCKETS_MAX = 1024

_FIRST_ROWS_MAX = 500
_REFILL_ROWS_MIN = 16

RowT = TypeVar("RowT", bound=tuple[Any, ...])
"""A key, a cell, and perhaps more columns."""

AskPage = Callable[[int, bytes, int], "asyncio.Future[list[RowT]]"]
"""Requests up to the given number of rows of a bucket, beginning with the given key."""

_key = itemgetter(0)


def bucket_of(anchor: bytes, buckets: int) -> int:
    """Returns the bucket of a group. This function must never change: reads use it to find stored rows."""
    return zlib.crc32(anchor) % buckets if buckets > 1 else 0


def rows_of_first_page(limit: int, buckets: int) -> int:
    """How many rows to ask each bucket for in the first request of a page of `limit` rows.

    1.5 times the bucket's share: hashes are uneven, and a bucket that runs out of rows costs another round
    trip. Bounded, because the size of the rows is not known yet.
    """
    share = limit if buckets == 1 else -(-3 * limit // (2 * buckets))
    return min(share, _FIRST_ROWS_MAX)


class MergedScan(Generic[RowT]):
    """Reads the rows of all buckets from a key on, as sorted lists.

    Args:
        ask: see `AskPage`.
        retry: repeats a page that failed.
        buckets: number of buckets.
        start: first key.
        first_rows: rows of the first request to each bucket; later requests follow `page_bytes`.
        rows_max: most rows of any request.
        page_bytes: size of the rows that one request to every bucket should return together.
        ahead: whether to request a bucket's next page while the consumer uses this one.
    """

    def __init__(
        self,
        ask: AskPage[RowT],
        retry: Retry,
        *,
        buckets: int,
        start: bytes,
        first_rows: int,
        rows_max: int,
        page_bytes: int,
        ahead: bool,
    ) -> None:
        share_bytes = max(1, page_bytes // buckets)
        self._buckets = [
            _Bucket(ask, retry, number, start, first_rows, rows_max, share_bytes, ahead)
            for number in range(buckets)
        ]

    async def lists(self) -> AsyncIterator[list[RowT]]:
        """Yields sorted, non-empty lists; all keys of a list are greater than those of the list before.

        Raises:
            Exception: the driver's error, for a page that failed too often.
        """
        unfinished = self._buckets
        while unfinished:
            for bucket in unfinished:
                if not bucket.rows:
                    bucket.send()
            for bucket in unfinished:
                if not bucket.rows:
                    await bucket.receive()
            # Beyond the least of these keys, an unfinished bucket may have rows that were not read yet.
            shown = [bucket.rows[-1][0] for bucket in unfinished if not bucket.finished]
            until = min(shown) if shown else None
            runs = [run for bucket in unfinished if (run := bucket.take(until))]
            rows = runs[0] if len(runs) == 1 else sorted([row for run in runs for row in run])
            unfinished = [b for b in unfinished if b.rows or not b.finished]
            if rows:
                yield rows


class _Bucket(Generic[RowT]):
    """The progress of reading one bucket.

    Attributes:
        rows: read and not taken yet, in order.
        finished: the bucket has no rows after `rows`. Invariant: after its first `receive`, an unfinished
            bucket has rows.
    """

    def __init__(
        self,
        ask: AskPage[RowT],
        retry: Retry,
        number: int,
        start: bytes,
        rows_next: int,
        rows_max: int,
        page_bytes: int,
        ahead: bool,
    ) -> None:
        self.rows: list[RowT] = []
        self.finished = False
        self._ask = ask
        self._retry = retry
        self._number = number
        self._start = start
        self._rows_next = rows_next
        self._rows_max = rows_max
        self._page_bytes = page_bytes
        self._ahead = ahead
        self._pending: asyncio.Future[list[RowT]] | None = None

    def send(self) -> None:
        """Requests the next page unless a request is already running."""
        if self._pending is None:
            self._pending = self._ask(self._number, self._start, self._rows_next)
            ignore_outcome(self._pending)  # a scan that is left early does not wait for it

    async def receive(self) -> None:
        """Waits for the requested page."""
        page = await self._retry.read(self._page)
        if len(page) < self._rows_next:
            self.finished = True
        if page:
            size_bytes = sum([len(row[0]) + len(row[1]) for row in page])
            fitting = self._page_bytes * len(page) // max(1, size_bytes)
            self._start = page[-1][0] + b"\0"
            self._rows_next = min(self._rows_max, max(_REFILL_ROWS_MIN, fitting))
            self.rows = page
        if self._ahead and not self.finished:
            self.send()

    def take(self, until: bytes | None) -> list[RowT]:
        """Removes and returns the rows up to and including the key `until`; None: all rows."""
        count = len(self.rows) if until is None else bisect_right(self.rows, until, key=_key)
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def _page(self) -> Awaitable[list[RowT]]:
        self.send()
        pending, self._pending = self._pending, None
        assert pending is not None
        return pending
