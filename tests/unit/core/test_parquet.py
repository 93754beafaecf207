"""Reading Parquet files in bounded memory: bombs are refused, and every other file is read as Arrow reads it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_bombs import BOMBS, LONG, range_file

from tarn.core.listing.rangecolumns import RANGE_SCHEMA, run_of_columns
from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table
from tarn.core.parquet_lengths import delta_bytes, longest_text
from tarn.core.parquet_pages import DELTA_STRINGS, Chunk, chunks_of

LIMITS = ParquetLimits(rows=1 << 20, size_bytes=128 << 20)
TEXTS = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.string())])
_POOLS: list[pa.MemoryPool] = []
"""Pools must outlive the buffers that they made."""


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Counts what Arrow takes during a test."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    _POOLS.append(counting)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


@pytest.fixture(params=BOMBS)
def bomb(request: pytest.FixtureRequest) -> bytes:
    """Is asked for before `pool`, which would count what making it takes."""
    return BOMBS[request.param]()


def file_of(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def chunks_in(body: bytes) -> list[Chunk]:
    groups = chunks_of(memoryview(body), int.from_bytes(body[-8:-4], "little"))
    return [chunk for group in groups for chunk in group]


def test_a_bomb_is_refused_before_it_takes_memory(bomb: bytes, pool: pa.MemoryPool) -> None:
    assert len(bomb) < 64 << 10
    with pytest.raises(Exception, match=r"more than 134217728") as caught:
        run_of_columns(read_table(bomb, RANGE_SCHEMA, LIMITS))
    assert isinstance(caught.value, ValueError) or caught.value.__class__.__name__ == "TarnError"
    assert pool.max_memory() < 200 << 20


def test_bombs_in_a_column_that_is_read_in_batches_are_refused(pool: pa.MemoryPool) -> None:
    indices = pa.array([0] * 4096 + [1] * 4096, pa.int32())
    texts = pa.DictionaryArray.from_arrays(indices, pa.array([b"s", b"b" * LONG]))
    schema = pa.schema([pa.field("key", texts.type), pa.field("value", pa.string())])
    table = pa.Table.from_arrays([texts, pa.repeat(pa.scalar(""), 8192)], schema=schema)
    body = file_of(table, store_schema=False, dictionary_pagesize_limit=1 << 30, compression="zstd")
    assert pq.read_schema(pa.BufferReader(body)).field("key").type == pa.binary()
    with pytest.raises(ValueError, match="more than 134217728 bytes of rows"):
        read_table(body, TEXTS, LIMITS)
    assert pool.max_memory() < 200 << 20


def test_long_texts_within_the_limits_are_read(pool: pa.MemoryPool) -> None:
    """Of two kinds: read in batches, and measured by indices."""
    indices = pa.array([0] * 3000 + [1] * 100, pa.int32())
    texts = pa.DictionaryArray.from_arrays(indices, pa.array([b"s", b"b" * LONG]))
    schema = pa.schema([pa.field("key", texts.type), pa.field("value", pa.string())])
    table = pa.Table.from_arrays([texts, pa.repeat(pa.scalar("v"), 3100)], schema=schema)
    body = file_of(table, store_schema=False, dictionary_pagesize_limit=1 << 30)
    found = read_table(body, TEXTS, LIMITS)
    assert found.column("key").to_pylist() == texts.to_pylist()
    names = [f"{row:06d}" for row in range(50_000)]
    pairs = [[("k", "v" * (30_000 if row == 7 else 1))] for row in range(len(names))]
    kind = RANGE_SCHEMA.field("metadata").type
    body = range_file({"path": pa.array(names), "metadata": pa.array(pairs, kind)})
    assert read_table(body, RANGE_SCHEMA, LIMITS).column("metadata").to_pylist() == pairs


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd", "gzip", "snappy"])
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_files_of_every_kind_are_read_as_arrow_reads_them(
    version: str, compression: str, use_dictionary: bool, encoding: str
) -> None:
    rng = random.Random(f"{version} {compression} {use_dictionary} {encoding}")
    rows = 5000
    texts = sorted(
        f"{'long/' * 40}{rng.randrange(1 << 30):x}/{'x' * rng.randrange(300)}" for _ in range(rows)
    )
    arrays = [pa.array(text.encode() for text in texts), pa.array(texts)]
    table = pa.Table.from_arrays(
        arrays, schema=pa.schema([field.with_nullable(False) for field in TEXTS])
    )
    options: dict[str, Any] = {"use_dictionary": True}
    if not use_dictionary:
        options = {"use_dictionary": False, "column_encoding": dict.fromkeys(TEXTS.names, encoding)}
    body = file_of(
        table,
        compression=compression,
        data_page_version=version,
        row_group_size=1999,
        data_page_size=32 << 10,
        dictionary_pagesize_limit=256 << 10,
        **options,
    )
    for limits in (LIMITS, ParquetLimits(rows=5000, size_bytes=6 << 20)):
        assert read_table(body, table.schema, limits).equals(table)
    with pytest.raises(ValueError, match="more than 1048576"):
        read_table(body, table.schema, ParquetLimits(rows=5000, size_bytes=1 << 20))
    with pytest.raises(ValueError, match="5000 rows in 3 groups, more than 4999 rows"):
        read_table(body, table.schema, ParquetLimits(rows=4999, size_bytes=6 << 20))


def test_empty_files_and_row_groups_are_read() -> None:
    table = RANGE_SCHEMA.empty_table()
    body = file_of(table)
    assert read_table(body, RANGE_SCHEMA, LIMITS).equals(table)


@pytest.mark.parametrize("seed", range(8))
def test_lengths_of_delta_texts_bound_what_decoding_makes(seed: int) -> None:
    rng = random.Random(seed)
    stem = "".join(rng.choices("ab", k=rng.randrange(1, 3000)))
    texts = [
        stem[: rng.randrange(len(stem) + 1)] + "c" * rng.randrange(40)
        for _ in range(rng.randrange(1, 3000))
    ]
    schema = pa.schema([pa.field("key", pa.string(), nullable=False)])
    body = file_of(
        pa.Table.from_arrays([pa.array(texts)], schema=schema),
        use_dictionary=False,
        column_encoding={"key": "DELTA_BYTE_ARRAY"},
        data_page_size=4096,
    )
    pages = [page for chunk in chunks_in(body) for page in chunk.data]
    assert {page.encoding for page in pages} == {DELTA_STRINGS}
    bound = sum(delta_bytes(memoryview(body), page) for page in pages)
    real = sum(map(len, texts))
    assert real <= bound <= real + sum(page.size_bytes for page in pages)


def test_the_longest_text_of_a_dictionary() -> None:
    texts = pa.array(["", "abc", "x" * 777, "é" * 300] * 9)
    body = file_of(pa.table({"a": texts}))
    (chunk,) = chunks_in(body)
    assert chunk.dictionary is not None
    assert longest_text(memoryview(body), chunk.dictionary) == 777
    assert chunk.indices == chunk.values == 36


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def header(size: int, packed: int, values: int, encoding: int = 0) -> bytes:
    """The header of a data page of version 1, in Thrift's compact protocol."""
    number = [varint(2 * each) for each in (0, size, packed, values, encoding, 3, 3)]
    outer = b"".join(b"\x15" + each for each in number[:3])
    return outer + b"\x2c" + b"".join(b"\x15" + each for each in number[3:]) + b"\0\0"


