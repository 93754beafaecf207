"""Small Parquet files that become gigabytes: each deceives another kind of guard."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tarn.core.listing.rangecolumns import RANGE_SCHEMA

__all__ = ["BOMBS", "one_value", "range_file"]

LONG = 600_000
FIRST = 4096
ROWS = 8000


def one_value(field: pa.Field) -> pa.Scalar:
    """A short value of a column."""
    kind = field.type
    if pa.types.is_fixed_size_binary(kind):
        return pa.scalar(bytes(kind.byte_width), kind)
    if pa.types.is_map(kind):
        return pa.scalar([], kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.scalar("" if pa.types.is_string(kind) else b"", kind)
    return pa.scalar(0, pa.int64()).cast(kind)


def range_file(columns: Mapping[str, pa.Array], **options: Any) -> bytes:
    """A file with the columns of a range; those that are not given have short values."""
    rows = len(next(iter(columns.values())))
    arrays = []
    for field in RANGE_SCHEMA:
        if field.name in columns:
            arrays.append(columns[field.name])
        elif field.name == "content_type":
            indices = pa.array([0] * rows, pa.int32())
            arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array(["t"])))
        else:
            arrays.append(pa.repeat(one_value(field), rows))
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(arrays, schema=RANGE_SCHEMA)
    large = {"dictionary_pagesize_limit": 1 << 30, "data_page_size": 1 << 30}
    pq.write_table(
        table, sink, **{"compression": "zstd", "write_statistics": False, **large, **options}
    )
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _short_rows_then_long_ones() -> bytes:
    """The first rows are short: a probe of them says nothing about the others."""
    return _as_strings(
        pa.DictionaryArray.from_arrays(
            pa.array([0] * FIRST + [1] * FIRST, pa.int32()), pa.array(["s", "b" * LONG])
        )
    )


def _texts_that_repeat_a_long_one() -> bytes:
    """Each text repeats all bytes of the one before."""
    return range_file(
        {"path": pa.array(["b" * LONG] * 400)},
        use_dictionary=False,
        column_encoding={"path": "DELTA_BYTE_ARRAY"},
    )


def _one_row_of_many_pairs() -> bytes:
    """One row holds all pairs, so no number of rows bounds them."""
    pairs = pa.MapArray.from_arrays(
        pa.array([0, 200_000], pa.int32()),
        pa.repeat(pa.scalar("k"), 200_000),
        pa.repeat(pa.scalar("v" * 2000), 200_000),
    )
    return range_file({"metadata": pairs, "path": pa.array(["a"])})


def _content_type_of_60_kb_in_every_row() -> bytes:
    """The file has the text once; the packed rows would have it in each row."""
    types = pa.DictionaryArray.from_arrays(
        pa.array([0] * ROWS, pa.int32()), pa.array(["t" * 60_000])
    )
    paths = pa.array([f"{row:06d}" for row in range(ROWS)])
    return range_file({"path": paths, "content_type": types})


BOMBS: Mapping[str, Callable[[], bytes]] = {
    "short-rows-then-long-ones": _short_rows_then_long_ones,
    "texts-that-repeat-a-long-one": _texts_that_repeat_a_long_one,
    "one-row-of-many-pairs": _one_row_of_many_pairs,
    "content-type-of-60-kb-in-every-row": _content_type_of_60_kb_in_every_row,
}
"""Makers of files of ranges, by what is wrong. Making one takes a second."""


def _as_strings(paths: pa.DictionaryArray) -> bytes:
    """Writes paths as indices; Arrow never holds the texts themselves."""
    schema = RANGE_SCHEMA.set(0, pa.field("path", paths.type, nullable=False))
    rows = len(paths)
    arrays = [
        paths
        if field.name == "path"
        else pa.repeat(one_value(field), rows)
        if field.name != "content_type"
        else pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["t"]))
        for field in RANGE_SCHEMA
    ]
    sink = pa.BufferOutputStream()
    # The footer describes the schema of Arrow, too; that of a range names plain texts.
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
        write_statistics=False,
    ) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        writer.add_key_value_metadata({"ARROW:schema": _encoded_schema()})
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _encoded_schema() -> bytes:
    return base64.b64encode(RANGE_SCHEMA.serialize().to_pybytes())
