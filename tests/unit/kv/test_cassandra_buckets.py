"""Buckets: the bucket of a row, and pages of several buckets in order."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import ManualClock

from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.partitions.buckets import MergedScan, bucket_of, rows_of_first_page
from tarn.kv.port import Row

RETRY = Retry(ManualClock(), random.Random(1), attempts=1)


class Buckets:
    """Sorted rows in buckets, which return pages as a cluster does."""

    def __init__(self, keys: set[bytes], buckets: int, value: bytes = b"") -> None:
        self.rows: list[list[Row]] = [[] for _ in range(buckets)]
        self.requests: list[tuple[int, int]] = []
        self.fails = 0
        for key in sorted(keys):
            self.rows[bucket_of(key, buckets)].append((key, value))

    def ask(self, bucket: int, start: bytes, limit: int) -> asyncio.Future[list[Row]]:
        self.requests.append((bucket, limit))
        answer: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        if self.fails:
            self.fails -= 1
            answer.set_exception(ConnectionError("lost"))
            return answer
        at = bisect_left(self.rows[bucket], (start,))
        answer.set_result(self.rows[bucket][at : at + limit])
        return answer

    def scan(self, retry: Retry = RETRY, **changed: int | bytes | bool) -> MergedScan[Row]:
        arguments = {
            "buckets": len(self.rows),
            "start": b"",
            "first_rows": 3,
            "rows_max": 50,
            "page_bytes": 1 << 20,
            "ahead": False,
        } | changed
        return MergedScan(self.ask, retry, **arguments)  # type: ignore[arg-type]  # named as there


async def all_of(lists: AsyncIterator[list[Row]]) -> list[bytes]:
    return [key async for rows in lists for key, _ in rows]


@given(
    keys=st.sets(st.binary(max_size=3), max_size=60),
    buckets=st.integers(1, 9),
    first_rows=st.integers(1, 8),
    page_bytes=st.integers(1, 200),
    ahead=st.booleans(),
)
def test_a_scan_gives_every_row_once_and_in_order(
    keys: set[bytes], buckets: int, first_rows: int, page_bytes: int, ahead: bool
) -> None:
    async def scan() -> list[bytes]:
        found = Buckets(keys, buckets)
        merged = found.scan(first_rows=first_rows, page_bytes=page_bytes, ahead=ahead)
        return await all_of(merged.lists())

    assert asyncio.run(scan()) == sorted(keys)


async def test_a_scan_begins_at_its_start() -> None:
    found = Buckets({b"%d" % n for n in range(10)}, 3)
    assert await all_of(found.scan(start=b"4").lists()) == [b"%d" % n for n in range(4, 10)]


async def test_a_short_page_ends_a_bucket_without_another_request() -> None:
    found = Buckets({b"%d" % n for n in range(6)}, 2)
    await all_of(found.scan(first_rows=10).lists())
    assert sorted(found.requests) == [(0, 10), (1, 10)]


async def test_pages_follow_the_size_of_the_rows() -> None:
    """A page has few large rows or many small ones."""
    keys = {b"%04d" % n for n in range(300)}
    large = Buckets(keys, 1, bytes(1000))
    await all_of(large.scan(page_bytes=20_000, rows_max=1000).lists())
    small = Buckets(keys, 1)
    await all_of(small.scan(page_bytes=20_000, rows_max=1000).lists())
    assert large.requests[1] == (0, 19)
    assert small.requests[1] == (0, 1000)


async def test_pages_are_asked_for_ahead() -> None:
    """While the first page is used, the next page of every bucket is requested."""
    found = Buckets({b"%03d" % n for n in range(100)}, 4)
    lists = found.scan(ahead=True).lists()
    await anext(lists)
    assert Counter(bucket for bucket, _ in found.requests) == {0: 2, 1: 2, 2: 2, 3: 2}


async def test_a_failed_page_is_asked_for_again() -> None:
    found = Buckets({b"%d" % n for n in range(6)}, 2)
    found.fails = 2
    clock = ManualClock()
    retry = Retry(clock, random.Random(1), attempts=3)
    async with asyncio.TaskGroup() as tasks:
        scan = tasks.create_task(all_of(found.scan(retry).lists()))
        while not scan.done():
            await asyncio.sleep(0)
            clock.advance(1)
    assert scan.result() == [b"%d" % n for n in range(6)]


async def test_a_page_that_keeps_failing_fails_the_scan() -> None:
    found = Buckets({b"1"}, 3)
    found.fails = 9
    with pytest.raises(ConnectionError):
        await all_of(found.scan().lists())


def test_the_bucket_of_a_key_never_changes() -> None:
    """Stored rows are found by these numbers."""
    keys = [b"", b"key/a", b"key/b", b"branches/main", bytes(range(256))]
    assert [bucket_of(key, 1) for key in keys] == [0] * 5
    assert [bucket_of(key, 8) for key in keys] == [0, 4, 6, 0, 3]
    assert [bucket_of(key, 5) for key in keys] == [0, 1, 3, 1, 1]


def test_keys_are_spread_evenly_over_buckets() -> None:
    counts = Counter(bucket_of(b"key/part-%05d.parquet" % n, 8) for n in range(8000))
    assert min(counts.values()) > 900
    assert max(counts.values()) < 1100


@pytest.mark.parametrize(
    ("limit", "buckets", "rows"), [(1, 1, 1), (1000, 1, 500), (100, 4, 38), (1, 8, 1), (10, 4, 4)]
)
def test_first_pages_ask_for_half_as_much_again(limit: int, buckets: int, rows: int) -> None:
    assert rows_of_first_page(limit, buckets) == rows