def number(value: int) -> bytes:
    """A number without its sign, in zigzag."""
    return varint(2 * value)


def file_with(pages: bytes, values: int, *, column: bytes | None = None) -> tuple[memoryview, int]:
    """A file of one column, and the size of its footer."""
    if column is None:  # codec, number of values, place of the first page
        column = b"\x45" + number(6) + b"\x16" + number(values) + b"\x46" + number(0) + b"\0"
    footer = b"\x49\x1c\x19\x1c\x3c" + column + b"\0\0\0"
    return memoryview(pages + footer + bytes(8)), len(footer)


def test_a_page_counts_by_its_header_whatever_the_footer_says() -> None:
    pages = header(1 << 30, 5, 7) + b"12345"
    ((chunk,),) = chunks_of(*file_with(pages, 7))
    assert (chunk.size_bytes, chunk.values, chunk.plain_bytes) == (1 << 30, 7, 1 << 30)
    with pytest.raises(ValueError, match="2 values more than its footer says"):
        chunks_of(*file_with(pages, 5))
    with pytest.raises(ValueError, match="ends behind the file"):
        chunks_of(*file_with(header(9, 1000, 7), 7))


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        (b"\0", "None in field 1"),
        (b"\x15\x00\x15\x01\x15\x00\x00", "-1 in field 2"),
        (b"\x15\x00\x05\x02\x00", "out of order"),
        (b"\x1d\x00\x00", "a field of type 13"),
        (b"\x1c" * 30, "too deep"),
        (b"\x19\x19" * 30, "too deep"),
        (b"\x19\xf8\xff\xff\x7f", "a list of"),
        (b"\x15" + b"\xff" * 12, "too long"),
        (b"\x15" + b"\xff" * 5 + b"\x01", "more than 32 bits"),
        (b"\x16" + b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        (b"\x16\x00\x15\x00\x15\x00\x00", "0 in field 1"),
        (b"\x15\x02\x15\x00\x15\x00\x00", "of type 1"),
        (b"\x15\x00\x15\x00\x15\x00\x00", "no structure in field 5"),
        (b"\x18\xff\xff\xff\xff\x0f", "ends behind the file"),
    ],
)
def test_page_headers_that_no_writer_makes_are_refused(pages: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        chunks_of(*file_with(pages, 1))


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (b"\0", "None in field 4"),
        (b"\x45" + number(3) + b"\0", "codec 3"),
        (b"\x45" + number(99) + b"\0", "codec 99"),
        (b"\x45" + number(6) + b"\x16" + number(1) + b"\0", "None in field 9"),
        (b"\x45" + number(6) + b"\x15" + number(1) + b"\x46" + number(0) + b"\0", "1 in field 5"),
        (b"\x45" + number(6) + b"\x16" + b"\x01" + b"\x46" + number(0) + b"\0", "-1 in field 5"),
    ],
)
def test_footers_that_would_end_the_process_are_refused(column: bytes, why: str) -> None:
    """pyarrow does not turn errors about a column's metadata into exceptions."""
    with pytest.raises(ValueError, match=why):
        chunks_of(*file_with(b"", 1, column=column))


