"""Comparing two listings: windows, bounds, and the ranges that are opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clock import ManualClock
from tests.support.listings import Listing, run_of, sample_entry

from tarn.block.comparing import Window, compared
from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.block.rangecache import RangeCache
from tarn.block.rangefile import describe_range, encode_range, range_path
from tarn.block.rangereader import RangeReader
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange

SPACE = "mem://lake"


@pytest.fixture
def reader(tmp_path: Path) -> RangeReader:
    return RangeReader(MemBlockStore(ManualClock()), RangeCache(tmp_path), None)


def rows(first: int, stop: int) -> Listing:
    return {f"k{number:02}": sample_entry(number) for number in range(first, stop)}


async def listing_of(reader: RangeReader, *ranges: Listing) -> Metarange:
    """A listing with given ranges."""
    infos = []
    for part in ranges:
        run = run_of(part)
        info = describe_range(run)
        await reader.store.put(
            BlockKey(SPACE, range_path(info.range_id)), memoryview(encode_range(run))
        )
        infos.append(info)
    return Metarange(tuple(infos))


async def windows(
    reader: RangeReader,
    left: Metarange,
    right: Metarange,
    start: str = "",
    end: str | None = None,
    rows_first: int = 100,
) -> list[Window]:
    compared_ = compared(reader, SPACE, left, right, start=start, end=end, rows_first=rows_first)
    return [window async for window in compared_]


async def found(
    reader: RangeReader, left: Metarange, right: Metarange, start: str = "", end: str | None = None
) -> list[list[str]]:
    """Returns the paths that differ, window by window."""
    steps = await windows(reader, left, right, start, end)
    changes = [window.changes.column("path").to_pylist() for window in steps]
    return [paths for paths in changes if paths]


async def test_listings_that_are_cut_otherwise_are_still_compared_by_rows(
    reader: RangeReader,
) -> None:
    left = await listing_of(reader, rows(0, 3), rows(3, 9), rows(9, 10))
    right = await listing_of(
        reader, rows(0, 7), rows(7, 8) | {"k085": sample_entry(1)} | rows(9, 10)
    )
    assert await found(reader, left, right) == [["k08"], ["k085"]]


async def test_a_side_that_ended_leaves_the_rest_to_the_other(reader: RangeReader) -> None:
    left = await listing_of(reader, rows(0, 3))
    right = await listing_of(reader, rows(0, 4), rows(4, 6), rows(6, 8))
    assert await found(reader, left, right) == [["k03"], ["k04", "k05"], ["k06", "k07"]]
    assert await found(reader, right, left) == [["k03"], ["k04", "k05"], ["k06", "k07"]]


async def test_bounds_are_inclusive_and_exclusive(reader: RangeReader) -> None:
    right = await listing_of(reader, rows(0, 3), rows(3, 6), rows(6, 9))
    assert await found(reader, EMPTY_METARANGE, right, "k02", "k07") == [
        ["k02"],
        ["k03", "k04", "k05"],
        ["k06"],
    ]
    assert await found(reader, EMPTY_METARANGE, right, "k02a", "k02b") == []
    assert await found(reader, EMPTY_METARANGE, right, "k09") == []


async def test_ranges_out_of_bounds_are_not_opened(reader: RangeReader) -> None:
    right = await listing_of(reader, rows(0, 3), rows(3, 6), rows(6, 9))
    outside = [range_path(right.ranges[place].range_id) for place in (0, 2)]
    await reader.store.delete_many(SPACE, outside)
    assert await found(reader, EMPTY_METARANGE, right, "k03", "k06") == [["k03", "k04", "k05"]]


async def test_two_empty_listings_do_not_differ(reader: RangeReader) -> None:
    assert await found(reader, EMPTY_METARANGE, EMPTY_METARANGE) == []


async def test_windows_grow_and_end_where_both_sides_are_known(reader: RangeReader) -> None:
    left = await listing_of(reader, rows(0, 9), rows(9, 12))
    right = await listing_of(reader, {"k005": sample_entry(1)} | rows(1, 4), rows(4, 20))
    steps = await windows(reader, left, right, rows_first=2)
    assert [window.upto for window in steps] == ["k01", "k03", "k08", "k11", "k19"]
    assert [window.ranges for window in steps] == [2, 2, 3, 4, 4]
    changed = [window.changes.column("path").to_pylist() for window in steps]
    assert changed == [["k00", "k005"], [], [], [], [f"k{number}" for number in range(12, 20)]]


async def test_ranges_that_both_have_are_passed_over_wherever_it_starts(
    reader: RangeReader,
) -> None:
    left = await listing_of(reader, rows(0, 3), rows(3, 6), rows(6, 9))
    right = await listing_of(reader, rows(0, 3), rows(3, 5), rows(6, 9))
    for shared in (0, 2):
        path = range_path(left.ranges[shared].range_id)
        await reader.store.delete_many(SPACE, [path])
    for start, end in (("", None), ("k01", None), ("k01", "k07"), ("k05", "k06a")):
        assert await found(reader, left, right, start, end) == [["k05"]]
    assert await found(reader, left, right, "k06", "k08") == []
