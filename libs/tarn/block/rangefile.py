"""Range and metarange files: Parquet, so that any engine reads committed metadata without a plug-in.

A file is named by a hash of its logical rows, not of its bytes: another version of the Parquet library
may write other bytes for the same rows, and both files are valid. Every read packs the rows again and
compares their hash with the name, except `metarange_sizes`, which only estimates use.
"""

from __future__ import annotations

import struct

import pyarrow as pa
import pyarrow.parquet as pq

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.rangecolumns import RANGE_SCHEMA, columns_of, range_id_of, run_of_columns
from tarn.core.listing.run import Run, heads_of
from tarn.core.listing.sizes import bounded, sum_of
from tarn.core.parquet import ParquetLimits, read_table

__all__ = [
    "METARANGE_SCHEMA",
    "decode_metarange",
    "decode_range",
    "describe_range",
    "encode_metarange",
    "encode_range",
    "metarange_path",
    "metarange_sizes",
    "range_path",
]

METARANGE_SCHEMA = pa.schema(
    [
        pa.field("range_id", pa.string(), nullable=False),
        pa.field("min_path", pa.string(), nullable=False),
        pa.field("max_path", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("object_bytes", pa.int64(), nullable=False),
    ]
)

# Exceptions that damaged bytes cause in the Parquet reader and in the code behind it.
_UNREADABLE = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    struct.error,
    TarnError,
)

# A range has at most 100,000 rows and 32 MiB (`tarn.core.listing.breaks`), rarely twice as much in Arrow; a
# metarange of this size lists six billion objects. Written files stay well below the limits for reading.
_ROWS_MAX = 1 << 20
_LIMITS = ParquetLimits(rows=_ROWS_MAX, size_bytes=128 << 20)
_WRITTEN_BYTES_MAX = 96 << 20

_ROW_GROUP_ROWS = 128 * 1024
_PAIR = "metadata.key_value."
_ENCODINGS = {
    "path": "DELTA_BYTE_ARRAY",
    # Neighbours were often made in the same millisecond, with which an address begins; the rest is random. So this
    # takes as little space as zstd would, in a third of the time.
    "address": "DELTA_BYTE_ARRAY",
    "size": "DELTA_BINARY_PACKED",
    "mtime": "DELTA_BINARY_PACKED",
}
_COMPRESSED = [
    "path",
    "size",
    "mtime",
    "etag",
    "identity",
    "flags",
    "content_type",
    _PAIR + "key",
    _PAIR + "value",
    "tail",
]
_DICTIONARIES = ["flags", "content_type", _PAIR + "key", _PAIR + "value"]


def range_path(range_id: RangeId) -> str:
    """Returns the path of a range in its namespace."""
    return f"_tarn/ranges/{range_id}.parquet"


def metarange_path(metarange_id: MetarangeId) -> str:
    """Returns the path of a metarange in its namespace."""
    return f"_tarn/metaranges/{metarange_id}.parquet"


def describe_range(run: Run) -> RangeInfo:
    """Returns the metarange row that describes a range of these rows. Hashes the rows."""
    return RangeInfo(
        range_id=range_id_of(run),
        min_path=run.first_path,
        max_path=run.last_path,
        count=len(run),
        size_bytes=run.size_bytes,
        object_bytes=bounded(sum_of(heads_of(run.values)["size"])),
    )


def encode_range(run: Run) -> pa.Buffer:
    """Returns the file of a range.

    Raises:
        TarnError: EXHAUSTED if the rows exceed the limits of a file, which no regular range approaches.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(
        _bounded(columns_of(run)),
        sink,
        row_group_size=_ROW_GROUP_ROWS,
        compression=dict.fromkeys(_COMPRESSED, "zstd"),
        compression_level=dict.fromkeys(_COMPRESSED, 1),
        use_dictionary=_DICTIONARIES,
        column_encoding=_ENCODINGS,
        write_statistics=["path", "size", "mtime"],
        sorting_columns=[pq.SortingColumn(0)],
    )
    return sink.getvalue()


def decode_range(range_id: RangeId, body: bytes) -> Run:
    """Returns the packed rows of a range file.

    Raises:
        TarnError: CORRUPT if the file cannot be read, or if the hash of its rows is not the id.
    """
    try:
        run = run_of_columns(_read(body, RANGE_SCHEMA))
        found = range_id_of(run)
    except _UNREADABLE as error:
        raise _corrupt("range", range_id, str(error)) from error
    if found != range_id:
        raise _corrupt("range", range_id, f"its rows hash to {found}")
    return run


def encode_metarange(metarange: Metarange) -> pa.Buffer:
    """Returns the file of a metarange.

    Raises:
        TarnError: EXHAUSTED if there are more ranges than a file may hold, some hundred thousand.
    """
    sink = pa.BufferOutputStream()
    rows = [[getattr(info, name) for info in metarange.ranges] for name in METARANGE_SCHEMA.names]
    pq.write_table(
        _bounded(
            pa.Table.from_arrays(
                [
                    pa.array(row, field.type)
                    for row, field in zip(rows, METARANGE_SCHEMA, strict=True)
                ],
                schema=METARANGE_SCHEMA,
            )
        ),
        sink,
        row_group_size=_ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
    )
    return sink.getvalue()


def decode_metarange(metarange_id: MetarangeId, body: bytes) -> Metarange:
    """Returns the rows of a metarange file.

    Raises:
        TarnError: CORRUPT if the file cannot be read, or if the hash of its rows is not the id.
    """
    try:
        table = _read(body, METARANGE_SCHEMA)
        columns = [table.column(name).to_pylist() for name in METARANGE_SCHEMA.names]
        rows = zip(*columns, strict=True)
        metarange = Metarange(tuple(RangeInfo(RangeId(row[0]), *row[1:]) for row in rows))
        _check_counts(metarange)
    except _UNREADABLE as error:
        raise _corrupt("metarange", metarange_id, str(error)) from error
    if metarange.metarange_id != metarange_id:
        raise _corrupt("metarange", metarange_id, f"its rows hash to {metarange.metarange_id}")
    return metarange


def metarange_sizes(metarange_id: MetarangeId, body: bytes) -> list[tuple[str, int, int]]:
    """Returns the id, the objects and their bytes of each range, for estimates: the rows are not compared with the id.

    Takes a third of the time of `decode_metarange`.

    Raises:
        TarnError: CORRUPT if the file cannot be read.
    """
    try:
        table = _read(body, METARANGE_SCHEMA)
        columns = [table.column(name).to_pylist() for name in ("range_id", "count", "object_bytes")]
    except _UNREADABLE as error:
        raise _corrupt("metarange", metarange_id, str(error)) from error
    return list(zip(*columns, strict=True))


def _check_counts(metarange: Metarange) -> None:
    """Rejects ranges without rows or bytes: builds and weight calculations divide by these numbers."""
    for info in metarange.ranges:
        if info.count < 1 or info.size_bytes < 1:
            text = f"range {info.range_id} has {info.count} rows of {info.size_bytes} bytes"
            raise ValueError(text)


def _bounded(table: pa.Table) -> pa.Table:
    if len(table) > _ROWS_MAX or table.nbytes > _WRITTEN_BYTES_MAX:
        text = (
            f"{len(table)} rows of {table.nbytes} bytes are more than a file of metadata may hold"
        )
        raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
    return table


def _read(body: bytes, schema: pa.Schema) -> pa.Table:
    return read_table(body, schema, _LIMITS)


def _corrupt(what: str, name: str, detail: str) -> TarnError:
    text = f"{what} {name} is damaged: {detail}"
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, id=name)
