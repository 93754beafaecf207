"""Applying staged changes and overlaying layers, compared with dicts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import (
    Listing,
    applied,
    change_sets,
    listings,
    paths,
    run_of,
    sample_entry,
)

from tarn.core.entry import TOMBSTONE, pack, unpack
from tarn.core.listing.changes import Counts, apply_changes, overlay, upto
from tarn.core.listing.run import EMPTY_RUN, Run, concat_runs


def rows(run: Run) -> list[tuple[str, bytes]]:
    return list(zip(run.paths.to_pylist(), run.values.to_pylist(), strict=True))


@given(listings(), change_sets())
def test_applying_changes_is_updating_a_dict(base: Listing, changes: Listing) -> None:
    merged = apply_changes(run_of(base), run_of(changes))
    after = applied(base, changes)
    assert rows(concat_runs(merged.runs)) == sorted(after.items())
    assert merged.counts == Counts(
        added=len(after.keys() - base.keys()),
        updated=sum(base[path] != after[path] for path in base.keys() & after.keys()),
        removed=len(base.keys() - after.keys()),
    )


@given(listings(), change_sets())
def test_without_effective_changes_the_base_comes_back_untouched(
    base: Listing, changes: Listing
) -> None:
    run = run_of(base)
    merged = apply_changes(run, run_of(changes))
    assert (merged.runs == (run,)) == (merged.counts.total == 0)


def test_writing_the_same_object_again_keeps_the_committed_entry() -> None:
    old = sample_entry(1)
    again = pack(replace(unpack(old), mtime_us=5, address=bytes(16)))
    merged = apply_changes(run_of({"a": old}), run_of({"a": again}))
    assert rows(concat_runs(merged.runs)) == [("a", old)]


def test_deleting_everything_leaves_nothing() -> None:
    base = {f"k{number}": sample_entry(number) for number in range(9)}
    merged = apply_changes(run_of(base), run_of(dict.fromkeys(base, TOMBSTONE)))
    assert len(concat_runs(merged.runs)) == 0
    assert merged.counts == Counts(removed=9)


def test_only_the_window_that_changes_is_copied() -> None:
    base = run_of({f"k{number:03}": sample_entry(number) for number in range(100)})
    merged = apply_changes(base, run_of({"k050": sample_entry(1), "k052a": sample_entry(2)}))
    assert [len(run) for run in merged.runs] == [50, 4, 47]
    assert merged.runs[0].values.buffers()[2].address == base.values.buffers()[2].address


@given(st.lists(change_sets(20), max_size=4))
def test_the_newest_row_of_a_path_wins_over_older_layers(layers: list[Listing]) -> None:
    model: Listing = {}
    for layer in reversed(layers):
        model.update(layer)
    assert rows(overlay([run_of(layer) for layer in layers])) == sorted(model.items())


@given(listings(), paths())
def test_upto_splits_a_run_after_a_path(listing: Listing, path: str) -> None:
    head, tail = upto(run_of(listing), path)
    assert head.paths.to_pylist() == sorted(name for name in listing if name <= path)
    assert tail.paths.to_pylist() == sorted(name for name in listing if name > path)


def test_merging_empty_runs_gives_an_empty_run() -> None:
    assert len(overlay([])) == 0
    assert len(concat_runs(apply_changes(EMPTY_RUN, EMPTY_RUN).runs)) == 0
