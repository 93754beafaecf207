"""Every statement of the embedded store: the tables, the pragmas, the reads and the writes.

There is one table per kind of partition, clustered by (partition, key), so a page of a scan is a walk along
leaves. A partial index has the keys of plain rows that are no tombstones, so listings need not walk over those.
Keys are BLOBs and compare as bytes. A register row has a *version* of twelve bytes, which is never reused (see
`transaction.Versions`) and is the port's predicate. The tables are STRICT: sqlite refuses a value of another type
instead of sorting it before all blobs.
"""

# ruff: noqa: S608 - statements contain only constants of this module; values are bound

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from tarn.kv.port import PartitionKind

__all__ = [
    "APPLICATION_ID",
    "BEGIN_WRITE",
    "CREATE_TABLES",
    "Durability",
    "FENCE",
    "FIND_PARTITION",
    "CREATE_PARTITION",
    "LIST_PARTITIONS",
    "KIND_NUMBERS",
    "KINDS_BY_NUMBER",
    "ROWS_PER_STATEMENT",
    "SCHEMA_VERSION",
    "SQLITE_VERSION_MIN",
    "STATEMENTS",
    "Statements",
    "TAKE_OPENING",
    "connection_pragmas",
    "empty_log",
    "page_of_live",
    "page_without",
    "past_prefix",
]

Durability = Literal["fsync", "os"]
"""When a write is acknowledged: when it is on the disk, or when the operating system has it."""


def past_prefix(prefix: bytes) -> bytes:
    """Returns the smallest value greater than all that begin with a prefix.

    Raises:
        ValueError: there is none.
    """
    kept = prefix.rstrip(b"\xff")
    if not kept:
        raise ValueError(f"every value begins with, or lies before, {prefix!r}")
    return kept[:-1] + bytes((kept[-1] + 1,))


SCHEMA_VERSION = 1
APPLICATION_ID = (
    0x5441524E  # "TARN", in the file's header: distinguishes our file from other sqlite files
)
SQLITE_VERSION_MIN = (3, 37, 0)  # STRICT tables; RETURNING came with 3.35

WAL_CHECKPOINT_PAGES = 500  # 2 MiB; a checkpoint stops writers for ms, so small and frequent ones
WAL_KEPT_BYTES = 16 << 20  # a log that has grown beyond this is cut back when it starts over
BUSY_TIMEOUT_MS = 5_000  # we wait only for a foreign program or for a recovery: see files.py
CACHE_KIB = 32 << 10

KIND_NUMBERS = {PartitionKind.REGISTER: 1, PartitionKind.PLAIN: 2}
KINDS_BY_NUMBER = {number: kind for kind, number in KIND_NUMBERS.items()}

TOMBSTONE_BEGINS = b"\1\1"
"""How the values of the rows begin that the index leaves out: version and flags of `tarn.core.entry.TOMBSTONE`.
Another value would need an index of another name.
"""
_IS_LIVE = f"NOT (value >= x'{TOMBSTONE_BEGINS.hex()}' AND value < x'{past_prefix(TOMBSTONE_BEGINS).hex()}')"
CREATE_INDEX = f"CREATE INDEX IF NOT EXISTS plains_live ON plains (partition, key) WHERE {_IS_LIVE}"
"""Run at each opening: stores of earlier versions lack it. An earlier version keeps it up to date without knowing it,
so it is no new schema.
"""

COMPANIONS = (
    """CREATE TABLE IF NOT EXISTS companions (
        partition INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        place INTEGER NOT NULL,
        PRIMARY KEY (partition, key)
    ) STRICT, WITHOUT ROWID""",
    "INSERT OR IGNORE INTO counters (name, value) VALUES ('companions', 0)",
)
"""Run at each opening, as `CREATE_INDEX`. Earlier versions refuse a store whose feature level allows such rows."""
TAKE_PLACES = "UPDATE counters SET value = value + ? WHERE name = 'companions' RETURNING value"
"""Takes a block of places (`transaction.Places`) and returns the last one."""
DATA_VERSION = "PRAGMA data_version"
"""Another number if another connection has committed since; its own commits leave it as it is."""

