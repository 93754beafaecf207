"""Range and metarange files: any Parquet reader can read them, and damage is never taken for data."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import Listing, listings, run_of, sample_entry

from tarn.block.rangefile import (
    METARANGE_SCHEMA,
    decode_metarange,
    decode_range,
    describe_range,
    encode_metarange,
    encode_range,
    metarange_path,
    metarange_sizes,
    range_path,
)
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange
from tarn.core.listing.rangecolumns import RANGE_SCHEMA, columns_of

ROWS = {f"k{number:03}": sample_entry(number) for number in range(100)}
RUN = run_of(ROWS)
INFO = describe_range(RUN)
METARANGE = Metarange((INFO,))


@given(listings().filter(bool))
def test_a_range_survives_its_file(listing: Listing) -> None:
    run = run_of(listing)
    back = decode_range(describe_range(run).range_id, encode_range(run).to_pybytes())
    assert back.batch().equals(run.batch())


def test_a_range_is_described_by_its_rows() -> None:
    assert (INFO.min_path, INFO.max_path, INFO.count) == ("k000", "k099", 100)
    assert INFO.object_bytes == sum(range(100))
    assert INFO.size_bytes == sum(len(path) + len(value) for path, value in ROWS.items())


def test_a_slice_is_described_by_its_own_rows() -> None:
    part = RUN.slice(10, 20)
    assert describe_range(part) == describe_range(run_of(dict(list(ROWS.items())[10:20])))


def test_a_range_file_is_plain_parquet() -> None:
    body = encode_range(RUN)
    file = pq.ParquetFile(pa.BufferReader(body))
    assert file.metadata.num_rows == 100
    assert file.metadata.row_group(0).sorting_columns == (pq.SortingColumn(0),)
    path = file.metadata.row_group(0).column(0)
    assert path.compression == "ZSTD"
    assert "DELTA_BYTE_ARRAY" in path.encodings
    assert (path.statistics.min, path.statistics.max) == ("k000", "k099")
    assert file.schema_arrow.names == RANGE_SCHEMA.names
    frame = file.read().to_pandas()
    assert frame["path"].tolist() == list(ROWS)
    assert frame["size"].tolist() == list(range(100))
    assert set(frame["content_type"]) == {"text/plain"}


def test_another_file_of_the_same_rows_serves_as_well() -> None:
    table = pq.read_table(pa.BufferReader(encode_range(RUN)))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", row_group_size=7)
    assert decode_range(INFO.range_id, sink.getvalue().to_pybytes()).batch().equals(RUN.batch())


def test_rows_of_another_range_are_refused() -> None:
    body = encode_range(RUN.slice(1)).to_pybytes()
    with pytest.raises(TarnError, match=f"{INFO.range_id} is damaged: its rows hash to") as caught:
        decode_range(INFO.range_id, body)
    assert (caught.value.kind, caught.value.metadata["id"]) == (Kind.CORRUPT, INFO.range_id)


@given(st.data())
def test_a_damaged_range_file_is_refused_or_still_says_the_same(data: st.DataObject) -> None:
    body = bytearray(encode_range(RUN).to_pybytes())
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    try:
        run = decode_range(INFO.range_id, bytes(body))
    except TarnError as error:
        assert error.metadata["id"] == INFO.range_id  # noqa: PT017 - either outcome is right
    else:
        assert run.batch().equals(RUN.batch())


@pytest.mark.parametrize("cut", [0, 1, 8, 100, 1000])
def test_a_range_file_cut_off_is_refused(cut: int) -> None:
    body = encode_range(RUN).to_pybytes()
    with pytest.raises(TarnError, match=INFO.range_id) as caught:
        decode_range(INFO.range_id, body[:-cut] if cut else b"")
    assert caught.value.kind is Kind.CORRUPT


def test_a_metarange_survives_its_file() -> None:
    body = encode_metarange(METARANGE).to_pybytes()
    assert decode_metarange(METARANGE.metarange_id, body) == METARANGE
    empty = encode_metarange(EMPTY_METARANGE).to_pybytes()
    assert decode_metarange(EMPTY_METARANGE.metarange_id, empty) == EMPTY_METARANGE


def test_sizes_of_a_metarange_are_those_of_its_ranges() -> None:
    body = encode_metarange(METARANGE).to_pybytes()
    sizes = [(info.range_id, info.count, info.object_bytes) for info in METARANGE.ranges]
    assert metarange_sizes(METARANGE.metarange_id, body) == sizes


def test_a_metarange_file_is_plain_parquet() -> None:
    rows = pq.read_table(pa.BufferReader(encode_metarange(METARANGE))).to_pylist()
    assert rows == [{name: getattr(INFO, name) for name in METARANGE_SCHEMA.names}]


@pytest.mark.parametrize("cut", [1, 8, 100, 100_000])
def test_a_metarange_file_cut_off_is_refused(cut: int) -> None:
    body = encode_metarange(METARANGE).to_pybytes()
    for read in (decode_metarange, metarange_sizes):
        with pytest.raises(TarnError, match=METARANGE.metarange_id) as caught:
            read(METARANGE.metarange_id, body[:-cut])
        assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("range_id", "xy"),
        ("range_id", None),
        ("count", None),
        ("count", -1),
        ("count", 0),
        ("size_bytes", 0),
        ("min_path", "z"),
    ],
)
def test_rows_that_are_no_metarange_are_refused(column: str, value: object) -> None:
    row = {name: getattr(INFO, name) for name in METARANGE_SCHEMA.names} | {column: value}
    table = pa.Table.from_pylist([row], schema=METARANGE_SCHEMA)
    sink = pa.BufferOutputStream()
    if value is None:
        schema = pa.schema([field.with_nullable(True) for field in METARANGE_SCHEMA])
        table = table.cast(schema)
    pq.write_table(table, sink)
    with pytest.raises(TarnError, match=METARANGE.metarange_id) as caught:
        decode_metarange(METARANGE.metarange_id, sink.getvalue().to_pybytes())
    assert caught.value.kind is Kind.CORRUPT


def texts_of(*texts: bytes) -> pa.StringArray:
    """Returns texts as in a damaged file: Parquet readers do not check that they are UTF-8."""
    _, offsets, data = pa.array(texts, pa.binary()).buffers()
    return pa.StringArray.from_buffers(len(texts), offsets, data)


def file_of(columns: dict[str, pa.Array], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    arrays = [columns[name] for name in schema.names]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), sink)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def pairs_of(names: pa.StringArray, values: pa.StringArray) -> pa.MapArray:
    return pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), names, values)


@pytest.mark.parametrize(
    ("column", "damaged"),
    [
        ("path", texts_of(b"a", b"\xff")),
        ("path", texts_of(b"b", b"a")),
        ("path", texts_of(b"a", b"a")),
        (
            "content_type",
            pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), texts_of(b"\xfe")),
        ),
        ("metadata", pairs_of(texts_of(b"\xff", b"a"), texts_of(b"x", b"y"))),
        ("metadata", pairs_of(texts_of(b"a", b"b"), texts_of(b"x", b"\xed\xa0\x80"))),
    ],
)
def test_a_range_that_readers_cannot_trust_is_refused_whatever_its_id(
    column: str, damaged: pa.Array
) -> None:
    """Its rows hash to the requested id, so only a check of the columns can detect it."""
    table = columns_of(RUN.slice(0, 2))
    columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
    body = file_of(columns | {column: damaged}, RANGE_SCHEMA)
    with pytest.raises(TarnError, match=r"is damaged: .* of a range") as caught:
        decode_range(INFO.range_id, body)
    assert caught.value.kind is Kind.CORRUPT
    caught.value.message.encode()


@pytest.mark.parametrize("column", ["range_id", "min_path", "max_path"])
def test_a_metarange_whose_texts_are_not_utf_8_is_refused(column: str) -> None:
    columns = {
        field.name: pa.array([getattr(INFO, field.name)], field.type) for field in METARANGE_SCHEMA
    }
    body = file_of(columns | {column: texts_of(b"\xff")}, METARANGE_SCHEMA)
    with pytest.raises(TarnError, match=METARANGE.metarange_id) as caught:
        decode_metarange(METARANGE.metarange_id, body)
    assert caught.value.kind is Kind.CORRUPT


def test_rows_of_another_metarange_are_refused() -> None:
    other = Metarange((describe_range(RUN.slice(1)),))
    with pytest.raises(TarnError, match="its rows hash to"):
        decode_metarange(METARANGE.metarange_id, encode_metarange(other).to_pybytes())


def test_files_lie_beside_the_data() -> None:
    assert range_path(RangeId("ab")) == "_tarn/ranges/ab.parquet"
    assert metarange_path(MetarangeId("cd")) == "_tarn/metaranges/cd.parquet"


def test_a_small_file_of_long_rows_is_not_read_to_its_end() -> None:
    columns = [
        pa.repeat(pa.scalar("ab" * 32 if name == "range_id" else "x" * 400_000), 400)
        if field.type == pa.string()
        else pa.repeat(pa.scalar(1), 400)
        for name, field in zip(METARANGE_SCHEMA.names, METARANGE_SCHEMA, strict=True)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=METARANGE_SCHEMA), sink, write_statistics=False
    )
    body = sink.getvalue().to_pybytes()
    assert len(body) < 64 * 1024
    with pytest.raises(TarnError, match="bytes of rows") as caught:
        decode_metarange(METARANGE.metarange_id, body)
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize(
    ("rows", "group_rows"), [((1 << 20) + 1, 1 << 20), (1025, 1)], ids=["rows", "row groups"]
)
def test_a_file_of_too_many_rows_or_groups_is_refused_before_they_are_read(
    rows: int, group_rows: int
) -> None:
    columns = [
        pa.repeat(pa.scalar("ab" * 32 if field.type == pa.string() else 1, field.type), rows)
        for field in METARANGE_SCHEMA
    ]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, schema=METARANGE_SCHEMA)
    pq.write_table(table, sink, row_group_size=group_rows, write_statistics=False)
    with pytest.raises(
        TarnError, match=f"{rows} rows in {-(-rows // group_rows)} groups"
    ) as caught:
        decode_metarange(METARANGE.metarange_id, sink.getvalue().to_pybytes())
    assert caught.value.kind is Kind.CORRUPT
