"""Merging listings in a store, against plain dicts; what is opened, written and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from examples import FEWER
from hypothesis import given
from hypothesis import strategies as st
from listing_store import SPACE, ListingStore
from merges_by_definition import Conflict, Trio, merge_by_definition, rewritten, trios
from tests.support.choices import DEST_WINS, SOURCE_WINS
from tests.support.clock import ManualClock
from tests.support.listings import (
    Listing,
    applied,
    change_sets,
    changes_between,
    counts_of,
    listings,
    sample_entry,
    staged,
)

from tarn.block import merging
from tarn.block.mem import MemBlockStore
from tarn.block.merging import ConflictPage, MergeSides
from tarn.block.port import BlockKey
from tarn.block.rangefile import metarange_path, range_path
from tarn.core.entry import TOMBSTONE
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.choice import REFUSE, Choice, ChoiceRule, Side
from tarn.core.listing.metarange import EMPTY_METARANGE, RangeInfo
from tarn.core.listing.tally import ChangeStats

EMPTY = EMPTY_METARANGE.metarange_id

RULES = st.builds(
    BreakRule,
    rows_mean=st.sampled_from([2, 4, 1 << 40]),
    rows_max=st.sampled_from([3, 7, 1000]),
    bytes_max=st.sampled_from([300, 1 << 30]),
)
CHOICES = st.sampled_from(
    [REFUSE, SOURCE_WINS, DEST_WINS, Choice(Side.SOURCE, (ChoiceRule("k*", Side.DEST),))]
)


class RecordingStore(MemBlockStore):
    """Knows which blocks were read and written; holds reads of ranges until some wait."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.reads: list[str] = []
        self.puts: list[str] = []
        self.failing: str | None = None
        self.hold_until = 0
        self._waiting = 0
        self._enough = asyncio.Event()

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append(key.path)
        if key.path.startswith("_tarn/ranges/"):
            self._waiting += 1
            if self._waiting >= self.hold_until:
                self._enough.set()
            await self._enough.wait()
        return await super().read(key, start, length)

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        if self.failing is not None and self.failing in key.path:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "away")
        self.puts.append(key.path)
        await super().put(key, body)

    def forget(self) -> None:
        self.reads.clear()
        self.puts.clear()

    def hold_ranges(self, until: int) -> None:
        """Reads of ranges wait until this number of them has begun."""
        self.hold_until, self._waiting = until, 0
        self._enough.clear()


class MergedListings(ListingStore[RecordingStore]):
    """Listings that are merged."""

    def __init__(self, directory: Path, rule: BreakRule | None = None) -> None:
        super().__init__(RecordingStore(), directory, rule)

    async def sides(self, trio: Trio) -> MergeSides:
        return MergeSides(
            await self.add(trio.base), await self.add(trio.source), await self.add(trio.dest)
        )

    async def ranges(self, metarange_id: MetarangeId | None) -> tuple[RangeInfo, ...]:
        assert metarange_id is not None
        return (await self.committed.metarange(SPACE, metarange_id)).ranges

    async def conflicts(
        self, sides: MergeSides, limit: int, after: str = "", choice: Choice = REFUSE
    ) -> list[Conflict]:
        """Page by page."""
        found: list[Conflict] = []
        upto: str | None = after
        while upto is not None:
            page = await self.committed.merge_conflicts(
                SPACE, sides, choice, after=upto, limit=limit
            )
            assert page.next_after is None or page.next_after > upto
            assert len(page.paths) <= limit
            found += conflicts_of(page)
            upto = page.next_after
        return found


@pytest.fixture
def lake(tmp_path: Path) -> MergedListings:
    return MergedListings(tmp_path)


@contextmanager
def lakes(rule: BreakRule) -> Iterator[MergedListings]:
    with TemporaryDirectory() as directory, closing(MergedListings(Path(directory), rule)) as lake:
        yield lake


def numbered(count: int, step: int = 1) -> Listing:
    return {f"k{number:05}": sample_entry(number) for number in range(0, count * step, step)}


def conflicts_of(page: ConflictPage) -> list[Conflict]:
    return list(zip(page.paths, page.bases, page.sources, page.dests, strict=True))


def ranges_in(paths: list[str]) -> list[str]:
    """Those that are ranges."""
    return [path for path in paths if path.startswith("_tarn/ranges/")]