CREATE_TABLES = (
    # Rows of this table are never deleted and ids never reused, so the next drop still finds a row that a
    # late writer left in a dropped partition.
    """CREATE TABLE partitions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        kind INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE registers (
        partition INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        version BLOB NOT NULL,
        PRIMARY KEY (partition, key)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE plains (
        partition INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (partition, key)
    ) STRICT, WITHOUT ROWID""",
    CREATE_INDEX,
    "CREATE TABLE counters (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) STRICT",
    "INSERT INTO counters (name, value) VALUES ('openings', 0), ('fences', 0)",
    *COMPANIONS,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

BEGIN_WRITE = "BEGIN IMMEDIATE"
TAKE_OPENING = "UPDATE counters SET value = value + 1 WHERE name = 'openings' RETURNING value"
FENCE = "UPDATE counters SET value = value + 1 WHERE name = 'fences'"
FIND_PARTITION = "SELECT id, kind FROM partitions WHERE name = ?"
LIST_PARTITIONS = """SELECT name, kind FROM partitions
    WHERE name > ? AND substr(name, 1, ?) = ? AND CASE kind
        WHEN 1 THEN EXISTS (SELECT 1 FROM registers WHERE partition = id)
        ELSE EXISTS (SELECT 1 FROM plains WHERE partition = id) END
    ORDER BY name LIMIT ?"""
CREATE_PARTITION = "INSERT INTO partitions (name, kind) VALUES (?, ?) ON CONFLICT DO NOTHING"

ROWS_PER_STATEMENT = 64
"""The most rows that one statement writes. Each statement releases the interpreter's lock and must get it
back, which beside a busy event loop costs more than writing the rows."""

KEYS_PER_STATEMENT = 64


def connection_pragmas(durability: Durability) -> tuple[str, ...]:
    """The pragmas of every writing connection.

    FULL syncs the log at every COMMIT. NORMAL syncs only around checkpoints: a power cut may take the last
    transactions, but changes neither their order nor the file's integrity (OFF would risk the file).
    """
    return (
        f"PRAGMA synchronous = {'FULL' if durability == 'fsync' else 'NORMAL'}",
        f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}",
        f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}",
        f"PRAGMA cache_size = {-CACHE_KIB}",
        f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
        "PRAGMA temp_store = MEMORY",
    )


