"""Mutations of Parquet files: of varints in the footer, of pages, and files that other programs could write."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["file_of", "mutations_of"]

_MAGIC = b"PAR1"
_NUMBERS = (0, 1, 2, 63, 64, 127, 128, 1 << 14, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, 1 << 40)
_BOMBS = ((1000, 400_000), (20_000, 15_000), (150_000, 1500))
"""Rows and the length of one text: some 250 MB that compress to almost nothing."""

Mutation = Callable[[random.Random, bytes], bytes]


def file_of(table: pa.Table, rng: random.Random, compression: str | None = None) -> bytes:
    """Writes a table with random options of Parquet."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression=compression or rng.choice(("zstd", "snappy", "gzip", "none")),
        use_dictionary=rng.random() < 0.7,
        data_page_version=rng.choice(("1.0", "2.0")),
        row_group_size=rng.choice((1, 7, 1 << 20)) if len(table) < 200 else 1 << 20,
        write_page_index=rng.random() < 0.2,
    )
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _footer_at(data: bytes) -> tuple[int, int]:
    """Returns where the Thrift footer begins and ends; the whole file if it has none."""
    if len(data) < 12 or not data.endswith(_MAGIC):
        return 0, len(data)
    (size,) = struct.unpack("<I", data[-8:-4])
    return (len(data) - 8 - size, len(data) - 8) if size <= len(data) - 12 else (0, len(data))


def _closed(body: bytes, footer: bytes) -> bytes:
    return body + footer + struct.pack("<I", len(footer)) + _MAGIC


def _number_in(rng: random.Random, piece: bytes) -> bytes:
    """Replaces a possible varint: Thrift's integers (zigzag) and lengths."""
    if not piece:
        return piece
    at = rng.randrange(len(piece))
    end = at
    while end < len(piece) - 1 and piece[end] & 0x80:
        end += 1
    return piece[:at] + _varint(rng.choice(_NUMBERS)) + piece[end + 1 :]


def _footer_number(rng: random.Random, data: bytes) -> bytes:
    start, end = _footer_at(data)
    return _closed(data[:start], _number_in(rng, data[start:end]))


def _footer_bytes(rng: random.Random, data: bytes) -> bytes:
    start, end = _footer_at(data)
    footer = bytearray(data[start:end] or b"\0")
    for _ in range(rng.randint(1, 3)):
        footer[rng.randrange(len(footer))] = rng.randrange(256)
    return _closed(data[:start], bytes(footer))


def _footer_size(rng: random.Random, data: bytes) -> bytes:
    size = rng.choice((*_NUMBERS[:-1], len(data), len(data) - 8, len(data) - 12)) & 0xFFFFFFFF
    return data[:-8] + struct.pack("<I", size) + _MAGIC


def _page_number(rng: random.Random, data: bytes) -> bytes:
    """Changes bytes of the pages; the lengths of a page are in its first bytes."""
    start, _ = _footer_at(data)
    piece = data[:start]
    changed = _number_in(rng, piece)
    # The footer has offsets, so later bytes must not move.
    changed = changed[: len(piece)].ljust(len(piece), b"\0")
    return changed + data[start:]


def mutations_of(
    schema: pa.Schema, value: Callable[[random.Random, pa.Field], object]
) -> tuple[Mutation, ...]:
    """Returns the mutations of files of a schema.

    Args:
        schema: schema of Tarn's files.
        value: makes a valid or invalid value of a field.
    """

    def another(rng: random.Random, data: bytes) -> bytes:
        """Returns a valid file of the schema with random rows."""
        count = rng.randint(0, 5)
        columns = [
            pa.array([value(rng, field) for _ in range(count)], field.type) for field in schema
        ]
        table = pa.Table.from_arrays(columns, schema=schema)
        # Sort the rows in most cases: unsorted files are refused for their order alone.
        if "path" in schema.names and rng.random() < 0.8:
            table = table.take(pa.array(_ascending(table.column("path").to_pylist()), pa.int64()))
        return file_of(table, rng)

    def of_another_schema(rng: random.Random, data: bytes) -> bytes:
        fields = list(schema)
        at = rng.randrange(len(fields))
        kind = rng.choice((pa.int64(), pa.string(), pa.binary(), pa.list_(pa.int32()), pa.null()))
        fields[at] = pa.field(rng.choice((fields[at].name, "other")), kind)
        if rng.random() < 0.3:
            fields.pop(rng.randrange(len(fields)))
        rows = rng.randint(0, 3)
        table = pa.Table.from_arrays(
            [pa.nulls(rows, field.type) for field in fields],
            schema=pa.schema([pa.field(field.name, field.type) for field in fields]),
        )
        return file_of(table, rng)

    def bomb(rng: random.Random, data: bytes) -> bytes:
        """Returns a small file whose rows need much memory."""
        if rng.random() < 0.97:
            return another(rng, data)  # each takes as much time as a hundred others
        count, size = rng.choice(_BOMBS)
        columns = []
        for field in schema:
            one = value(rng, field)
            if one is not None and pa.types.is_string(field.type):
                one, size = "x" * size, 1  # one long column: it must fit into this process, too
            try:
                column = pa.repeat(pa.scalar(one, _plain(field.type)), count)
            except (pa.ArrowInvalid, MemoryError):  # too large for a column, or for this process
                return another(rng, data)
            columns.append(column.cast(field.type))
        return file_of(pa.Table.from_arrays(columns, schema=schema), rng, "zstd")

    return (
        _footer_number,
        _footer_bytes,
        _footer_size,
        _page_number,
        _page_number,
        another,
        of_another_schema,
        bomb,
    )


def _ascending(paths: list[str]) -> list[int]:
    """Returns the rows in the order of their paths, each path once."""
    rows = {path: row for row, path in enumerate(paths)}
    return [rows[path] for path in sorted(rows)]


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