def chooser(choice: Choice) -> Callable[[str], Side]:
    return lambda path: Side(int(choice.sides(pa.array([path]))[0]))


# --- properties -------------------------------------------------------------------------------------


@FEWER
@given(RULES, trios(), CHOICES, st.integers(1, 9))
async def test_a_merge_is_a_merge_of_dicts(
    rule: BreakRule, trio: Trio, choice: Choice, limit: int
) -> None:
    model = merge_by_definition(trio, chooser(choice))
    with lakes(rule) as lake:
        sides = await lake.sides(trio)
        result = await lake.machine().merge(SPACE, sides, choice, limit=limit)
        assert result.conflict_count == len(model.refused)
        assert conflicts_of(result.conflicts) == model.refused[:limit]
        if model.refused:
            assert result.metarange_id is None
            more = len(model.refused) > limit
            assert result.conflicts.next_after == (model.refused[limit - 1][0] if more else None)
            return
        taken = (result.source_count, result.dest_count)
        assert taken == (model.taken[Side.SOURCE], model.taken[Side.DEST])
        assert result.count == len(model.result)
        assert result.metarange_id is not None
        paths, entries = await lake.machine().page(SPACE, result.metarange_id, "", 10_000)
        assert dict(zip(paths, entries, strict=True)) == model.result
        # The ranges are those of a build from nothing.
        assert result.metarange_id == await lake.add(model.result)


@FEWER
@given(RULES, listings(), change_sets(), change_sets())
async def test_a_merge_is_the_commit_of_the_sources_changes(
    rule: BreakRule, base: Listing, source_changes: Listing, dest_changes: Listing
) -> None:
    """Without conflicts, the merge is what a commit writes that stages the same changes."""
    dest = {path: value for path, value in dest_changes.items() if path not in source_changes}
    with lakes(rule) as lake:
        build = lake.committed.build
        ancestor = (await build(SPACE, None, [staged(base)])).metarange_id
        ours = (await build(SPACE, ancestor, [staged(dest)])).metarange_id
        theirs = (await build(SPACE, ancestor, [staged(source_changes)])).metarange_id
        commit = await build(SPACE, ours, [staged(source_changes)])
        there = await lake.committed.merge(SPACE, MergeSides(ancestor, theirs, ours))
        back = await lake.committed.merge(SPACE, MergeSides(ancestor, ours, theirs))
        assert there.metarange_id == back.metarange_id == commit.metarange_id
        assert there.count == commit.count
        assert there.object_bytes == commit.object_bytes


@FEWER
@given(RULES, trios(), CHOICES)
async def test_a_preview_says_what_the_merge_does_and_writes_nothing(
    rule: BreakRule, trio: Trio, choice: Choice
) -> None:
    model = merge_by_definition(trio, chooser(choice))
    with lakes(rule) as lake:
        sides = await lake.sides(trio)
        lake.store.forget()
        preview = await lake.machine().preview_merge(SPACE, sides, choice)
        assert lake.store.puts == []
        expected = counts_of(changes_between(trio.dest, model.result))
        found = preview.changes
        assert (found.added, found.updated, found.removed) == (
            expected.added,
            expected.updated,
            expected.removed,
        )
        assert preview.conflict_count == len(model.refused)
        assert conflicts_of(preview.conflicts) == model.refused
        assert sum(preview.prefixes.values(), ChangeStats()) == found
        taken = (preview.source_count, preview.dest_count)
        assert taken == (model.taken[Side.SOURCE], model.taken[Side.DEST])


@FEWER
@given(RULES, trios(), st.integers(1, 5), st.sampled_from(["", "a", "k050", "k100", "x"]))
async def test_pages_of_conflicts_are_slices_of_all(
    rule: BreakRule, trio: Trio, limit: int, after: str
) -> None:
    model = merge_by_definition(trio)
    with lakes(rule) as lake:
        sides = await lake.sides(trio)
        found = await lake.conflicts(sides, limit, after)
        assert found == [conflict for conflict in model.refused if conflict[0] > after]


