"""Building, reading and comparing listings, compared with dicts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from examples import FEWER
from hypothesis import given
from hypothesis import strategies as st
from listing_store import SPACE, ListingStore
from tests.support.clock import ManualClock
from tests.support.listings import (
    Change,
    Listing,
    applied,
    change_sets,
    changes_between,
    counts_of,
    listings,
    paths,
    run_of,
    sample_entry,
    staged,
)

from tarn.block import assembling
from tarn.block.committed import NOT_CACHED, BuildResult
from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockNotFoundError
from tarn.block.rangefile import describe_range, encode_range, metarange_path, range_path
from tarn.core.entry import TOMBSTONE, Entry, pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.changes import Counts
from tarn.core.listing.diff import DiffPage
from tarn.core.listing.metarange import EMPTY_METARANGE, RangeInfo
from tarn.core.listing.run import Run

EMPTY = EMPTY_METARANGE.metarange_id

RULES = st.builds(
    BreakRule,
    rows_mean=st.sampled_from([2, 4, 1 << 40]),
    rows_max=st.sampled_from([3, 7, 1000]),
    bytes_max=st.sampled_from([300, 1 << 30]),
)


class CountingStore(MemBlockStore):
    """A store that records which blocks were read and written."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.reads: list[str] = []
        self.puts: list[str] = []

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append(key.path)
        return await super().read(key, start, length)

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        self.puts.append(key.path)
        await super().put(key, body)


class BuiltListings(ListingStore[CountingStore]):
    """Listings that are built in steps, and compared."""

    def __init__(self, directory: Path, rule: BreakRule | None = None) -> None:
        super().__init__(CountingStore(), directory, rule)

    async def build(
        self, base: MetarangeId | None, *layers: Listing, batch_rows: int = 7
    ) -> BuildResult:
        streams = [staged(layer, batch_rows) for layer in layers]
        return await self.committed.build(SPACE, base, streams)

    async def listing(self, metarange_id: MetarangeId) -> list[tuple[str, bytes]]:
        return list(zip(*await self.committed.page(SPACE, metarange_id, "", 10_000), strict=True))

    async def changes(
        self, left: MetarangeId, right: MetarangeId, *, prefix: str = "", after: str = ""
    ) -> list[Change]:
        """Reads a listing page by page."""
        found: list[Change] = []
        upto: str | None = after
        while upto is not None:
            page = await self.committed.differences.page(
                SPACE, left, right, prefix=prefix, after=upto
            )
            assert page.next_after is None or page.next_after > upto
            found += changes_of(page)
            upto = page.next_after
        return found


@pytest.fixture
def lake(tmp_path: Path) -> BuiltListings:
    return BuiltListings(tmp_path)


@contextmanager
def lakes(rule: BreakRule) -> Iterator[BuiltListings]:
    with TemporaryDirectory() as directory, closing(BuiltListings(Path(directory), rule)) as lake:
        yield lake


def numbered(count: int, step: int = 1) -> Listing:
    return {f"k{number:05}": sample_entry(number) for number in range(0, count * step, step)}


def changes_of(page: DiffPage) -> list[Change]:
    return list(zip(page.paths, page.lefts, page.rights, strict=True))


# --- properties -------------------------------------------------------------------------------------


