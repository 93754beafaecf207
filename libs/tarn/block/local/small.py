"""Small bodies in one sqlite file, shared by the processes of a machine.

With an fsync of file and directory for each small block, a disk stores about 2,000 blocks a second. Rows of
one WAL transaction share a single fsync. Rows are appended in the order of arrival and found through an
index on (namespace, path). `data/<hour>/<uuidv7>` paths sort by time, so that index also grows at its end.

In a process that uses the file, only sqlite may open and close it: closing any descriptor of a file drops
the POSIX locks that sqlite holds on it. That is why the lock between writers is a separate file.

This module holds the statements; `group_writer.py` decides when they run.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tarn.block.local.tree import FILE_MODE
from tarn.block.port import BlockInfo
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["NamespaceOverlapError", "Row", "SmallReader", "SmallWriter", "create_small"]

Row = tuple[int, str, int, bytes]
"""(namespace id, path, mtime_us, body): one row to insert."""

_SCHEMA_VERSION: Final = 1
# 7 bodies of 1 KiB share a page, and a body of 64 KiB has a chain of 8 overflow pages.
_PAGE_BYTES: Final = 8192
# Size of the WAL at which a transaction copies it into the main file.
_CHECKPOINT_PAGES: Final = 2048
_WAL_BYTES_KEPT: Final = 64 << 20
_BUSY_S: Final = 10.0
_CACHE_KIB: Final = 8192
_INSERT_ROWS_MAX: Final = 64
_DELETE_PATHS_MAX: Final = 500

_SCHEMA: Final = """
CREATE TABLE namespaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE blocks (
  id INTEGER PRIMARY KEY, namespace INTEGER NOT NULL, path TEXT NOT NULL,
  mtime_us INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX blocks_by_path ON blocks (namespace, path);
"""


class NamespaceOverlapError(TarnError):
    """One namespace would lie inside another: two of their blocks could have the same file path."""

    def __init__(self, name: str, other: str) -> None:
        text = (
            f"namespace local://{name} and local://{other} overlap; choose one outside of the other"
        )
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, text, namespace=name, other=other)


def create_small(path: Path) -> None:
    """Creates the file with its tables if it does not exist. The caller holds the writers' lock.

    Raises:
        sqlite3.Error: the file cannot be created or is not a database.
        OSError: the file cannot be created.
        TarnError: UNIMPLEMENTED if a newer version of Tarn wrote the file.
    """
    with suppress(FileExistsError):
        # Created before sqlite opens it, to set its mode; O_EXCL, so that no other process has it open at the close.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))
    with closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            script = f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version={_SCHEMA_VERSION};COMMIT"
            connection.executescript(script)
        elif version != _SCHEMA_VERSION:
            text = (
                f"{path} has layout {version}, this Tarn knows {_SCHEMA_VERSION}; use a newer Tarn"
            )
            raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text, path=str(path))


def _connect(path: Path, *, fsync: bool) -> sqlite3.Connection:
    """Opens a connection in autocommit mode: transactions are explicit. One thread at a time may use it."""
    connection = sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    # FULL: fsync of the WAL in each transaction. NORMAL: only before checkpoints, never corrupt.
    connection.execute(f"PRAGMA synchronous={'FULL' if fsync else 'NORMAL'}")
    connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}").fetchall()
    connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES_KEPT}").fetchall()
    # Distributions build sqlite to zero deleted bytes: each freed page would be written to the WAL.
    connection.execute("PRAGMA secure_delete=OFF").fetchall()
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    return connection


def _look_into(path: Path) -> sqlite3.Connection:
    """Opens a connection that cannot write, and does not fold the WAL into the file when it is closed."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro",
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    return connection


class SmallReader:
    """Reads committed rows. Every call has its own snapshot and is short enough for the loop's thread.

    Every statement is fetched to its end: an open cursor would keep its snapshot, and later reads of
    the connection would not see newer transactions.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._connection = _look_into(path) if read_only else _connect(path, fsync=False)

    def namespace_id(self, name: str) -> int | None:
        """Returns the number of a namespace; None if it is not registered."""
        sql = "SELECT id FROM namespaces WHERE name=?"
        rows: list[tuple[int]] = self._connection.execute(sql, (name,)).fetchall()
        return rows[0][0] if rows else None

    def namespaces(self) -> list[str]:
        """Returns the names of all registered namespaces.

        Raises:
            TarnError: CORRUPT if a torn page leaves a row without a name.
        """
        rows = self._connection.execute("SELECT name FROM namespaces ORDER BY name").fetchall()
        names = [name for (name,) in rows]
        if not all(isinstance(name, str) for name in names):
            text = "the database of small blocks has a namespace whose name is not text: the file is damaged"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
        return names

    def read(self, namespace: int, path: str, start: int, length: int | None) -> bytes | None:
        """Returns the body, or the requested part clipped to its end; None if there is no such row."""
        sql = "SELECT body FROM blocks WHERE namespace=? AND path=?"
        rows: list[tuple[bytes]] = self._connection.execute(sql, (namespace, path)).fetchall()
        if not rows:
            return None
        body = rows[0][0]
        return body if start == 0 and length is None else body[start:][:length]

    def stat(self, namespace: int, path: str) -> BlockInfo | None:
        """Returns size and time without loading the body; None if there is no such row."""
        sql = "SELECT length(body), mtime_us FROM blocks WHERE namespace=? AND path=?"
        rows = self._connection.execute(sql, (namespace, path)).fetchall()
        return BlockInfo(path, *rows[0]) if rows else None

    def list(self, namespace: int, prefix: str, after: str, limit: int) -> list[BlockInfo]:
        """Like `BlockStore.list_page`, but only for rows. Paths compare as UTF-8 bytes."""
        sql = (
            "SELECT path, length(body), mtime_us FROM blocks"
            " WHERE namespace=? AND path>? AND path>=? ORDER BY path LIMIT ?"
        )
        rows = self._connection.execute(sql, (namespace, after, prefix, limit)).fetchall()
        # Paths with the prefix are adjacent, and the first of them is not below the prefix itself.
        return [BlockInfo(*row) for row in rows if row[0].startswith(prefix)]

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()


class SmallWriter:
    """Changes rows, inside transactions that the caller opens and ends under the writers' lock."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self._connection = _connect(path, fsync=fsync)

    def begin(self) -> None:
        """Opens a transaction."""
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Ends the transaction. It is durable on return if the store syncs."""
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Rolls back the open transaction, if there is one."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def register(self, name: str) -> int:
        """Returns the number of a namespace; assigns one if the namespace is new.

        Raises:
            NamespaceOverlapError: a registered namespace lies above or below it in the directory tree.
        """
        rows = self._connection.execute("SELECT id, name FROM namespaces").fetchall()
        for number, other in rows:
            if other == name:
                return int(number)
            if name.startswith(other + "/") or other.startswith(name + "/"):
                raise NamespaceOverlapError(name, other)
        cursor = self._connection.execute("INSERT INTO namespaces (name) VALUES (?)", (name,))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def has(self, namespace: int, path: str) -> bool:
        """Returns whether there is such a row, including rows of the open transaction."""
        sql = "SELECT 1 FROM blocks WHERE namespace=? AND path=?"
        return bool(self._connection.execute(sql, (namespace, path)).fetchall())

    def insert(self, rows: Sequence[Row]) -> set[int]:
        """Adds rows; returns the positions of rows whose path is taken.

        One statement carries many rows, because each statement releases the interpreter lock to the loop's
        thread and must reacquire it. Only a group with a taken path is repeated row by row.
        """
        taken: set[int] = set()
        start = 0
        while start < len(rows):
            # Powers of two: few distinct statements, which stay prepared.
            count = min(_INSERT_ROWS_MAX, 1 << ((len(rows) - start).bit_length() - 1))
            group = rows[start : start + count]
            if not self._insert_group(group):
                singles = enumerate(group, start)
                taken.update(at for at, row in singles if not self._insert_group([row]))
            start += count
        return taken

    def insert_alone(self, rows: Sequence[Row]) -> bool:
        """Adds rows outside of a transaction, if one statement can, which is a transaction of its own.

        False: nothing was added, because it takes several statements, or a path is taken; use `insert`.
        """
        count = len(rows)
        is_one = 0 < count <= _INSERT_ROWS_MAX and count.bit_count() == 1
        return is_one and self._insert_group(rows)

    def _insert_group(self, group: Sequence[Row]) -> bool:
        marks = ",".join(["(?,?,?,?)"] * len(group))
        sql = f"INSERT INTO blocks (namespace, path, mtime_us, body) VALUES {marks}"  # noqa: S608 - only marks
        try:
            self._connection.execute(sql, [value for row in group for value in row])
        except sqlite3.IntegrityError:
            return False  # the failed statement left nothing behind
        return True

    def delete(self, namespace: int, paths: Sequence[str]) -> None:
        """Removes rows. Absent rows are not an error. Later bodies reuse the pages."""
        for start in range(0, len(paths), _DELETE_PATHS_MAX):
            group = paths[start : start + _DELETE_PATHS_MAX]
            marks = ",".join("?" * len(group))
            sql = f"DELETE FROM blocks WHERE namespace=? AND path IN ({marks})"  # noqa: S608 - only marks
            self._connection.execute(sql, (namespace, *group))

    def close(self) -> None:
        """Closes the file. The last connection of all processes folds the WAL into it."""
        self._connection.close()