@FEWER
@given(RULES, listings(), listings())
async def test_listings_without_a_common_ancestor_merge_from_nothing(
    rule: BreakRule, source: Listing, dest: Listing
) -> None:
    model = merge_by_definition(Trio({}, source, dest))
    with lakes(rule) as lake:
        sides = MergeSides(None, await lake.add(source), await lake.add(dest))
        assert await lake.conflicts(sides, 7) == model.refused


# --- what is opened and written ----------------------------------------------------------------------


async def test_a_destination_without_changes_becomes_the_source_unopened(
    lake: MergedListings,
) -> None:
    base = numbered(400)
    trio = Trio(base, applied(base, {"k00001": TOMBSTONE, "k00399a": sample_entry(1)}), base)
    sides = await lake.sides(trio)
    for merged in (
        sides,
        MergeSides(sides.base, await lake.add(base), sides.source),
        MergeSides(sides.base, sides.source, sides.source),
    ):
        machine = lake.machine()
        lake.store.forget()
        assert (await machine.merge(SPACE, merged)).metarange_id == sides.source
        assert lake.store.puts == []
        assert ranges_in(lake.store.reads) == []


async def test_changes_in_different_ranges_are_joined_unopened(lake: MergedListings) -> None:
    base = numbered(400)
    source = applied(base, {"k00100": sample_entry(9999), "k00200a": sample_entry(1)})
    dest = applied(base, {"k00300": TOMBSTONE, "k00001": sample_entry(9998)})
    sides = await lake.sides(Trio(base, source, dest))
    lake.store.forget()
    result = await lake.machine().merge(SPACE, sides)
    assert result.metarange_id is not None
    assert lake.store.puts == [metarange_path(result.metarange_id)]
    assert ranges_in(lake.store.reads) == []
    assert (result.ranges_written, result.conflict_count) == (0, 0)
    assert result.ranges_reused == len(await lake.ranges(result.metarange_id))


async def test_of_a_range_that_both_changed_three_states_are_read_and_one_is_written(
    lake: MergedListings,
) -> None:
    base = numbered(400)
    middle = (await lake.ranges(await lake.add(base)))[30]
    first, last = middle.min_path, middle.max_path
    assert first < last
    source = applied(base, {first: sample_entry(9999), "k00001": sample_entry(9999)})
    dest = applied(base, {last: sample_entry(9998), "k00390": sample_entry(9998)})
    sides = await lake.sides(Trio(base, source, dest))
    lake.store.forget()
    result = await lake.machine().merge(SPACE, sides)
    opened = [
        path for path in lake.store.reads if path.startswith(range_path(middle.range_id)[:12])
    ]
    metaranges = {
        metarange_path(each)
        for each in (sides.base, sides.source, sides.dest)
        if isinstance(each, str)
    }
    assert len(set(opened) - metaranges) == 3
    assert range_path(middle.range_id) in opened
    assert result.ranges_written == 1
    assert len(lake.store.puts) == 2


async def test_both_append_behind_an_open_end(tmp_path: Path) -> None:
    lake = MergedListings(tmp_path, BreakRule(rows_mean=1 << 40, rows_max=10))
    base = numbered(25)
    source = base | {f"m{number}": sample_entry(number) for number in range(9)}
    dest = base | {f"n{number}": sample_entry(number) for number in range(9)}
    sides = await lake.sides(Trio(base, source, dest))
    result = await lake.committed.merge(SPACE, sides)
    assert result.metarange_id == await lake.add(source | dest)
    counts = [info.count for info in await lake.ranges(result.metarange_id)]
    assert counts == [10, 10, 10, 10, 3]


async def test_a_range_that_ended_open_takes_the_rows_that_the_other_side_appended(
    tmp_path: Path,
) -> None:
    """A range of ten rows is full; the source removed one of them, and the destination appended rows."""
    lake = MergedListings(tmp_path, BreakRule(rows_mean=1 << 40, rows_max=10))
    base = numbered(10)
    source = applied(base, {"k00005": TOMBSTONE})
    dest = base | {"n0": sample_entry(1), "n1": sample_entry(2)}
    result = await lake.committed.merge(SPACE, await lake.sides(Trio(base, source, dest)))
    assert [info.count for info in await lake.ranges(result.metarange_id)] == [10, 1]
    assert result.metarange_id == await lake.add(applied(dest, {"k00005": TOMBSTONE}))


