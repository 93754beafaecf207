"""Differences of runs, compared with dicts, and their pages."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import (
    Change,
    Listing,
    applied,
    change_sets,
    changes_between,
    listings,
    run_of,
    sample_entry,
)

from tarn.core.entry import TOMBSTONE
from tarn.core.listing.diff import DIFF_SCHEMA, DiffRows, diff_changes, diff_runs

ENTRY_BYTES = len(sample_entry(1))


def taken(rows: DiffRows) -> list[Change]:
    return list(zip(rows.paths, rows.lefts, rows.rights, strict=True))


def changes_of(batch: pa.RecordBatch) -> list[Change]:
    rows = DiffRows(10_000, 1 << 30)
    assert not rows.add(batch)
    return taken(rows)


@given(listings(), listings())
def test_a_diff_of_runs_is_a_diff_of_dicts(left: Listing, right: Listing) -> None:
    batch = diff_runs(run_of(left), run_of(right))
    assert batch.schema.equals(DIFF_SCHEMA)
    assert changes_of(batch) == changes_between(left, right)


@given(listings(), change_sets(3))
def test_a_few_changes_are_found_between_equal_rows(left: Listing, changes: Listing) -> None:
    right = applied(left, changes)
    assert changes_of(diff_runs(run_of(left), run_of(right))) == changes_between(left, right)


@given(listings(), st.lists(st.integers(0, 5), min_size=1))
def test_updates_of_the_same_paths_are_found(left: Listing, numbers: list[int]) -> None:
    values = (sample_entry(numbers[at % len(numbers)]) for at in range(len(left)))
    right = dict(zip(left, values, strict=True))
    assert changes_of(diff_runs(run_of(left), run_of(right))) == changes_between(left, right)


@given(listings(), change_sets())
def test_staged_rows_differ_as_their_result_does(base: Listing, changes: Listing) -> None:
    found = changes_of(diff_changes(run_of(base), run_of(changes)))
    assert found == changes_between(base, applied(base, changes))


def test_a_removal_stands_before_the_next_addition() -> None:
    left = {"a": sample_entry(1), "c": sample_entry(1)}
    right = {"b": sample_entry(1), "c": sample_entry(2)}
    assert changes_of(diff_runs(run_of(left), run_of(right))) == [
        ("a", sample_entry(1), b""),
        ("b", b"", sample_entry(1)),
        ("c", sample_entry(1), sample_entry(2)),
    ]


def test_a_tombstone_that_hides_nothing_is_not_a_difference() -> None:
    assert changes_of(diff_changes(run_of({}), run_of({"a": TOMBSTONE}))) == []


@pytest.mark.parametrize(
    ("limit", "bytes_max", "count"),
    [
        (9, 1 << 30, 9),
        (4, 1 << 30, 4),
        (9, 3 * (1 + ENTRY_BYTES), 3),
        (9, 3 * (1 + ENTRY_BYTES) + 1, 4),
        (9, 1, 1),
        (2, 3 * (1 + ENTRY_BYTES), 2),
    ],
)
def test_a_page_takes_what_fits(limit: int, bytes_max: int, count: int) -> None:
    added = {str(number): sample_entry(number) for number in range(9)}
    rows = DiffRows(limit, bytes_max)
    assert rows.add(diff_runs(run_of({}), run_of(added))) is (count < 9)
    assert taken(rows) == changes_between({}, added)[:count]


@pytest.mark.parametrize("rows", [DiffRows(2, 1 << 30), DiffRows(3, 1)])
def test_a_full_page_takes_no_more_and_says_whether_there_was_more(rows: DiffRows) -> None:
    one, two, none = (
        diff_runs(run_of({}), run_of(dict.fromkeys(names, sample_entry(1))))
        for names in ("a", "bc", "")
    )
    assert not rows.add(one)
    assert rows.add(two)
    before = taken(rows)
    assert rows.add(two)
    assert not rows.add(none)
    assert taken(rows) == before
