"""Counting changes by folder, against a naive count over dictionaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import Change, Listing, changes_between, run_of, sample_entry

from tarn.core.entry import unpack
from tarn.core.listing.diff import diff_runs
from tarn.core.listing.folders import Folder, FolderTally
from tarn.core.listing.tally import ChangeStats

# Rarely a delimiter, a prefix of one, or text that is longer in bytes than in characters.
PATHS = st.text("ab/é😀", min_size=1, max_size=6) | st.builds(
    "{}{}".format, st.sampled_from(["a/", "b/"]), st.text("ab/", min_size=1, max_size=2)
)
LISTINGS = st.dictionaries(PATHS, st.integers(0, 5).map(sample_entry), max_size=30)
PREFIXES = st.text("ab/é", max_size=2)
DELIMITERS = st.sampled_from(["/", "", "a", "aa", "é", "/a", "😀"])


def stats_of(changes: list[Change]) -> ChangeStats:
    return ChangeStats(
        added=sum(not left for _, left, _ in changes),
        updated=sum(bool(left and right) for _, left, right in changes),
        removed=sum(not right for _, _, right in changes),
        bytes_added=sum(unpack(right).size for _, _, right in changes if right),
        bytes_removed=sum(unpack(left).size for _, left, _ in changes if left),
    )


def naive(
    left: Listing, right: Listing, prefix: str, delimiter: str
) -> tuple[ChangeStats, list[Folder]]:
    """Total and lines, by definition."""
    changes = [each for each in changes_between(left, right) if each[0].startswith(prefix)]
    lines: dict[tuple[str, bool], list[Change]] = {}
    for change in changes if delimiter else ():
        path, rest = change[0], change[0][len(prefix) :]
        first, found, _ = rest.partition(delimiter)
        line = (prefix + first + found, True) if found else (path, False)
        lines.setdefault(line, []).append(change)
    return stats_of(changes), [Folder(*line, stats_of(rows)) for line, rows in lines.items()]


@given(LISTINGS, LISTINGS, PREFIXES, DELIMITERS, st.integers(1, 20))
def test_folders_are_sums_by_common_prefix(
    left: Listing, right: Listing, prefix: str, delimiter: str, step: int
) -> None:
    batch = diff_runs(
        run_of({path: value for path, value in left.items() if path.startswith(prefix)}),
        run_of({path: value for path, value in right.items() if path.startswith(prefix)}),
    )
    tally = FolderTally(prefix, delimiter, 1000)
    for at in range(0, batch.num_rows, step):
        assert not tally.add(batch.slice(at, step))
    page = tally.page(None)
    assert (page.total, page.folders) == naive(left, right, prefix, delimiter)


@given(LISTINGS, LISTINGS, st.integers(1, 3), st.integers(1, 20))
def test_pages_that_are_cut_at_their_last_path_miss_and_repeat_nothing(
    left: Listing, right: Listing, limit: int, step: int
) -> None:
    batch = diff_runs(run_of(left), run_of(right))
    folders: list[Folder] = []
    at = 0
    while at < batch.num_rows:
        tally = FolderTally("", "/", limit)
        while at < batch.num_rows and not tally.add(batch.slice(at, step)):
            at += step
        if at < batch.num_rows:
            at = batch.column("path").index(tally.last).as_py() + 1
        page = tally.page(None)
        assert 0 < len(page.folders) <= limit
        folders += page.folders
    assert folders == naive(left, right, "", "/")[1]


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_no_changes_are_no_lines(delimiter: str) -> None:
    tally = FolderTally("", delimiter, 1)
    assert not tally.add(diff_runs(run_of({}), run_of({})))
    assert tally.page(None).folders == []
    assert tally.page(None).total == ChangeStats()
