"""Listings of compactions are cut finer; commits over them are cut as if there had been none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import ManualClock
from tests.support.listings import (
    Listing,
    applied,
    change_sets,
    listings,
    sample_entry,
    staged,
)
from tests.support.sim.blocks import MemRanges

from tarn.block import applying
from tarn.block.committed import BuildResult, Committed
from tarn.block.mem import MemBlockStore
from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.spans import PathSpan

T = TypeVar("T")

SPACE = "mem://lake"
RULES = st.builds(
    BreakRule,
    rows_mean=st.sampled_from([2, 4, 8, 1 << 40]),
    rows_max=st.sampled_from([3, 7, 1000]),
    bytes_max=st.sampled_from([300, 1 << 30]),
)


class AtOnce(Executor):
    """Does work in the thread that asks for it: listings of some rows take less time than a thread takes to wake."""

    def submit(self, work: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*args, **named))
        except Exception as error:  # noqa: BLE001 - as in a thread
            done.set_exception(error)
        return done


@contextmanager
def opened(rule: BreakRule, finer: int = 16) -> Iterator[Committed]:
    """An empty store in which compactions cut so many ranges finer."""
    with mock.patch.object(applying, "_FINER_RANGES", finer):
        executor, store = AtOnce(), MemBlockStore(ManualClock())
        yield Committed(store, MemRanges(executor), executor=executor, rule=rule)


async def compact(
    lake: Committed,
    head: MetarangeId,
    base: MetarangeId,
    changes: Listing,
    restored: PathSpan | None = None,
) -> BuildResult:
    return await lake.build(
        SPACE,
        base,
        [staged(changes)],
        head=None if head == base else head,
        restored=restored,
        counts_changes=False,
        finely=True,
    )


async def content(lake: Committed, listing: MetarangeId) -> Listing:
    return dict(zip(*await lake.page(SPACE, listing, "", 10_000), strict=True))


def numbered(count: int) -> Listing:
    return {f"k{number:05}": sample_entry(number) for number in range(count)}


@given(
    RULES,
    st.sampled_from([1, 3, 16]),
    listings(),
    st.lists(change_sets(), min_size=1, max_size=4),
    change_sets(),
)
async def test_a_commit_is_cut_by_the_rule_whatever_was_compacted_before(
    rule: BreakRule, finer: int, before: Listing, compactions: list[Listing], last: Listing
) -> None:
    with opened(rule, finer) as lake:
        head = (await lake.build(SPACE, None, [staged(before)])).metarange_id
        base, model = head, before
        for changes in compactions:
            model = applied(model, changes)
            base = (await compact(lake, head, base, changes)).metarange_id
            assert await content(lake, base) == model
            # Nothing is left uncommitted if, and only if, the branch needs no compacted listing.
            assert (base == head) == (model == before)
        model = applied(model, last)
        over = None if base == head else head
        made = await lake.build(SPACE, base, [staged(last)], head=over)
        fresh = await lake.build(SPACE, None, [staged(model)])
        assert made.metarange_id == fresh.metarange_id


@given(RULES, listings(), change_sets(), st.sampled_from(["", "k", "k0", "a"]))
async def test_a_reset_of_a_part_leaves_the_commits_listing_if_nothing_else_has_changed(
    rule: BreakRule, before: Listing, changes: Listing, prefix: str
) -> None:
    with opened(rule) as lake:
        head = (await lake.build(SPACE, None, [staged(before)])).metarange_id
        base = (await compact(lake, head, head, changes)).metarange_id
        left = (await compact(lake, head, base, {}, PathSpan.of_prefix(prefix))).metarange_id
        model = applied(
            before, {path: e for path, e in changes.items() if path[: len(prefix)] != prefix}
        )
        assert await content(lake, left) == model
        assert (left == head) == (model == before)


@given(
    RULES,
    listings(),
    st.one_of(st.none(), change_sets()),
    change_sets(),
    st.lists(st.sampled_from(["", "a", "k", "k0", "k00005", "k00011", "z"]), unique=True),
)
async def test_the_parts_of_a_compaction_are_joined_to_the_listing_of_one_build(
    rule: BreakRule,
    before: Listing,
    earlier: Listing | None,
    changes: Listing,
    cuts: list[str],
) -> None:
    with opened(rule, finer=0) as lake:
        head = (await lake.build(SPACE, None, [staged(before)])).metarange_id
        base, model = head, before
        if earlier is not None:
            base = (await compact(lake, head, head, earlier)).metarange_id
            model = applied(before, earlier)
        edges: list[str | None] = ["", *sorted({*cuts} - {""}), None]
        parts = []
        for start, end in pairwise(edges):
            assert start is not None
            own = {p: e for p, e in changes.items() if p >= start and (end is None or p < end)}
            span = PathSpan(start, end)
            part = await lake.build_part(SPACE, base, [staged(own)], span, head=head)
            parts.append(part.metarange_id)
        joined = await lake.joined(SPACE, parts, head=head)
        model = applied(model, changes)
        assert await content(lake, joined) == model
        assert (joined == head) == (model == before)
        if len(parts) == 1:
            assert joined == (await compact(lake, head, base, changes)).metarange_id


async def test_parts_that_end_where_the_rule_cuts_have_the_ranges_of_one_build() -> None:
    rule = BreakRule(rows_mean=8)
    with opened(rule, finer=0) as lake:
        rows = numbered(400)
        paths = sorted(rows)
        ends = [path for path in paths if rule.ends_after(pa.array([path]))[0]][5::9]
        assert len(ends) > 2
        head = (await lake.build(SPACE, None, [])).metarange_id
        edges = ["", *(path + "\0" for path in ends), None]
        parts = []
        for start, end in pairwise(edges):
            assert start is not None
            own = {p: e for p, e in rows.items() if p >= start and (end is None or p < end)}
            part = await lake.build_part(
                SPACE, head, [staged(own)], PathSpan(start, end), head=head
            )
            parts.append(part.metarange_id)
        joined = await lake.joined(SPACE, parts, head=head)
        assert joined == (await compact(lake, head, head, rows)).metarange_id


async def test_objects_that_keep_their_sizes_are_changes() -> None:
    def entry(digest: int, size: int = 5) -> bytes:
        return pack(Entry(size, 0, bytes(16), bytes([digest]) * 16))

    with opened(BreakRule(rows_mean=8)) as lake:
        before = {f"k{number:03}": entry(1) for number in range(100)}
        head = (await lake.build(SPACE, None, [staged(before)])).metarange_id
        made = await compact(lake, head, head, {"k099": entry(2)})
        assert await content(lake, made.metarange_id) == before | {"k099": entry(2)}
        undone = await compact(lake, head, made.metarange_id, {"k099": entry(1)})
        assert (undone.metarange_id, undone.changed) == (head, True)


async def test_a_second_compaction_rewrites_less_beside_its_change() -> None:
    with opened(BreakRule(rows_mean=800)) as lake:
        head = (await lake.build(SPACE, None, [staged(numbered(4000))])).metarange_id
        first = await compact(lake, head, head, {"k02000": sample_entry(9)})
        second = await compact(lake, head, first.metarange_id, {"k02001": sample_entry(9)})
        ranges = (await lake.metarange(SPACE, first.metarange_id)).ranges
        (touched,) = (each for each in ranges if each.min_path <= "k02001" <= each.max_path)
        assert second.rows_written == touched.count < first.rows_written / 2


async def test_a_large_compaction_cuts_its_first_ranges_finer_and_the_others_as_a_commit() -> None:
    with opened(BreakRule(rows_mean=8), finer=16) as lake:
        head = (await lake.build(SPACE, None, [])).metarange_id
        made = await compact(lake, head, head, numbered(1000))
        ranges = (await lake.metarange(SPACE, made.metarange_id)).ranges
        assert [each.count for each in ranges[:16]] == [1] * 16
        assert 984 / 8 / 2 < len(ranges) - 16 < 984 / 8 * 2


async def test_a_commit_takes_ranges_over_that_no_compaction_has_cut() -> None:
    with opened(BreakRule(rows_mean=80)) as lake:
        head = (await lake.build(SPACE, None, [staged(numbered(4000))])).metarange_id
        base = (await compact(lake, head, head, {"k02000": TOMBSTONE})).metarange_id
        made = await lake.build(SPACE, base, [], head=head)
        assert made.ranges_written <= 2
        assert made.ranges_reused > 30