def test_a_footer_longer_than_the_file_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than the file"):
        chunks_of(memoryview(bytes(20)), 13)


def test_a_page_whose_header_claims_more_than_the_limit_is_refused() -> None:
    rows = 300
    table = pa.Table.from_arrays(
        [pa.array([b"k" * 9] * rows), pa.array(["v"] * rows)], schema=TEXTS
    )
    body = bytearray(
        file_of(table, use_dictionary=False, compression="none", write_statistics=False)
    )
    # The size of the first page has two bytes of varint; more than it has would need a longer header.
    first, *_ = chunks_in(bytes(body))
    size = varint(2 * first.data[0].size_bytes)
    at = body.index(size)
    body[at : at + len(size)] = varint(2 * 8191)[: len(size)]
    with pytest.raises(UNREADABLE):
        read_table(bytes(body), TEXTS, ParquetLimits(rows=rows, size_bytes=8000))


def test_pages_that_decompress_to_much_are_refused_before_they_do(pool: pa.MemoryPool) -> None:
    rows = 1000
    table = pa.Table.from_arrays(
        [pa.array([bytes(20_000)] * rows), pa.array(["v"] * rows)], schema=TEXTS
    )
    body = file_of(table, use_dictionary=False, compression="zstd", write_statistics=False)
    assert len(body) < 32 << 10
    made = pa.proxy_memory_pool(pool)
    _POOLS.append(made)
    pa.set_memory_pool(made)
    with pytest.raises(ValueError, match=r"its pages have 2\d{7} bytes, .* more than 1048576"):
        read_table(body, TEXTS, ParquetLimits(rows=rows, size_bytes=1 << 20))
    assert made.max_memory() < 1 << 20


def test_a_large_footer_is_refused() -> None:
    table = pa.table({f"column-{number}": [1] for number in range(12_000)})
    body = file_of(table)
    with pytest.raises(ValueError, match=r"footer has \d+ bytes, more than 1048576"):
        read_table(body, table.schema, LIMITS)


def test_a_delta_column_with_nulls_is_refused() -> None:
    """Its pages have levels before the lengths; Tarn's columns of paths have none."""
    schema = pa.schema([pa.field("key", pa.string())])
    body = file_of(
        pa.Table.from_arrays([pa.array(["a", None])], schema=schema),
        use_dictionary=False,
        column_encoding={"key": "DELTA_BYTE_ARRAY"},
    )
    with pytest.raises(ValueError, match="encoding that Tarn does not write"):
        read_table(body, schema, LIMITS)
