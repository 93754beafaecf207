"""Buckets: the physical pieces of a partition, and how a scan puts them in order again.

A partition of N buckets is N Cassandra partitions, so that neither Paxos, which serialises per
partition, nor one set of replicas takes all of its load (docs/design/kv.md, "Buckets"). The anchor of a group
decides its bucket by hash; a scan asks every bucket and merges. Merging takes whole pages: everything
up to the least of the last keys that the unfinished buckets have shown is complete, and sorting the
concatenation of sorted runs is linear in C. Cost: N requests for a page, O(rows) to merge.
"""

from __future__ import annotations

import asyncio
import zlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from operator import itemgetter

from tarn.aio.futures import ignore_outcome
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.port import Row

__all__ = ["BUCKETS_MAX", "AskPage", "MergedScan", "bucket_of", "rows_of_first_page"]

BUCKETS_MAX = 1024

_FIRST_ROWS_MAX = 500
_REFILL_ROWS_MIN = 16

AskPage = Callable[[int, bytes, int], "asyncio.Future[list[Row]]"]
"""Sends the request for a bucket's rows from a key on, so many at most."""

_key = itemgetter(0)


def bucket_of(anchor: bytes, buckets: int) -> int:
    """The bucket of a group. Never changes: rows are found again by it."""
    return zlib.crc32(anchor) % buckets if buckets > 1 else 0


def rows_of_first_page(limit: int, buckets: int) -> int:
    """How many rows each bucket is asked for at first, for a page of `limit`.

    Half as many again as its share: hashes are uneven, and a bucket that runs dry costs a round
    trip. Bounded, since nobody knows yet how large the rows are.
    """
    share = limit if buckets == 1 else -(-3 * limit // (2 * buckets))
    return min(share, _FIRST_ROWS_MAX)


class MergedScan:
    """The rows of all buckets from a key on, as sorted lists.

    Args:
        ask: see `AskPage`.
        retry: repeats a page that failed.
        buckets: how many.
        start: first key.
        first_rows: asked of each bucket at first; later as many as `page_bytes` suggests.
        rows_max: of any request.
        page_bytes: what the requests of all buckets together should bring in.
        ahead: whether to ask for the next page of a bucket while this one is used.
    """

    def __init__(
        self,
        ask: AskPage,
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

    async def lists(self) -> AsyncIterator[list[Row]]:
        """Sorted lists, each after the one before; none is empty.

        Raises:
            Exception: what the driver said of a page that failed too often.
        """
        unfinished = self._buckets
        while unfinished:
            for bucket in unfinished:
                if not bucket.rows:
                    bucket.send()
            for bucket in unfinished:
                if not bucket.rows:
                    await bucket.receive()
            # Before it may come rows that an unfinished bucket has not shown yet.
            shown = [bucket.rows[-1][0] for bucket in unfinished if not bucket.finished]
            until = min(shown) if shown else None
            runs = [run for bucket in unfinished if (run := bucket.take(until))]
            rows = runs[0] if len(runs) == 1 else sorted([row for run in runs for row in run])
            unfinished = [b for b in unfinished if b.rows or not b.finished]
            if rows:
                yield rows


class _Bucket:
    """How far one bucket has been read.

    Attributes:
        rows: read and not taken yet, in order.
        finished: nothing comes after `rows`. Invariant: an unfinished bucket that has received has
            rows.
    """

    def __init__(
        self,
        ask: AskPage,
        retry: Retry,
        number: int,
        start: bytes,
        rows_next: int,
        rows_max: int,
        page_bytes: int,
        ahead: bool,
    ) -> None:
        self.rows: list[Row] = []
        self.finished = False
        self._ask = ask
        self._retry = retry
        self._number = number
        self._start = start
        self._rows_next = rows_next
        self._rows_max = rows_max
        self._page_bytes = page_bytes
        self._ahead = ahead
        self._asked: asyncio.Future[list[Row]] | None = None

    def send(self) -> None:
        """Asks for the next page unless that is under way."""
        if self._asked is None:
            self._asked = self._ask(self._number, self._start, self._rows_next)
            ignore_outcome(self._asked)  # a scan that is left early does not wait for it

    async def receive(self) -> None:
        """Waits for the page that was asked for."""
        page = await self._retry.read(self._page)
        if len(page) < self._rows_next:
            self.finished = True
        if page:
            size_bytes = sum([len(key) + len(value) for key, value in page])
            fitting = self._page_bytes * len(page) // max(1, size_bytes)
            self._start = page[-1][0] + b"\0"
            self._rows_next = min(self._rows_max, max(_REFILL_ROWS_MIN, fitting))
            self.rows = page
        if self._ahead and not self.finished:
            self.send()

    def take(self, until: bytes | None) -> list[Row]:
        """Removes and returns the rows up to a key, included; None: all."""
        count = len(self.rows) if until is None else bisect_right(self.rows, until, key=_key)
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def _page(self) -> Awaitable[list[Row]]:
        self.send()
        asked, self._asked = self._asked, None
        assert asked is not None
        return asked
