"""Every CQL statement, prepared, and the encoding of values in cells.

There are two tables, because kinds of statements must never mix on a row (docs/design/kv.md, "Two tables"):
all writes to `cas` are conditional (Paxos), and no write to `plain` is. The one exception is the drop of a
partition, whose name is never used again. Column `n` holds the nonce of the operation that wrote the row.
Comparing it is cheaper than comparing the value, and it identifies the writer. A value is never empty or
null, since it begins with a flag byte. So `n != 0x00` and `v != 0x` hold for every row, and `n != 0x00` also
holds for an absent row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from cassandra.cluster import Session

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["FLAG_RAW", "Statements", "open_value", "prepare", "seal_value"]

Prepared = Any  # cassandra.query.PreparedStatement, which has no types

FLAG_RAW = b"\0"
"""The value follows unchanged. Other flags are reserved for later encodings, such as compressed values."""


def seal_value(value: bytes) -> bytes:
    """Encodes a value as a cell."""
    return FLAG_RAW + value


def open_value(cell: bytes) -> bytes:
    """Decodes a value from a cell.

    Raises:
        TarnError: CORRUPT: this version does not know the encoding.
    """
    if cell[:1] != FLAG_RAW:
        text = f"a stored value has the unknown encoding {cell[:1]!r}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    return cell[1:]


@dataclass(frozen=True, slots=True)
class Statements:
    """Prepared statements. The CQL below gives the order of each one's parameters."""

    cas_get: Prepared
    cas_page: Prepared
    cas_page_to_end: Prepared
    cas_insert: Prepared
    cas_update: Prepared
    cas_upsert: Prepared
    cas_companion: Prepared
    cas_companions: Prepared
    cas_delete_if: Prepared
    cas_delete: Prepared
    cas_drop: Prepared
    cas_list: Prepared
    plain_get: Prepared
    plain_get_cross_bucket: Prepared
    plain_stamps: Prepared
    plain_stamps_cross_bucket: Prepared
    plain_page: Prepared
    plain_page_to_end: Prepared
    plain_companions: Prepared
    plain_set: Prepared
    plain_delete: Prepared
    plain_drop: Prepared
    plain_list: Prepared


_ROW = "WHERE p = ? AND b = ? AND k = ?"
_CQL = {
    "cas_get": "SELECT k, v, n FROM {0}.cas WHERE p = ? AND b = ? AND k IN ?",
    "cas_page": "SELECT k, v FROM {0}.cas WHERE p = ? AND b = ? AND k >= ? AND k < ? LIMIT ?",
    "cas_page_to_end": "SELECT k, v FROM {0}.cas WHERE p = ? AND b = ? AND k >= ? LIMIT ?",
    "cas_insert": "INSERT INTO {0}.cas (p, b, k, v, n) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS",
    # A failed condition returns only the columns that it names, so the condition names v.
    "cas_update": "UPDATE {0}.cas SET v = ?, n = ? {1} IF n = ? AND v != 0x",
    "cas_upsert": "UPDATE {0}.cas SET v = ?, n = ? {1} IF n != 0x00",
    # Only in a batch with a condition of the same Cassandra partition, which gives it its ballot.
    "cas_companion": "INSERT INTO {0}.cas (p, b, k, v, n) VALUES (?, ?, ?, ?, ?)",
    "cas_companions": "SELECT k, v, WRITETIME(v) FROM {0}.cas WHERE p = ? AND b = ? AND k >= ? AND k < ? LIMIT ?",
    "cas_delete_if": "DELETE FROM {0}.cas {1} IF n = ? AND v != 0x",
    "cas_delete": "DELETE FROM {0}.cas {1} IF n != 0x00",
    "cas_drop": "DELETE FROM {0}.cas USING TIMESTAMP ? WHERE p = ? AND b = ?",
    "cas_list": "SELECT DISTINCT p, b, token(p, b) FROM {0}.cas WHERE token(p, b) >= ? LIMIT ?",
    "plain_get": "SELECT k, v, WRITETIME(v) FROM {0}.plain WHERE p = ? AND b = ? AND k IN ?",
    "plain_stamps": "SELECT k, WRITETIME(v) FROM {0}.plain WHERE p = ? AND b = ? AND k IN ?",
    "plain_get_cross_bucket": "SELECT k, v, WRITETIME(v), b FROM {0}.plain WHERE p = ? AND b IN ? AND k IN ?",
    "plain_stamps_cross_bucket": "SELECT k, WRITETIME(v), b FROM {0}.plain WHERE p = ? AND b IN ? AND k IN ?",
    "plain_page": "SELECT k, v FROM {0}.plain WHERE p = ? AND b = ? AND k >= ? AND k < ? LIMIT ?",
    "plain_page_to_end": "SELECT k, v FROM {0}.plain WHERE p = ? AND b = ? AND k >= ? LIMIT ?",
    "plain_companions": "SELECT k, v, WRITETIME(v) FROM {0}.plain WHERE p = ? AND b = ? AND k >= ? AND k < ? LIMIT ?",
    "plain_set": "INSERT INTO {0}.plain (p, b, k, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
    "plain_delete": "DELETE FROM {0}.plain USING TIMESTAMP ? {1}",
    "plain_drop": "DELETE FROM {0}.plain USING TIMESTAMP ? WHERE p = ? AND b = ?",
    "plain_list": "SELECT DISTINCT p, b, token(p, b) FROM {0}.plain WHERE token(p, b) >= ? LIMIT ?",
}


def prepare(session: Session, keyspace: str) -> Statements:
    """Prepares all statements. Blocks."""
    texts = {field.name: _CQL[field.name] for field in fields(Statements)}
    return Statements(
        **{name: session.prepare(cql.format(keyspace, _ROW)) for name, cql in texts.items()}
    )