async def test_an_object_that_the_source_wrote_again_is_the_sources(tmp_path: Path) -> None:
    """In a range that the destination changed, as in one that is taken over whole."""
    lake = MergedListings(tmp_path, BreakRule())
    base = {"a": sample_entry(1), "b": sample_entry(2)}
    source = base | {"a": rewritten(base["a"])}
    for dest in (base, base | {"b": sample_entry(3)}):
        result = await lake.committed.merge(SPACE, await lake.sides(Trio(base, source, dest)))
        assert result.metarange_id == await lake.add(dest | {"a": source["a"]})


async def test_a_refused_merge_publishes_nothing_and_counts_all_conflicts(
    lake: MergedListings,
) -> None:
    base = numbered(400)
    source = {path: sample_entry(1000 + at) for at, path in enumerate(base)}
    dest = {path: sample_entry(2000 + at) for at, path in enumerate(base)} | {"a": sample_entry(1)}
    sides = await lake.sides(Trio(base, source, dest))
    lake.store.forget()
    result = await lake.machine().merge(SPACE, sides, limit=3)
    assert result.metarange_id is None
    assert result.conflict_count == 400
    assert result.conflicts.paths == ["k00000", "k00001", "k00002"]
    assert result.conflicts.next_after == "k00002"
    assert lake.store.puts == []
    assert len(await lake.conflicts(sides, 1000, "k00002")) == 397


async def test_a_refused_merge_writes_no_range_after_its_first_conflict(
    lake: MergedListings,
) -> None:
    base = numbered(400)
    source = {path: sample_entry(1000 + at) for at, path in enumerate(base) if at % 2}
    dest = {path: sample_entry(2000 + at) for at, path in enumerate(base) if not at % 2 or at == 1}
    sides = await lake.sides(Trio(base, base | source, base | dest))
    lake.store.forget()
    result = await lake.machine().merge(SPACE, sides)
    assert (result.conflict_count, result.ranges_written, result.ranges_reused) == (1, 0, 0)
    assert (result.count, result.object_bytes) == (0, 0)
    assert lake.store.puts == []


async def test_the_revert_of_the_first_commit_stores_the_empty_listing(
    lake: MergedListings,
) -> None:
    """The merged listings name it already, but nothing may have written it."""
    head = await lake.add({"a": sample_entry(1)})
    result = await lake.machine().merge(SPACE, MergeSides(head, None, head))
    assert result.metarange_id == EMPTY
    assert await lake.store.read(BlockKey(SPACE, metarange_path(EMPTY)))


async def test_ranges_after_a_moved_cut_are_cut_again(tmp_path: Path) -> None:
    """All three listings are cut at the end of the first range, but the result is not."""
    lake = MergedListings(tmp_path, BreakRule(rows_mean=1 << 40, rows_max=3))
    base = numbered(30)
    source = applied(base, {"k00000": TOMBSTONE, "k00000a": sample_entry(1)})
    dest = applied(base, {"k00000": TOMBSTONE, "k00000b": sample_entry(1)})
    result = await lake.committed.merge(SPACE, await lake.sides(Trio(base, source, dest)))
    assert result.metarange_id == await lake.add(source | dest)
    assert [info.count for info in await lake.ranges(result.metarange_id)] == [3] * 10 + [1]


async def test_ranges_to_come_are_read_ahead(lake: MergedListings) -> None:
    base = numbered(400)
    source = {path: sample_entry(1000 + at) for at, path in enumerate(base) if at % 2}
    dest = {path: sample_entry(2000 + at) for at, path in enumerate(base) if not at % 2}
    sides = await lake.sides(Trio(base, base | source, base | dest))
    for work in (lake.machine().merge, lake.machine().preview_merge):
        lake.store.forget()
        lake.store.hold_ranges(until=9)
        async with asyncio.timeout(10):
            assert (await work(SPACE, sides)).conflict_count == 0
        assert len(lake.store.reads) == len(set(lake.store.reads))


