"""Opens the file of the store: checks it, creates it if it is missing, and makes its connections.

All of this happens under the write lock, so several processes may start concurrently on a file that does
not exist yet.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.embedded import failures, sql
from tarn.kv.embedded.files import (
    WriteLock,
    check_filesystem,
    make_folder,
    sync_folder,
    unusable_error,
)

__all__ = ["Database", "connect_reader", "open_database"]


@dataclass(frozen=True, slots=True)
class Database:
    """An open store.

    Attributes:
        path: the file, with symbolic links resolved.
        lock: held during all work on `writer`.
        writer: the only connection of this store that writes; one thread at a time uses it.
        reader: connection of the event loop's thread.
        opening: number of this opening, durable and never issued twice. Versions of rows begin with it.
    """

    path: Path
    lock: WriteLock
    writer: sqlite3.Connection
    reader: sqlite3.Connection
    opening: int


def open_database(path: Path, durability: sql.Durability, *, alone: bool = False) -> Database:
    """Opens or creates the store. Blocks while another process writes.

    Args:
        path: the file.
        durability: see `open_embedded`.
        alone: open the store only if no other process has it open, and keep others out until it is closed.

    Raises:
        TarnError: FAILED_PRECONDITION: the folder cannot be used, the file belongs to another program or to
            a newer Tarn, or the store is open elsewhere and one of the two processes wants it alone.
            CORRUPT: the file is damaged. UNAVAILABLE: sqlite failed.
    """
    if sqlite3.sqlite_version_info < sql.SQLITE_VERSION_MIN:
        wanted = ".".join(map(str, sql.SQLITE_VERSION_MIN))
        raise unusable_error(
            path, f"sqlite {sqlite3.sqlite_version} is older than {wanted}; upgrade it"
        )
    path = path.resolve()
    try:
        make_folder(path.parent)
        check_filesystem(path.parent)
        if path.is_dir():
            raise unusable_error(path, "it is a folder")
        lock = WriteLock(path, alone=alone)
    except OSError as error:
        raise unusable_error(path, f"{error.strerror}: {error.filename}") from error
    try:
        with lock:
            return _open_locked(path, lock, durability)
    except OSError as error:
        lock.close()
        raise unusable_error(path, f"{error.strerror}: {error.filename}") from error
    except BaseException:
        lock.close()
        raise


def _open_locked(path: Path, lock: WriteLock, durability: sql.Durability) -> Database:
    created = _create_file(path)
    writer = _connect(path, "rw")
    try:
        if created or not _is_ready(writer, path):
            _create_tables(writer)
        else:
            for statement in (sql.CREATE_INDEX, *sql.COMPANIONS):
                writer.execute(statement)
        for pragma in sql.connection_pragmas("fsync"):
            writer.execute(pragma).fetchall()
        # Synced at every durability: an opening number must not be issued again after a power cut.
        opening = writer.execute(sql.TAKE_OPENING).fetchall()[0][0]
        for pragma in sql.connection_pragmas(durability):
            writer.execute(pragma).fetchall()
        if created:
            sync_folder(path.parent)
        return Database(path, lock, writer, connect_reader(path), opening)
    except sqlite3.Error as error:
        writer.close()
        raise _open_error(path, error) from error
    except BaseException:
        writer.close()
        raise


def _create_file(path: Path) -> bool:
    # sqlite would create the file with the umask's mode; its -wal and -shm files copy the mode of this
    # file. Never open an existing file here: closing the descriptor would drop the locks that another
    # connection of this process holds on the file.
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            raise unusable_error(
                path, "this process may not read and write it; change its mode"
            ) from None
        return False
    os.close(descriptor)
    return True


def _is_ready(writer: sqlite3.Connection, path: Path) -> bool:
    """Whether the tables exist. False for an empty file, left by an interrupted creation."""
    application = writer.execute("PRAGMA application_id").fetchall()[0][0]
    version = writer.execute("PRAGMA user_version").fetchall()[0][0]
    if application == sql.APPLICATION_ID:
        if version > sql.SCHEMA_VERSION:
            text = f"its schema {version} is newer than {sql.SCHEMA_VERSION}; use a newer Tarn"
            raise unusable_error(path, text)
        if version < 1:
            text = f"cannot open the store {path}: no release of Tarn wrote schema {version}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=str(path))
        return True
    if writer.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]:
        raise unusable_error(path, "it belongs to another program; choose another folder")
    return False


def _create_tables(writer: sqlite3.Connection) -> None:
    mode = writer.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
    if mode != "wal":
        raise sqlite3.OperationalError(f"sqlite refused a write-ahead log, journal mode is {mode}")
    writer.execute(sql.BEGIN_WRITE)
    for statement in sql.CREATE_TABLES:
        writer.execute(statement)
    writer.execute("COMMIT")


def connect_reader(path: Path) -> sqlite3.Connection:
    """Opens a connection that can neither write nor checkpoint the log when it is closed."""
    reader = _connect(path, "ro")
    reader.execute(f"PRAGMA cache_size = {-sql.CACHE_KIB}")
    reader.execute(f"PRAGMA busy_timeout = {sql.BUSY_TIMEOUT_MS}").fetchall()
    return reader


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # No mmap: an I/O error would arrive as a signal. The connection is opened in a helper thread and
    # used in another, so sqlite's thread check is off; one thread at a time uses each connection.
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=sql.BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
    )


def _open_error(path: Path, error: sqlite3.Error) -> TarnError:
    found = failures.read_error(error)
    text = f"cannot open the store {path}: {found.message}"
    return TarnError(found.kind, found.reason, text, path=str(path))
