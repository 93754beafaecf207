"""Range and metarange files: Parquet, so that any engine reads what was committed without a plug-in.

A file's name is the id of its logical rows, not of its bytes: another version of the Parquet library
may write other bytes for the same rows, and either file serves. Every read packs the rows again and
compares their hash with the name.
"""

from __future__ import annotations

import struct

import pyarrow as pa
import pyarrow.parquet as pq

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.metarange import Metarange, RangeInfo
from tarn.core.rangecolumns import columns_of, range_id_of, run_of_columns
from tarn.core.run import Run, heads_of

__all__ = [
    "METARANGE_SCHEMA",
    "decode_metarange",
    "decode_range",
    "describe_range",
    "encode_metarange",
    "encode_range",
    "metarange_path",
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

# What damaged bytes make of the Parquet reader, and of the code behind it.
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

_ROW_GROUP_ROWS = 128 * 1024
_PAIR = "metadata.key_value."
_ENCODINGS = {
    "path": "DELTA_BYTE_ARRAY",
    "size": "DELTA_BINARY_PACKED",
    "mtime": "DELTA_BINARY_PACKED",
}
_DICTIONARIES = ["flags", "content_type", _PAIR + "key", _PAIR + "value"]


def range_path(range_id: RangeId) -> str:
    """Where a range lies in its namespace."""
    return f"_tarn/ranges/{range_id}.parquet"


def metarange_path(metarange_id: MetarangeId) -> str:
    """Where a metarange lies in its namespace."""
    return f"_tarn/metaranges/{metarange_id}.parquet"


def describe_range(run: Run) -> RangeInfo:
    """The row of a metarange for a range of these rows; hashes them."""
    return RangeInfo(
        range_id=range_id_of(run),
        min_path=run.first_path,
        max_path=run.last_path,
        count=len(run),
        size_bytes=run.size_bytes,
        object_bytes=int(heads_of(run.values)["size"].sum()),
    )


def encode_range(run: Run) -> pa.Buffer:
    """The file of a range."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        columns_of(run),
        sink,
        row_group_size=_ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARIES,
        column_encoding=_ENCODINGS,
        write_statistics=["path", "size", "mtime"],
        sorting_columns=[pq.SortingColumn(0)],
    )
    return sink.getvalue()


def decode_range(range_id: RangeId, body: bytes) -> Run:
    """The packed rows of a range file.

    Raises:
        TarnError: CORRUPT if it cannot be read, or if its rows are not those that the id names.
    """
    try:
        run = run_of_columns(_read(body))
        found = range_id_of(run)
    except _UNREADABLE as error:
        raise _corrupt("range", range_id, str(error)) from error
    if found != range_id:
        raise _corrupt("range", range_id, f"its rows hash to {found}")
    return run


def encode_metarange(metarange: Metarange) -> pa.Buffer:
    """The file of a metarange."""
    sink = pa.BufferOutputStream()
    rows = [[getattr(info, name) for info in metarange.ranges] for name in METARANGE_SCHEMA.names]
    pq.write_table(
        pa.Table.from_arrays(
            [pa.array(row, field.type) for row, field in zip(rows, METARANGE_SCHEMA, strict=True)],
            schema=METARANGE_SCHEMA,
        ),
        sink,
        row_group_size=_ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
    )
    return sink.getvalue()


def decode_metarange(metarange_id: MetarangeId, body: bytes) -> Metarange:
    """The rows of a metarange file.

    Raises:
        TarnError: CORRUPT if it cannot be read, or if its rows are not those that the id names.
    """
    try:
        table = _read(body)
        if not table.schema.equals(METARANGE_SCHEMA):
            raise ValueError(f"its columns are {table.schema.names}")
        columns = [table.column(name).to_pylist() for name in METARANGE_SCHEMA.names]
        rows = zip(*columns, strict=True)
        metarange = Metarange(tuple(RangeInfo(RangeId(row[0]), *row[1:]) for row in rows))
    except _UNREADABLE as error:
        raise _corrupt("metarange", metarange_id, str(error)) from error
    if metarange.metarange_id != metarange_id:
        raise _corrupt("metarange", metarange_id, f"its rows hash to {metarange.metarange_id}")
    return metarange


def _read(body: bytes) -> pa.Table:
    # One thread: the callers run several of these side by side.
    with pq.ParquetFile(pa.BufferReader(body)) as file:
        return file.read(use_threads=False)


def _corrupt(what: str, name: str, detail: str) -> TarnError:
    text = f"{what} {name} is damaged: {detail}"
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, id=name)