async def test_a_page_of_conflicts_ends_when_it_is_large(
    lake: MergedListings, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = numbered(50)
    source = {path: sample_entry(1000) for path in base}
    dest = {path: sample_entry(2000) for path in base}
    sides = await lake.sides(Trio(base, source, dest))
    monkeypatch.setattr(merging, "_PAGE_BYTES_MAX", 1000)
    page = await lake.committed.merge_conflicts(SPACE, sides)
    row = 6 + 3 * len(sample_entry(1))
    assert len(page.paths) == -(-1000 // row)
    assert page.next_after == page.paths[-1]
    assert [conflict[0] for conflict in await lake.conflicts(sides, 1000)] == list(base)


async def test_a_page_that_finds_no_conflict_ends_after_some_ranges(
    lake: MergedListings, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = numbered(400)
    ranges = await lake.ranges(await lake.add(base))
    long = [info for info in ranges if info.count > 1]
    source = applied(base, {info.min_path: sample_entry(9999) for info in long})
    dest = applied(base, {info.max_path: sample_entry(9998) for info in long})
    sides = await lake.sides(Trio(base, source, dest))
    monkeypatch.setattr(merging, "_PAGE_RANGES_MAX", 6)
    page = await lake.committed.merge_conflicts(SPACE, sides)
    assert page.paths == []
    assert page.next_after == long[1].max_path
    assert await lake.conflicts(sides, 1000) == []


async def one_segment(lake: MergedListings) -> MergeSides:
    """95 paths are in conflict, in one segment of twenty ranges: the destination is cut five paths earlier."""
    paths = [*(f"a{number}" for number in range(5)), *numbered(95)]
    dest = {path: sample_entry(1000) for path in paths}
    return MergeSides(None, await lake.add(numbered(95)), await lake.add(dest))


async def test_a_page_that_ends_within_a_segment_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = MergedListings(tmp_path, BreakRule(rows_mean=1 << 40, rows_max=10))
    sides = await one_segment(lake)
    monkeypatch.setattr(merging, "_PAGE_RANGES_MAX", 6)
    page = await lake.committed.merge_conflicts(SPACE, sides)
    assert 0 < len(page.paths) < 95
    assert [conflict[0] for conflict in await lake.conflicts(sides, 1000)] == list(numbered(95))


async def test_a_page_does_not_open_ranges_before_its_beginning(tmp_path: Path) -> None:
    lake = MergedListings(tmp_path, BreakRule(rows_mean=1 << 40, rows_max=10))
    sides = await one_segment(lake)
    lake.store.forget()
    page = await lake.machine().merge_conflicts(SPACE, sides, after="k00079")
    assert page.paths == list(numbered(95))[80:]
    assert len(ranges_in(lake.store.reads)) == 4


# --- failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["_tarn/ranges/", "_tarn/metaranges/"])
async def test_a_put_that_fails_fails_the_merge(tmp_path: Path, failing: str) -> None:
    lake = MergedListings(tmp_path, BreakRule())
    base = numbered(3)
    source, dest = base | {"k00000": sample_entry(9)}, base | {"k00002": sample_entry(8)}
    sides = await lake.sides(Trio(base, source, dest))
    lake.store.failing = failing
    with pytest.raises(TarnError) as raised:
        await lake.committed.merge(SPACE, sides)
    assert raised.value.kind is Kind.UNAVAILABLE


async def test_a_lost_range_fails_the_merge_by_name(tmp_path: Path) -> None:
    lake = MergedListings(tmp_path, BreakRule())
    base = numbered(3)
    source, dest = base | {"k00000": sample_entry(9)}, base | {"k00002": sample_entry(8)}
    sides = await lake.sides(Trio(base, source, dest))
    (lost,) = await lake.ranges(sides.source)
    await lake.store.delete_many(SPACE, [range_path(lost.range_id)])
    machine = lake.machine()
    for work in (machine.merge, machine.preview_merge, machine.merge_conflicts):
        with pytest.raises(TarnError, match=lost.range_id):
            await work(SPACE, sides)


async def test_merges_run_side_by_side(lake: MergedListings) -> None:
    base = numbered(200)
    source = applied(base, {f"k{at:05}": sample_entry(9999) for at in range(0, 200, 20)})
    dest = applied(base, {f"k{at:05}": sample_entry(9998) for at in range(1, 200, 20)})
    sides = await lake.sides(Trio(base, source, dest))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(lake.committed.merge(SPACE, sides)) for _ in range(4)]
    expected = await lake.add(merge_by_definition(Trio(base, source, dest)).result)
    assert {task.result().metarange_id for task in tasks} == {expected}
