"""Merges and differences whose base is a fold of several listings, in a store, against plain dicts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from examples import FEWER
from hypothesis import given
from hypothesis import strategies as st
from listing_store import SPACE, ListingStore
from merges_by_definition import Trio, fold_by_definition, folds, merge_by_definition
from tests.support.choices import DEST_WINS, SOURCE_WINS
from tests.support.clock import ManualClock
from tests.support.listings import Change, Listing, applied, changes_between, sample_entry

from tarn.block.differences import DiffLeft
from tarn.block.mem import MemBlockStore
from tarn.block.merging import MergeSides
from tarn.block.port import BlockKey
from tarn.core.entry import TOMBSTONE
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.choice import REFUSE, Choice
from tarn.core.listing.folders import FolderPage
from tarn.core.listing.virtual import UNDECIDED, FoldStep, VirtualBase, VirtualLeft

RULES = st.builds(
    BreakRule,
    rows_mean=st.sampled_from([2, 4, 1 << 40]),
    rows_max=st.sampled_from([3, 7, 1000]),
)
PAIR = [FoldStep(0, 1, 2)]
Fold = tuple[list[Listing], list[FoldStep]]


class CountingStore(MemBlockStore):
    """Knows which ranges were read, and what was written."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.ranges: list[str] = []
        self.puts: list[str] = []

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        if key.path.startswith("_tarn/ranges/"):
            self.ranges.append(key.path)
        return await super().read(key, start, length)

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        self.puts.append(key.path)
        await super().put(key, body)


class FoldedListings(ListingStore[CountingStore]):
    """Listings that are folded, and merged from the fold."""

    def __init__(self, directory: str | Path, rule: BreakRule | None = None) -> None:
        super().__init__(CountingStore(), Path(directory), rule)

    async def fold(self, many: Sequence[Listing], steps: Sequence[FoldStep]) -> VirtualBase:
        ids = [await self.add(each) if each else None for each in many]
        return VirtualBase(tuple(ids), tuple(steps))

    async def sides(self, fold: Fold, source: Listing, dest: Listing) -> MergeSides:
        return MergeSides(await self.fold(*fold), await self.add(source), await self.add(dest))

    def forget(self) -> None:
        self.store.ranges.clear()
        self.store.puts.clear()


def conflict_rows(trio: Trio) -> list[tuple[str, bytes, bytes, bytes, bool]]:
    """The conflicts of a merge by definition, as pages have them."""
    return [
        (path, b"" if base == UNDECIDED else base, source, dest, base == UNDECIDED)
        for path, base, source, dest in merge_by_definition(trio).refused
    ]


@FEWER
@given(RULES, folds(), st.data(), st.sampled_from([REFUSE, SOURCE_WINS, DEST_WINS]))
async def test_a_merge_from_a_fold_is_a_merge_of_dicts(
    rule: BreakRule, fold: Fold, data: st.DataObject, choice: Choice
) -> None:
    """Sides that are ancestors themselves share ranges with the fold; others have changes of their own."""
    near = st.builds(
        applied,
        st.sampled_from(fold[0]),
        st.dictionaries(
            st.sampled_from(sorted({path for each in fold[0] for path in each}) or ["a"]),
            st.sampled_from([TOMBSTONE, *map(sample_entry, range(4))]),
            max_size=4,
        ),
    )
    source, dest = data.draw(near), data.draw(near)
    trio = Trio(fold_by_definition(*fold), source, dest)
    model = merge_by_definition(trio, None if choice is REFUSE else lambda _: choice.default)
    with TemporaryDirectory() as directory, closing(FoldedListings(directory, rule)) as lake:
        sides = await lake.sides(fold, source, dest)
        lake.forget()
        machine = lake.machine()
        preview = await machine.preview_merge(SPACE, sides, choice)
        page = preview.conflicts
        found = list(
            zip(page.paths, page.bases, page.sources, page.dests, page.undecided, strict=True)
        )
        assert lake.store.puts == []
        assert found == (conflict_rows(trio) if choice is REFUSE else [])
        counted = preview.changes.added + preview.changes.updated + preview.changes.removed
        assert counted == len(changes_between(dest, model.result))
        result = await machine.merge(SPACE, sides, choice)
        if model.refused:
            assert (result.metarange_id, result.conflict_count) == (None, len(model.refused))
        else:
            assert result.metarange_id == await lake.add(model.result)
            assert result.source_count + result.dest_count == sum(model.taken.values())
        paths: list[str] = []
        after: str | None = ""
        while after is not None:
            page = await machine.merge_conflicts(SPACE, sides, choice, after=after, limit=2)
            assert len(page.undecided) == len(page.paths)
            paths += page.paths
            after = page.next_after
        assert paths == [each[0] for each in model.refused]


