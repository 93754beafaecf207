"""Files of events: Parquet, written with the same bytes for the same rows, and read in bounded memory.

A file comes from a bucket, so it may be damaged, or of any other origin. Whatever it holds, reading it gives its rows
or a CORRUPT error with its name, and takes at most some three times `FILE_LIMITS.size_bytes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.parquet import UNREADABLE, ParquetLimits, read_table
from tarn.journal.events import BRANCHES, EVENT_SCHEMA
from tarn.journal.footer import FOOTER_BYTES_MAX, FOOTER_KEY, Footer, decode_footer
from tarn.journal.names import corrupt_error

__all__ = [
    "FILE_BYTES_MAX",
    "FILE_LIMITS",
    "FILE_ROWS",
    "ROWS_BYTES_MAX",
    "check_rows",
    "check_size",
    "decode_base",
    "decode_file",
    "footer_in",
    "digest_of",
    "encode_base",
    "encode_file",
]

FILE_ROWS: Final = 1 << 19
"""Most rows of a file that is written."""
ROWS_BYTES_MAX: Final = 64 << 20
"""Most bytes of its rows in memory. A pass with more of either is written in parts."""
FILE_LIMITS: Final = ParquetLimits(rows=1 << 20, size_bytes=128 << 20)
FILE_BYTES_MAX: Final = 144 << 20
"""Size of the largest file that is read."""

_ROW_GROUP_ROWS: Final = 8192
"""Rows are sorted, so a reader of some paths reads a few groups of each file."""
_DICTIONARIES: Final = ["branch", "token", "user_uid", "session_uid", "operation", "cause"]
_ENCODINGS: Final = {
    "key": "DELTA_BYTE_ARRAY",
    "order": "DELTA_BINARY_PACKED",
    "time_us": "DELTA_BINARY_PACKED",
}


def encode_file(table: pa.Table, footer: Footer) -> bytes:
    """Returns a file of events.

    Args:
        table: rows of `EVENT_SCHEMA`, in the order of `tarn.journal.events.table_of`.
        footer: of this file.

    Raises:
        TarnError: EXHAUSTED: more than `FILE_ROWS`, `ROWS_BYTES_MAX` or `FOOTER_BYTES_MAX`. INVALID: no reader would
            take what it says of itself.
    """
    try:
        _check_footer(footer)
    except ValueError as error:
        text = f"a file of the journal was not written: {error}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text) from error
    signed = msgspec.structs.replace(footer, sha256=digest_of(table, footer))
    check_size(signed)
    return _encoded(table.replace_schema_metadata({FOOTER_KEY: signed.encoded()}))


def check_size(footer: Footer) -> None:
    """Does nothing if a footer fits a file.

    Raises:
        TarnError: EXHAUSTED: it has more than `FOOTER_BYTES_MAX`.
    """
    size = len(footer.encoded()) + 64 * (not footer.sha256)
    if size > FOOTER_BYTES_MAX:
        text = f"{len(footer.branches)} branches take {size} bytes, more than a pass of the journal can tell"
        raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)


def encode_base(table: pa.Table) -> bytes:
    """Returns a file of a base: rows of `EVENT_SCHEMA` in any order.

    Raises:
        TarnError: EXHAUSTED, as `encode_file`.
    """
    return _encoded(table.replace_schema_metadata(None))


def _encoded(table: pa.Table) -> bytes:
    if len(table) > FILE_ROWS or table.nbytes > ROWS_BYTES_MAX:
        text = (
            f"{len(table)} rows of {table.nbytes} bytes are more than a file of the journal holds"
        )
        raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=_ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARIES,
        column_encoding=_ENCODINGS,
        write_statistics=["branch", "token", "key", "order", "time_us"],
    )
    body: bytes = sink.getvalue().to_pybytes()
    return body


def decode_file(
    path: str, body: bytes, columns: Sequence[str] | None = None
) -> tuple[Footer, pa.Table]:
    """Returns what a file of events says of itself, and its rows.

    Args:
        path: its name, for errors.
        body: its bytes.
        columns: as in `decode_base`, of a file whose SHA-256 is known to be that of its name; None: all, and they are
            compared with the SHA-256 in what the file says of itself.

    Raises:
        TarnError: CORRUPT: it is damaged, too large or not of this format.
    """
    table = decode_base(path, body, columns)
    try:  # its metadata is known to be sound
        footer = footer_in(body)
        if columns is None and digest_of(table, footer) != footer.sha256:
            raise ValueError("its rows are not those whose SHA-256 it has")
    except UNREADABLE as error:
        raise corrupt_error(path, str(error)) from error
    return footer, table


def footer_in(body: bytes) -> Footer:
    """Returns what a file of events says of itself.

    Args:
        body: of a file whose metadata are sound, as `decode_base` has found.

    Raises:
        UNREADABLE: it cannot be read, or contradicts itself.
    """
    metadata = pq.read_metadata(pa.BufferReader(body)).metadata or {}
    if FOOTER_KEY not in metadata:
        raise ValueError("it says nothing of its pass")
    footer = decode_footer(metadata[FOOTER_KEY])
    _check_footer(footer)
    return footer


def decode_base(path: str, body: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns the rows of a file of a base, or those of a file of events.

    Args:
        path: as in `decode_file`.
        body: likewise.
        columns: that are wanted, with those that are checked: branch, token, order and key; the others are not
            decoded. None: all.

    Raises:
        TarnError: CORRUPT, as `decode_file`.
    """
    try:
        table = read_table(body, EVENT_SCHEMA, FILE_LIMITS, columns)
        table.validate(full=True)
        check_rows(table)
    except UNREADABLE as error:
        raise corrupt_error(path, str(error)) from error
    return table


