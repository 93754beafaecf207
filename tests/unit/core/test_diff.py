"""Differences of runs, against plain dicts."""

from __future__ import annotations

from hypothesis import given

from tarn.core.diff import (
    DIFF_SCHEMA,
    DiffEntry,
    DiffKind,
    count_diff,
    diff_changes,
    diff_entries,
    diff_runs,
)
from tarn.core.entry import MARKER
from tarn.core.merge import Counts
from tarn.testing.listings import Listing, applied, change_sets, listings, run_of, sample_entry


def model(left: Listing, right: Listing) -> list[DiffEntry]:
    entries = []
    for path in sorted(left.keys() | right.keys()):
        one, other = left.get(path), right.get(path)
        if one is None:
            entries.append(DiffEntry(path, DiffKind.ADDED, one, other))
        elif other is None:
            entries.append(DiffEntry(path, DiffKind.REMOVED, one, other))
        elif one[50:66] != other[50:66]:
            entries.append(DiffEntry(path, DiffKind.CHANGED, one, other))
    return entries


@given(listings(), listings())
def test_a_diff_of_runs_is_a_diff_of_dicts(left: Listing, right: Listing) -> None:
    batch = diff_runs(run_of(left), run_of(right))
    assert batch.schema.equals(DIFF_SCHEMA)
    assert diff_entries(batch) == model(left, right)


@given(listings(), change_sets(3))
def test_a_few_changes_are_found_between_equal_rows(left: Listing, changes: Listing) -> None:
    right = applied(left, changes)
    assert diff_entries(diff_runs(run_of(left), run_of(right))) == model(left, right)


@given(listings(), change_sets())
def test_staged_rows_differ_as_their_result_does(base: Listing, changes: Listing) -> None:
    found = diff_entries(diff_changes(run_of(base), run_of(changes)))
    assert found == model(base, applied(base, changes))


@given(listings(), listings())
def test_counts_are_those_of_the_entries(left: Listing, right: Listing) -> None:
    kinds = [entry.kind for entry in model(left, right)]
    assert count_diff(diff_runs(run_of(left), run_of(right))) == Counts(
        added=kinds.count(DiffKind.ADDED),
        updated=kinds.count(DiffKind.CHANGED),
        removed=kinds.count(DiffKind.REMOVED),
    )


def test_a_removal_stands_before_the_next_addition() -> None:
    left = {"a": sample_entry(1), "c": sample_entry(1)}
    right = {"b": sample_entry(1), "c": sample_entry(2)}
    kinds = [(entry.path, entry.kind.name) for entry in model(left, right)]
    assert kinds == [("a", "REMOVED"), ("b", "ADDED"), ("c", "CHANGED")]
    assert diff_entries(diff_runs(run_of(left), run_of(right))) == model(left, right)


def test_a_marker_that_hides_nothing_is_no_difference() -> None:
    assert diff_entries(diff_changes(run_of({}), run_of({"a": MARKER}))) == []