@FEWER
@given(RULES, folds(), st.data(), st.sampled_from(["", "a", "k0", "é"]), st.integers(1, 9))
async def test_a_difference_from_a_fold_is_one_of_dicts(
    rule: BreakRule, fold: Fold, data: st.DataObject, prefix: str, limit: int
) -> None:
    left, right = (data.draw(st.sampled_from([*fold[0], {}])) for _ in range(2))
    base = {
        path: value if value != UNDECIDED else left.get(path, b"")
        for path, value in fold_by_definition(*fold).items()
    }
    base = {path: value for path, value in base.items() if value}
    expected = [each for each in changes_between(base, right) if each[0].startswith(prefix)]
    with TemporaryDirectory() as directory, closing(FoldedListings(directory, rule)) as lake:
        older: DiffLeft = VirtualLeft(await lake.fold(*fold), await lake.add(left))
        newer = await lake.add(right)
        found: list[Change] = []
        machine = lake.machine()
        after: str | None = ""
        while after is not None:
            page = await machine.differences.page(
                SPACE, older, newer, prefix=prefix, after=after, limit=limit
            )
            assert page.next_after is None or page.next_after > after
            found += zip(page.paths, page.lefts, page.rights, strict=True)
            after = page.next_after
        assert found == expected
        total = 0
        after = ""
        while after is not None:
            folders: FolderPage = await machine.differences.folders(
                SPACE, older, newer, prefix=prefix, delimiter="0", after=after, limit=limit
            )
            total += folders.total.added + folders.total.updated + folders.total.removed
            after = folders.next_after
        assert total == len(expected)


def numbered(count: int) -> Listing:
    return {f"k{number:05}": sample_entry(number) for number in range(count)}


async def test_ancestors_that_changed_different_ranges_are_folded_unopened(tmp_path: Path) -> None:
    lake = FoldedListings(tmp_path)
    base = numbered(400)
    one = applied(base, {"k00010": sample_entry(1000)})
    two = applied(base, {"k00390": sample_entry(1001)})
    both = one | {"k00390": two["k00390"]}
    source = applied(both, {"k00200": sample_entry(1002)})
    dest = applied(both, {"k00100": TOMBSTONE})
    sides = await lake.sides(([base, one, two], PAIR), source, dest)
    lake.forget()
    result = await lake.machine().merge(SPACE, sides)
    assert lake.store.ranges == []
    assert (result.ranges_written, result.conflict_count) == (0, 0)
    assert len(lake.store.puts) == 1
    assert result.metarange_id == await lake.add(applied(source, {"k00100": TOMBSTONE}))


async def test_only_the_ranges_of_undecided_spans_are_opened(tmp_path: Path) -> None:
    """The ancestors differ at one path, where one side has the first's version and the other the second's."""
    lake = FoldedListings(tmp_path)
    base = numbered(400)
    one, two = (applied(base, {"k00200": sample_entry(number)}) for number in (1000, 1001))
    left = VirtualLeft(await lake.fold([base, one, two], PAIR), await lake.add(one))
    source, dest = applied(one, {"k00010": sample_entry(5)}), applied(two, {"k00390": TOMBSTONE})
    sides = await lake.sides(([base, one, two], PAIR), source, dest)
    lake.forget()
    result = await lake.machine().merge(SPACE, sides)
    assert result.conflicts.paths == ["k00200"]
    assert result.conflicts.undecided == [True]
    # Source and destination have the ranges of the two ancestors there.
    assert len(set(lake.store.ranges)) == len(lake.store.ranges) == 3
    lake.forget()
    # Only "k00010" changed since the fold; at "k00200" the left side has the same version.
    page = await lake.machine().differences.page(SPACE, left, await lake.add(source))
    assert page.paths == ["k00010"]
    assert len(lake.store.ranges) == 5