def empty_log(wait_ms: int) -> tuple[str, ...]:
    """Copies the whole log into the file and empties it; waits at most `wait_ms` for readers."""
    return (
        f"PRAGMA busy_timeout = {wait_ms}",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    )


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for the rows of one kind of partition. Below: the parameters of each, in order.

    Attributes:
        columns: how many parameters one written row has.
        put: by number of rows, a power of two: the parameters of these rows. Later rows replace earlier
            ones and existing ones.
        get: partition, key.
        get_some: by number of keys, a power of two: partition, then the keys (keys may repeat).
        page: partition, start, limit.
        page_before: partition, start, end, limit.
        nth_key: partition, start, end, n; returns the key of the nth row, counted from 0.
        delete: partition, key.
        measure_head: partition, limit; returns the last key, the number and the bytes of the first rows.
        delete_to: partition, last key (inclusive).
    """

    columns: int
    put: dict[int, str]
    get: str
    get_some: dict[int, str]
    page: str
    page_before: str
    nth_key: str
    delete: str
    measure_head: str
    delete_to: str


def _statements(table: str, written: tuple[str, ...], version: str) -> Statements:
    row = f"({', '.join('?' * len(written))})"
    put = f"INSERT OR REPLACE INTO {table} ({', '.join(written)}) VALUES "
    found = f"SELECT key, value, {version} FROM {table} WHERE partition = ? AND key IN "
    head = f"SELECT key, value FROM {table} WHERE partition = ?"
    return Statements(
        columns=len(written),
        put={count: put + ", ".join([row] * count) for count in _powers(ROWS_PER_STATEMENT)},
        get=f"SELECT value, {version} FROM {table} WHERE partition = ? AND key = ?",
        get_some={
            count: f"{found} ({', '.join('?' * count)})" for count in _powers(KEYS_PER_STATEMENT)
        },
        page=f"{head} AND key >= ? ORDER BY key LIMIT ?",
        page_before=f"{head} AND key >= ? AND key < ? ORDER BY key LIMIT ?",
        nth_key=(
            f"SELECT key FROM {table} WHERE partition = ? AND key >= ? AND key < ?"
            " ORDER BY key LIMIT 1 OFFSET ?"
        ),
        delete=f"DELETE FROM {table} WHERE partition = ? AND key = ?",
        measure_head=(
            "SELECT max(key), count(*), total(length(key) + length(value))"
            f" FROM ({head} ORDER BY key LIMIT ?)"
        ),
        delete_to=f"DELETE FROM {table} WHERE partition = ? AND key <= ?",
    )


def _powers(largest: int) -> list[int]:
    return [1 << power for power in range(largest.bit_length())]


_TABLES = {PartitionKind.REGISTER: "registers", PartitionKind.PLAIN: "plains"}
STATEMENTS = {
    PartitionKind.REGISTER: _statements(
        _TABLES[PartitionKind.REGISTER], ("partition", "key", "value", "version"), "version"
    ),
    PartitionKind.PLAIN: _statements(
        _TABLES[PartitionKind.PLAIN], ("partition", "key", "value"), "x''"
    ),
}
COMPANION_STATEMENTS = _statements("companions", ("partition", "key", "value", "place"), "place")
PAGE_OF_COMPANIONS = """SELECT key, value, place FROM companions WHERE partition = ? AND key >= ? AND key < ?
    ORDER BY key LIMIT ?"""


@cache
def page_without(kind: PartitionKind, hidden_by: tuple[int, ...]) -> str:
    """Returns the statement for a page of the rows whose value and key are wanted.

    Args:
        kind: of the partition.
        hidden_by: numbers of partitions whose keys are unwanted, of each kind.

    Parameters: partition, start, end, the `hidden_by` partitions whose keys are unwanted, first unwanted value, first
    wanted value after it, limit.
    """
    # One comparison of memory for each row; a function of the value would make an object of it first.
    return _page_without(_TABLES[kind], hidden_by, "NOT (value >= ? AND value < ?)")


@cache
def page_of_live(hidden_by: tuple[int, ...]) -> str:
    """As `page_without`, for the plain rows that are no tombstones. It takes their keys from the index.

    Parameters: partition, start, end, the `hidden_by` partitions whose keys are unwanted, limit.
    """
    return _page_without("plains INDEXED BY plains_live", hidden_by, _IS_LIVE)


FIRST_LIVE = f"""SELECT key FROM plains INDEXED BY plains_live
    WHERE partition = ? AND key >= ? AND key < ? AND {_IS_LIVE} ORDER BY key LIMIT 1"""


def _page_without(source: str, hidden_by: tuple[int, ...], is_wanted: str) -> str:
    table, _, _ = source.partition(" ")
    is_hidden = [
        f" AND NOT EXISTS (SELECT 1 FROM {_TABLES[kind]} AS newer"
        f" WHERE newer.partition IN ({', '.join('?' * count)}) AND newer.key = {table}.key)"
        for kind, count in zip(PartitionKind, hidden_by, strict=True)
        if count
    ]
    return (
        f"SELECT key, value FROM {source} WHERE partition = ? AND key >= ? AND key < ?"
        f"{''.join(is_hidden)} AND {is_wanted} ORDER BY key LIMIT ?"
    )


@cache
def get_rows(kinds: tuple[PartitionKind, ...], is_last_version: bool) -> str:
    """Returns the statement for one row of each of some partitions: half the cost of a statement for each.

    Its one row has value and version of each, both NULL for an absent row.

    Args:
        kinds: of the partitions. The parameters are partition and key of each.
        is_last_version: whether only the version of the last row is wanted.
    """
    columns, joins = [], []
    for number, kind in enumerate(kinds):
        version = f"r{number}.version" if kind is PartitionKind.REGISTER else "x''"
        is_version = is_last_version and number == len(kinds) - 1
        columns.append(version if is_version else f"r{number}.value, {version}")
        joins.append(
            f" LEFT JOIN {_TABLES[kind]} AS r{number} ON r{number}.partition = ? AND r{number}.key = ?"
        )
    return f"SELECT {', '.join(columns)} FROM (SELECT 1){''.join(joins)}"


GET_VERSION = "SELECT version FROM registers WHERE partition = ? AND key = ?"
CREATE_REGISTER = (
    "INSERT INTO registers (partition, key, value, version) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
REPLACE_REGISTER = (
    "UPDATE registers SET value = ?, version = ? WHERE partition = ? AND key = ? AND version = ?"
)
DELETE_REGISTER = "DELETE FROM registers WHERE partition = ? AND key = ? AND version = ?"