def digest_of(table: pa.Table, footer: Footer) -> str:
    """Returns the SHA-256 of a file in hex: of its footer without `sha256`, and of each column (format page)."""
    hashed = hashlib.sha256(msgspec.structs.replace(footer, sha256="").encoded())
    for column in table.columns:
        _hash_column(hashed, column.combine_chunks())
    return hashed.hexdigest()


def _hash_column(hashed: hashlib._Hash, values: pa.Array) -> None:
    if not len(values):
        return
    if pa.types.is_integer(values.type):
        hashed.update(values.to_numpy().tobytes())
    elif pa.types.is_fixed_size_binary(values.type):
        width = values.type.byte_width
        start = values.offset * width
        hashed.update(memoryview(values.buffers()[1])[start : start + len(values) * width])
    else:
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        hashed.update(np.diff(ends).astype("<u4").tobytes())
        hashed.update(memoryview(data)[ends[0] : ends[-1]] if data is not None else b"")


def _check_footer(footer: Footer) -> None:
    names = [each.branch for each in footer.branches]
    if names != sorted(set(names)):
        raise ValueError("its branches are not in order, each once")
    for each in footer.branches:
        tokens = [token.token_id for token in each.tokens]
        if len(set(tokens)) != len(tokens):
            raise ValueError(f"it names a token of branch {each.branch!r} twice")
    if not footer.is_last and (footer.parts or footer.branches):
        raise ValueError("it ends no pass, and describes one")
    if any(part.number == footer.number for part in footer.parts):
        raise ValueError("it names itself as another part")


def check_rows(table: pa.Table) -> None:
    """Raises ValueError for rows that no store holds."""
    if not len(table):
        return
    if pc.min(table.column("order")).as_py() < 0:
        raise ValueError("an event has a negative order")
    if pc.any(pc.equal(table.column("key"), "")).as_py():
        raise ValueError("an event has no key")
    branch, token = table.column("branch"), table.column("token")
    if pc.any(pc.match_substring(pc.unique(branch), "\0")).as_py():
        raise ValueError("the name of a branch has a NUL")
    of_record, has_branch = pc.equal(token, ""), pc.not_equal(branch, "")
    if not pc.all(pc.or_(of_record, has_branch)).as_py():
        raise ValueError("a row of a token has no branch")
    records = table.filter(of_record)
    key, branch = records.column("key"), records.column("branch")
    expected = pc.binary_join_element_wise(BRANCHES, branch, "")
    is_named = pc.if_else(
        pc.starts_with(key, BRANCHES), pc.equal(expected, key), pc.equal(branch, "")
    )
    if not pc.all(is_named, min_count=0).as_py():
        raise ValueError("the record of a branch has the key of another one")
