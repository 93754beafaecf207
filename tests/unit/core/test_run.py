"""Runs: slices, searches and the check of batches from outside."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import Listing, change_sets, listings, paths, run_of, sample_entry

from tarn.core.entry import HEAD_BYTES, TOMBSTONE, is_tombstone
from tarn.core.errors import Kind, TarnError
from tarn.core.listing.run import (
    EMPTY_RUN,
    concat_runs,
    data_of,
    heads_of,
    identities_of,
    offsets_of,
    run_of_batch,
    tombstones_of,
)


def batch(names: list[object], values: list[object]) -> pa.RecordBatch:
    columns = [pa.array(names, pa.binary()), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["path", "value"])


@given(listings(), st.integers(0, 50), st.integers(0, 50))
def test_a_slice_has_only_its_own_bytes(listing: Listing, start: int, count: int) -> None:
    rows = sorted(listing.items())[start : start + count]
    run = run_of(listing).slice(min(start, len(listing)), min(start + count, len(listing)))
    assert run.size_bytes == sum(len(path.encode()) + len(value) for path, value in rows)
    ends, data = offsets_of(run.paths), data_of(run.paths)
    assert data[ends[0] : ends[-1]].tobytes() == "".join(path for path, _ in rows).encode()
    assert tombstones_of(run.values).tolist() == [is_tombstone(value) for _, value in rows]
    assert identities_of(run.values).to_pylist() == [value[50:66] for _, value in rows]


@given(listings(), paths())
def test_find_agrees_with_the_order_of_str(listing: Listing, path: str) -> None:
    run = run_of(listing)
    assert run.find(path) == sum(other < path for other in listing)
    assert run.find(path, after=True) == sum(other <= path for other in listing)


def test_heads_are_the_fields_of_the_entry() -> None:
    (head,) = heads_of(run_of({"a": sample_entry(7)}).values)
    assert (head["version"], head["flags"], head["size"], head["mtime"]) == (1, 0, 7, 1_000_007)
    assert bytes(head["address"]) == (7).to_bytes(16, "big")
    assert bytes(head["md5"]) == (7).to_bytes(16, "little")


@given(change_sets(), st.integers(0, 40))
def test_pieces_make_the_whole_again(listing: Listing, at: int) -> None:
    run = run_of(listing)
    at = min(at, len(run))
    whole = concat_runs([run.slice(0, at), run.slice(at)])
    assert whole.batch().equals(run.batch())


def test_a_run_of_no_rows_is_valid() -> None:
    assert len(concat_runs([])) == 0
    assert EMPTY_RUN.size_bytes == 0
    assert tombstones_of(EMPTY_RUN.values).tolist() == []


@given(change_sets())
def test_a_sorted_batch_of_binary_paths_is_taken(listing: Listing) -> None:
    rows = sorted(listing.items())
    run = run_of_batch(batch([path.encode() for path, _ in rows], [value for _, value in rows]))
    assert run.paths.to_pylist() == [path for path, _ in rows]
    assert run.values.to_pylist() == [value for _, value in rows]


@pytest.mark.parametrize(
    ("names", "values", "match"),
    [
        ([b"b", b"a"], [TOMBSTONE, TOMBSTONE], "not sorted"),
        ([b"a", b"a"], [TOMBSTONE, TOMBSTONE], "not sorted"),
        ([b"a\xff"], [TOMBSTONE], "not paths"),
        ([None], [TOMBSTONE], "nulls"),
        ([b"a"], [None], "nulls"),
        ([b"a"], [TOMBSTONE[:-1]], "not all packed entries"),
        ([b"a"], [b"\2" + bytes(HEAD_BYTES)], "not all packed entries"),
    ],
)
def test_a_batch_that_is_no_run_is_refused(
    names: list[object], values: list[object], match: str
) -> None:
    with pytest.raises(TarnError, match=match) as caught:
        run_of_batch(batch(names, values))
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize("after", ["a", "b"])
def test_a_batch_must_come_after_the_one_before(after: str) -> None:
    with pytest.raises(TarnError, match="not sorted"):
        run_of_batch(batch([b"a"], [TOMBSTONE]), after)


def test_an_empty_batch_is_an_empty_run() -> None:
    assert len(run_of_batch(batch([], []), "z")) == 0