@FEWER
@given(
    RULES,
    st.lists(st.lists(change_sets(), min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(1, 20),
)
async def test_a_history_of_commits_is_a_history_of_dicts(
    rule: BreakRule, history: list[list[Listing]], batch_rows: int
) -> None:
    with lakes(rule) as lake:
        base: MetarangeId | None = None
        model: Listing = {}
        for layers in history:
            changes: Listing = {}
            for layer in reversed(layers):
                changes.update(layer)
            after = applied(model, changes)
            result = await lake.build(base, *layers, batch_rows=batch_rows)
            assert await lake.listing(result.metarange_id) == sorted(after.items())
            expected = changes_between(model, after)
            assert Counts(result.added, result.updated, result.removed) == counts_of(expected)
            assert result.changed == bool(expected)
            assert result.count == len(after)
            assert result.object_bytes == sum(unpack(value).size for value in after.values())
            # The result depends neither on the history nor on the sizes of batches.
            fresh = await lake.build(None, after, batch_rows=1000)
            assert fresh.metarange_id == result.metarange_id
            if base is not None:
                assert await lake.changes(base, result.metarange_id) == expected
            base, model = result.metarange_id, after


@FEWER
@given(
    RULES,
    listings(),
    paths(),
    st.sampled_from(["", "k", "k0", "a", "\U0010ffff"]),
    st.integers(1, 9),
)
async def test_a_page_is_a_slice_of_the_sorted_dict(
    rule: BreakRule, listing: Listing, start: str, prefix: str, limit: int
) -> None:
    with lakes(rule) as lake:
        built = (await lake.build(None, listing)).metarange_id
        page = zip(*await lake.committed.page(SPACE, built, start, limit, prefix), strict=True)
        rows = [
            row for row in sorted(listing.items()) if row[0] >= start and row[0].startswith(prefix)
        ]
        assert list(page) == rows[:limit]
        assert await lake.committed.lookup(SPACE, built, start) == listing.get(start)


@FEWER
@given(RULES, listings(), listings(), paths(), st.sampled_from(["", "k", "k0"]), st.integers(1, 9))
async def test_a_page_of_a_diff_is_a_slice_of_the_whole(
    rule: BreakRule, left: Listing, right: Listing, after: str, prefix: str, limit: int
) -> None:
    with lakes(rule) as lake:
        one, other = [(await lake.build(None, side)).metarange_id for side in (left, right)]
        expected = [
            change
            for change in changes_between(left, right)
            if change[0] > after and change[0].startswith(prefix)
        ]
        page = await lake.committed.differences.page(
            SPACE, one, other, prefix=prefix, after=after, limit=limit
        )
        assert changes_of(page) == expected[:limit]
        assert page.next_after == (page.paths[-1] if len(expected) > limit else None)


@FEWER
@given(RULES, listings(), change_sets())
async def test_a_staged_diff_is_the_diff_of_the_commit_to_come(
    rule: BreakRule, listing: Listing, changes: Listing
) -> None:
    with lakes(rule) as lake:
        built = (await lake.build(None, listing)).metarange_id
        found = await lake.committed.differences.staged_page(SPACE, built, run_of(changes).batch())
        assert changes_of(found) == changes_between(listing, applied(listing, changes))
        assert found.next_after is None


# --- what is opened and written ---------------------------------------------------------------------


async def test_untouched_ranges_are_taken_over_unopened(lake: BuiltListings) -> None:
    base = await lake.build(None, numbered(400))
    before = (await lake.committed.metarange(SPACE, base.metarange_id)).ranges
    assert len(before) > 50
    lake.store.reads.clear()
    lake.store.puts.clear()
    other = lake.machine()
    result = await other.build(SPACE, base.metarange_id, [staged({"k00200": sample_entry(9999)})])
    after = (await other.metarange(SPACE, result.metarange_id)).ranges
    assert (result.updated, result.ranges_written) == (1, 1)
    (changed,) = set(before) - set(after)
    assert lake.store.reads == [metarange_path(base.metarange_id), range_path(changed.range_id)]
    (made,) = set(after) - set(before)
    assert lake.store.puts == [range_path(made.range_id), metarange_path(result.metarange_id)]


async def test_a_change_without_effect_writes_nothing(lake: BuiltListings) -> None:
    listing = numbered(100)
    base = await lake.build(None, listing)
    lake.store.puts.clear()
    again = replace(unpack(listing["k00050"]), mtime_us=1, address=bytes(16))
    result = await lake.build(base.metarange_id, {"k00050": pack(again), "k00050a": TOMBSTONE})
    assert (result.metarange_id, result.changed) == (base.metarange_id, False)
    assert (result.added, result.updated, result.removed, result.ranges_written) == (0, 0, 0, 0)
    assert lake.store.puts == []


async def test_keys_behind_a_closed_end_leave_the_last_range_alone(tmp_path: Path) -> None:
    lake = BuiltListings(tmp_path, BreakRule(rows_mean=1 << 40, rows_max=10))
    base = await lake.build(None, numbered(20))
    lake.store.reads.clear()
    result = await lake.machine().build(
        SPACE, base.metarange_id, [staged({"k99999": sample_entry(1)})]
    )
    assert (result.ranges_reused, result.ranges_written) == (2, 1)
    assert lake.store.reads == [metarange_path(base.metarange_id)]


async def test_keys_behind_an_open_end_join_the_last_range(tmp_path: Path) -> None:
    lake = BuiltListings(tmp_path, BreakRule(rows_mean=1 << 40, rows_max=10))
    base = await lake.build(None, numbered(25))
    result = await lake.build(base.metarange_id, {"k99999": sample_entry(1)})
    ranges = (await lake.committed.metarange(SPACE, result.metarange_id)).ranges
    assert [info.count for info in ranges] == [10, 10, 6]
    assert result.ranges_reused == 2


async def test_forced_cuts_move_only_until_the_next_hash_cut(tmp_path: Path) -> None:
    lake = BuiltListings(tmp_path, BreakRule(rows_mean=40, rows_max=10))
    base = await lake.build(None, numbered(2000))
    result = await lake.build(base.metarange_id, {"k00000a": sample_entry(1)})
    assert 1 <= result.ranges_written < 40
    assert result.ranges_reused > 150
    listing = numbered(2000) | {"k00000a": sample_entry(1)}
    assert (await lake.build(None, listing)).metarange_id == result.metarange_id


async def test_shared_ranges_are_not_opened_by_a_diff(lake: BuiltListings) -> None:
    left = await lake.build(None, numbered(400))
    right = await lake.build(left.metarange_id, {"k00200": sample_entry(9999)})
    lake.store.reads.clear()
    found = await lake.machine().differences.page(SPACE, left.metarange_id, right.metarange_id)
    assert changes_of(found) == [("k00200", sample_entry(200), sample_entry(9999))]
    ranges = [path for path in lake.store.reads if path.startswith("_tarn/ranges/")]
    assert len(ranges) == 2


async def test_a_diff_with_itself_reads_nothing(lake: BuiltListings) -> None:
    built = (await lake.build(None, numbered(10))).metarange_id
    lake.store.reads.clear()
    assert await lake.machine().differences.page(SPACE, built, built) == DiffPage([], [], [], None)
    assert lake.store.reads == []


async def test_a_page_opens_no_range_behind_its_end(tmp_path: Path) -> None:
    """The first page of a listing reads only the ranges that it shows, however long the listing is."""
    lake = BuiltListings(tmp_path, BreakRule(rows_mean=1, rows_max=1))
    rows = numbered(50) | {"m": sample_entry(50), "n": sample_entry(51)}
    built = (await lake.build(None, rows)).metarange_id
    ranges = (await lake.committed.metarange(SPACE, built)).ranges
    files = {info.min_path: range_path(info.range_id) for info in ranges}

    async def opened(start: str, limit: int, prefix: str = "") -> set[str]:
        machine = lake.machine()
        await machine.metarange(SPACE, built)
        lake.store.reads.clear()
        await machine.page(SPACE, built, start, limit, prefix)
        return {path for path, file in files.items() if file in lake.store.reads}

    assert await opened("k00010", 3) == {"k00010", "k00011", "k00012"}
    assert await opened("", 100, "m") == {"m"}


async def test_a_page_that_finds_nothing_ends_after_some_ranges(tmp_path: Path) -> None:
    lake = BuiltListings(tmp_path, BreakRule(rows_mean=1, rows_max=1))
    written_later = {
        path: pack(replace(unpack(entry), mtime_us=7)) for path, entry in numbered(100).items()
    }
    left = (await lake.build(None, numbered(100))).metarange_id
    right = (await lake.build(None, written_later | {"k00099": sample_entry(100)})).metarange_id
    first = await lake.committed.differences.page(SPACE, left, right)
    assert (first.paths, first.next_after) == ([], "k00031")
    assert await lake.changes(left, right) == [("k00099", sample_entry(99), sample_entry(100))]


async def test_a_page_ends_when_it_is_large(lake: BuiltListings) -> None:
    large = {
        f"k{number:03}": pack(
            Entry(number, 0, bytes(16), bytes(16), content_type="x" * 60_000, expires="y" * 60_000)
        )
        for number in range(50)
    }
    built = (await lake.build(None, large)).metarange_id
    page = await lake.committed.differences.page(SPACE, EMPTY, built)
    assert page.next_after == page.paths[-1] == "k034"
    assert await lake.changes(EMPTY, built) == changes_between({}, large)
    of_staged = await lake.committed.differences.staged_page(SPACE, EMPTY, run_of(large).batch())
    assert of_staged == page


async def test_a_small_commit_leaves_its_ranges_in_the_cache(lake: BuiltListings) -> None:
    built = await lake.build(None, numbered(10))
    lake.store.reads.clear()
    assert await lake.committed.lookup(SPACE, built.metarange_id, "k00003") == sample_entry(3)
    assert lake.store.reads == []


async def test_a_file_of_the_same_rows_with_other_bytes_is_no_conflict(lake: BuiltListings) -> None:
    built = await lake.build(None, numbered(10))
    for info in (await lake.committed.metarange(SPACE, built.metarange_id)).ranges:
        await lake.store.delete_many(SPACE, [range_path(info.range_id)])
        await lake.store.put(BlockKey(SPACE, range_path(info.range_id)), b"of another library")
    assert (await lake.build(None, numbered(10))).metarange_id == built.metarange_id


# --- edges ------------------------------------------------------------------------------------------


async def test_no_changes_on_no_base_give_the_empty_listing(lake: BuiltListings) -> None:
    result = await lake.build(None)
    assert (result.metarange_id, result.changed, result.count) == (EMPTY, False, 0)
    assert lake.store.puts == [metarange_path(EMPTY)]
    assert await lake.listing(EMPTY) == []
    assert await lake.committed.lookup(SPACE, EMPTY, "a") is None


async def test_deleting_everything_gives_the_empty_listing(lake: BuiltListings) -> None:
    base = await lake.build(None, numbered(50))
    result = await lake.build(base.metarange_id, dict.fromkeys(numbered(50), TOMBSTONE))
    assert (result.metarange_id, result.changed, result.removed) == (EMPTY, True, 50)
    found = await lake.committed.differences.page(SPACE, base.metarange_id, EMPTY)
    assert changes_of(found) == changes_between(numbered(50), {})


async def test_an_entry_that_comes_back_brings_the_old_listing_back(lake: BuiltListings) -> None:
    base = await lake.build(None, numbered(50))
    without = await lake.build(base.metarange_id, {"k00025": TOMBSTONE})
    again = await lake.build(without.metarange_id, {"k00025": sample_entry(25)})
    assert without.metarange_id != base.metarange_id
    assert again.metarange_id == base.metarange_id


async def test_lookup_says_when_it_needs_the_disk(lake: BuiltListings) -> None:
    built = (await lake.build(None, numbered(100))).metarange_id
    other = lake.machine()
    assert other.lookup_cached(SPACE, built, "k00003") is NOT_CACHED
    assert await other.lookup(SPACE, built, "k00003") == sample_entry(3)
    assert other.lookup_cached(SPACE, built, "k00003") == sample_entry(3)
    assert other.lookup_cached(SPACE, built, "k00099") is NOT_CACHED
    # Between two ranges and after the last one, the metarange alone shows that there is no entry.
    assert other.lookup_cached(SPACE, built, "a") is None
    assert other.lookup_cached(SPACE, built, "z") is None


async def test_an_id_of_another_namespace_is_no_id_here(lake: BuiltListings) -> None:
    built = (await lake.build(None, numbered(10))).metarange_id
    assert lake.committed.lookup_cached("mem://other", built, "k00003") is NOT_CACHED
    with pytest.raises(BlockNotFoundError):
        await lake.committed.lookup("mem://other", built, "k00003")


# --- damage and failure -----------------------------------------------------------------------------


async def test_a_damaged_range_is_named(lake: BuiltListings) -> None:
    built = await lake.build(None, numbered(10))
    info = (await lake.committed.metarange(SPACE, built.metarange_id)).ranges[0]
    await lake.store.delete_many(SPACE, [range_path(info.range_id)])
    await lake.store.put(BlockKey(SPACE, range_path(info.range_id)), b"damaged")
    other = lake.machine()
    for work in (
        other.lookup(SPACE, built.metarange_id, info.min_path),
        other.page(SPACE, built.metarange_id, "", 10),
        other.differences.page(SPACE, EMPTY, built.metarange_id),
        other.build(SPACE, built.metarange_id, [staged({info.min_path: sample_entry(99)})]),
    ):
        with pytest.raises(TarnError, match=info.range_id) as caught:
            await work
        assert caught.value.kind is Kind.CORRUPT


async def test_a_damaged_metarange_is_named(lake: BuiltListings) -> None:
    built = (await lake.build(None, numbered(10))).metarange_id
    await lake.store.delete_many(SPACE, [metarange_path(built)])
    await lake.store.put(BlockKey(SPACE, metarange_path(built)), b"damaged")
    with pytest.raises(TarnError, match=built) as caught:
        await lake.machine().page(SPACE, built, "", 10)
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize("order", ["ba", "aa"])
async def test_layers_out_of_order_are_refused(lake: BuiltListings, order: str) -> None:
    async def batches() -> AsyncIterator[pa.RecordBatch]:
        for path in order:
            yield run_of({path: sample_entry(1)}).batch()

    with pytest.raises(TarnError, match="not sorted") as caught:
        await lake.committed.build(SPACE, None, [batches()])
    assert caught.value.kind is Kind.CORRUPT


async def test_a_layer_that_fails_fails_the_build_and_closes_the_others(
    lake: BuiltListings,
) -> None:
    closed = []

    async def good() -> AsyncIterator[pa.RecordBatch]:
        try:
            for number in range(100):
                yield run_of({f"k{number:03}": sample_entry(1)}).batch()
        finally:
            closed.append("good")

    async def bad() -> AsyncIterator[pa.RecordBatch]:
        yield run_of({"k050": TOMBSTONE}).batch()
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store went away")

    with pytest.raises(TarnError, match="went away"):
        await lake.committed.build(SPACE, None, [good(), bad()])
    assert closed == ["good"]


async def test_a_put_that_fails_fails_the_build(lake: BuiltListings) -> None:
    await lake.store.close()
    with pytest.raises(TarnError, match="closed") as caught:
        await lake.build(None, numbered(100))
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_builds_and_reads_run_side_by_side(lake: BuiltListings) -> None:
    base = (await lake.build(None, numbered(300))).metarange_id
    other = lake.machine()
    async with asyncio.TaskGroup() as group:
        builds = [
            group.create_task(
                other.build(SPACE, base, [staged({f"k{number:05}x": sample_entry(number)})])
            )
            for number in range(0, 300, 30)
        ]
        pages = [group.create_task(other.page(SPACE, base, "", 1000)) for _ in range(5)]
    for number, task in zip(range(0, 300, 30), builds, strict=True):
        listing = numbered(300) | {f"k{number:05}x": sample_entry(number)}
        assert await lake.listing(task.result().metarange_id) == sorted(listing.items())
    expected = sorted(numbered(300).items())
    assert all(list(zip(*task.result(), strict=True)) == expected for task in pages)


async def test_a_lone_range_is_hashed_while_it_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding = threading.Event()

    def encode(run: Run) -> pa.Buffer:
        encoding.set()
        return encode_range(run)

    def describe(run: Run) -> RangeInfo:
        assert encoding.wait(30), "the hash came first"
        return describe_range(run)

    monkeypatch.setattr(assembling, "_BESIDE_ROWS_MIN", 10)
    monkeypatch.setattr(assembling, "encode_range", encode)
    monkeypatch.setattr(assembling, "describe_range", describe)
    lake = BuiltListings(tmp_path, BreakRule(rows_mean=1 << 40, rows_max=1000))
    built = await lake.build(None, numbered(10))
    assert built.ranges_written == 1
    assert await lake.listing(built.metarange_id) == sorted(numbered(10).items())
