"""Counting changes, against plain sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import Change, Listing, changes_between, run_of, sample_entry

from tarn.block.rangefile import describe_range
from tarn.core.entry import pack, unpack
from tarn.core.listing.diff import DIFF_SCHEMA, diff_runs
from tarn.core.listing.run import heads_of
from tarn.core.listing.sizes import bounded, sum_of, sums_of_groups
from tarn.core.listing.tally import ChangeStats, ChangeTally

PATHS = st.text("ab/é", min_size=1, max_size=4)
LISTINGS = st.dictionaries(PATHS, st.integers(0, 5).map(sample_entry), max_size=30)


def stats_of(changes: list[Change]) -> ChangeStats:
    return ChangeStats(
        added=sum(not left for _, left, _ in changes),
        updated=sum(bool(left and right) for _, left, right in changes),
        removed=sum(not right for _, _, right in changes),
        bytes_added=sum(unpack(right).size for _, _, right in changes if right),
        bytes_removed=sum(unpack(left).size for _, left, _ in changes if left),
    )


def top_level(path: str) -> str:
    first, slash, _ = path.partition("/")
    return first + slash if slash else ""


@given(LISTINGS, LISTINGS, st.integers(1, 20))
def test_a_tally_is_a_sum_by_prefix(left: Listing, right: Listing, step: int) -> None:
    tally = ChangeTally()
    batch = diff_runs(run_of(left), run_of(right))
    for at in range(0, batch.num_rows, step):
        tally.add(batch.slice(at, step))
    changes = changes_between(left, right)
    assert tally.total == stats_of(changes)
    assert tally.prefixes == {
        name: stats_of([change for change in changes if top_level(change[0]) == name])
        for name in {top_level(path) for path, _, _ in changes}
    }
    assert tally.others == ChangeStats()


def test_further_prefixes_are_counted_together() -> None:
    right = {f"{name}/{number}": sample_entry(3) for name in "abc" for number in range(2)}
    tally = ChangeTally(prefixes_max=2)
    tally.add(diff_runs(run_of({}), run_of(right)))
    one = ChangeStats(added=2, bytes_added=6)
    assert tally.prefixes == {"a/": one, "b/": one}
    assert tally.others == one
    assert tally.total == ChangeStats(added=6, bytes_added=18)


def test_no_changes_count_nothing() -> None:
    tally = ChangeTally()
    tally.add(pa.RecordBatch.from_pylist([], schema=DIFF_SCHEMA))
    assert tally == ChangeTally()


def test_sums_of_sizes_that_older_releases_let_in_do_not_wrap() -> None:
    large = [pack(replace(unpack(sample_entry(3)), size=2**63 - 1 - at)) for at in range(3)]
    right = {f"a/{number}": value for number, value in enumerate(large)}
    tally = ChangeTally()
    tally.add(diff_runs(run_of({}), run_of(right)))
    tally.add(diff_runs(run_of(right), run_of({})))
    total = 3 * (2**63 - 1) - 3
    assert (tally.total.bytes_added, tally.total.bytes_removed) == (total, total)
    assert sum_of(heads_of(run_of(right).values)["size"]) == total
    assert bounded(total) == bounded(2**63 - 1) == 2**63 - 1
    assert bounded(7) == 7
    assert describe_range(run_of(right)).object_bytes == 2**63 - 1
    assert describe_range(run_of({"a": large[0]})).object_bytes == 2**63 - 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**63 - 1)), max_size=8))
def test_sums_of_groups_are_exact(pairs: list[tuple[int, int]]) -> None:
    rows = np.array([group for group, _ in pairs], np.int64)
    sizes = np.array([size for _, size in pairs], np.int64)
    expected = [sum(size for group, size in pairs if group == each) for each in range(4)]
    assert sums_of_groups(rows, sizes, 4) == expected
    assert sum_of(sizes) == sum(expected)
