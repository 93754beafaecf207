"""Packed entries survive the conversion to columns, and readers see the expected fields."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import Listing, entries, listings, run_of, sample_entry

from tarn.core.entry import HEAD_BYTES, Checksum, Entry, pack
from tarn.core.errors import Kind, TarnError
from tarn.core.listing.rangecolumns import RANGE_SCHEMA, columns_of, range_id_of, run_of_columns
from tarn.core.listing.run import Run, concat_runs

GOLDEN = {
    "a/plain": pack(Entry(5, 7, bytes(range(16)), bytes(range(16, 32)))),
    "b/typed": pack(
        Entry(
            6,
            8,
            bytes(range(16)),
            bytes(range(16, 32)),
            etag_parts=2,
            content_type="text/csv",
            metadata=(("k", "v"), ("ü", "")),
            checksums=(Checksum("SHA1", "AA=="),),
        )
    ),
}


def strings(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<H", len(text)) + text for text in texts)


def field(tag: int, value: bytes) -> bytes:
    return struct.pack("<BH", tag, len(value)) + value


def tails() -> st.SearchStrategy[bytes]:
    """Valid tails, invalid tails, and tails that are cut off."""
    text = st.one_of(
        st.binary(max_size=4), st.text(max_size=4).map(lambda t: t.encode("utf-8", "replace"))
    )
    lists = st.lists(text, max_size=4).map(lambda texts: strings(*texts))
    fields = st.one_of(
        st.builds(field, st.just(1), text),
        st.builds(field, st.just(2), st.one_of(lists, text)),
        st.builds(field, st.integers(0, 255), text),
    )
    whole = st.lists(fields, max_size=3).map(b"".join)
    return st.one_of(whole, st.builds(lambda tail, end: tail[:end], whole, st.integers(0, 12)))


@given(st.lists(st.tuples(st.binary(min_size=65, max_size=65), tails()), max_size=8))
def test_any_packed_bytes_survive_the_columns(rows: list[tuple[bytes, bytes]]) -> None:
    run = run_of({f"k{number}": b"\1" + head + tail for number, (head, tail) in enumerate(rows)})
    back = run_of_columns(columns_of(run))
    assert back.values.to_pylist() == run.values.to_pylist()
    assert back.paths.equals(run.paths)
    assert range_id_of(back) == range_id_of(run)


@pytest.mark.parametrize("rest", [b"", field(8, b"x"), field(2, strings(b"k", b"v")), b"\1"])
@given(st.lists(st.sampled_from(["a", "b", "ab", "\xe9"]), min_size=1, max_size=4), st.booleans())
def test_content_types_are_told_whether_they_are_alike_or_not(
    rest: bytes, types: list[str], beside: bool
) -> None:
    head = b"\1" + bytes(HEAD_BYTES - 1)
    rows = {
        f"k{number}": head + field(1, text.encode()) + (rest if number % 2 else b"")
        for number, text in enumerate(types)
    }
    run = run_of(rows | ({"l": head} if beside else {}))
    table = columns_of(run)
    assert table.column("content_type").to_pylist() == types + [None] * beside
    assert run_of_columns(table).values.to_pylist() == run.values.to_pylist()


@given(st.lists(entries(), min_size=1, max_size=6), st.integers(0, 5))
def test_readers_see_the_fields(made: list[Entry], start: int) -> None:
    rows = {f"k{number}": pack(entry) for number, entry in enumerate(made)}
    start = min(start, len(made) - 1)
    table = columns_of(run_of(rows).slice(start))
    for row, entry in zip(table.drop_columns(["mtime"]).to_pylist(), made[start:], strict=True):
        assert row["size"] == entry.size
        assert row["address"] == entry.address
        assert row["etag"] == entry.md5
        assert row["flags"] == (2 if entry.external_address else 0)
        assert row["content_type"] == (entry.content_type or None)
        assert tuple(row["metadata"] or ()) == entry.metadata
    times = table.column("mtime").cast(pa.int64()).to_pylist()
    assert times == [entry.mtime_us for entry in made[start:]]


def test_the_columns_are_golden() -> None:
    rows = columns_of(run_of(GOLDEN)).drop_columns(["identity", "mtime"]).to_pylist()
    shared = {"address": bytes(range(16)), "etag": bytes(range(16, 32)), "flags": 0}
    assert rows == [
        {
            "path": "a/plain",
            "size": 5,
            **shared,
            "content_type": None,
            "metadata": None,
            "tail": b"",
        },
        {
            "path": "b/typed",
            "size": 6,
            **shared,
            "content_type": "text/csv",
            "metadata": [("k", "v"), ("ü", "")],
            "tail": field(8, b"\2\0\0\0") + field(9, strings(b"SHA1", b"AA==", b"F")),
        },
    ]


def test_the_range_id_is_golden() -> None:
    assert (
        range_id_of(run_of(GOLDEN))
        == "f60ab5837ee45620cd72d3d642158836073ebf04f218d57c06ab443698722a9b"
    )


@given(listings(), st.integers(0, 40))
def test_the_id_does_not_depend_on_chunks_and_slices(listing: Listing, at: int) -> None:
    run = run_of(listing)
    at = min(at, len(run))
    around = run_of({"": sample_entry(9), **listing, "\U0010ffff" * 9: sample_entry(9)})
    expected = range_id_of(run)
    assert range_id_of(concat_runs([run.slice(0, at), run.slice(at)])) == expected
    assert range_id_of(around.slice(1, 1 + len(run))) == expected


@given(listings(), listings())
def test_other_rows_have_another_id(one: Listing, other: Listing) -> None:
    assert (range_id_of(run_of(one)) == range_id_of(run_of(other))) == (one == other)


def test_bytes_that_move_from_path_to_entry_change_the_id() -> None:
    def run(paths: list[str], tail: bytes) -> Run:
        values = [b"\1" + bytes(HEAD_BYTES - 1), b"\1" + bytes(HEAD_BYTES - 1) + tail]
        return Run(pa.array(paths), pa.array(values))

    ids = {
        range_id_of(run(["a", "bc"], b"")),
        range_id_of(run(["ab", "c"], b"")),
        range_id_of(run(["a", "b"], b"c")),
    }
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("table", "match"),
    [
        (columns_of(run_of(GOLDEN)).drop_columns(["tail"]), "columns of a range"),
        (
            pa.Table.from_arrays(
                [pa.nulls(1, field.type) for field in RANGE_SCHEMA], schema=RANGE_SCHEMA
            ),
            "holds nulls",
        ),
        (
            columns_of(run_of(GOLDEN)).set_column(
                6, RANGE_SCHEMA.field("flags"), pa.array([0, 256], pa.int32())
            ),
            "one byte",
        ),
        (
            columns_of(run_of(GOLDEN)).set_column(
                7,
                RANGE_SCHEMA.field("content_type"),
                pa.array(["x" * 65_536, None]).dictionary_encode(),
            ),
            "longer than",
        ),
        (
            columns_of(run_of(GOLDEN)).set_column(
                8,
                RANGE_SCHEMA.field("metadata"),
                pa.array([[("k", "x" * 65_536)], None], RANGE_SCHEMA.field("metadata").type),
            ),
            "longer than",
        ),
        (
            columns_of(run_of(GOLDEN)).set_column(
                8,
                RANGE_SCHEMA.field("metadata"),
                pa.array([[("k", None)], None], RANGE_SCHEMA.field("metadata").type),
            ),
            "nulls",
        ),
    ],
)
def test_columns_that_are_no_entries_are_refused(table: pa.Table, match: str) -> None:
    with pytest.raises(TarnError, match=match) as caught:
        run_of_columns(table)
    assert caught.value.kind is Kind.CORRUPT
