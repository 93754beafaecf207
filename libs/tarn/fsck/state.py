"""The state of a check: one sqlite file, so that a check can be interrupted anywhere and continued.

No content of this file ever leads to a change of a store. The rule that makes continuing safe: a step is
marked as done in or after the transaction that holds its results, and repeating a step changes nothing.
Memory use stays small for any size of the installation, because everything that grows is in this file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tarn.core.errors import Kind, Reason, TarnError
from tarn.fsck.finding import Code, Finding, Severity

__all__ = ["State", "open_state"]

_APPLICATION_ID = 0x5441_4643  # "TAFC"
_VERSION = 2
_CACHE_KIB = 64 << 10
_PAGE = 1000
_CHANGES_MAX = 5000
"""Statements per transaction; a crash repeats at most these."""

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE steps (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE findings (
    code TEXT NOT NULL, repository TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL,
    size_bytes INTEGER NOT NULL, PRIMARY KEY (code, repository, subject)) STRICT, WITHOUT ROWID;
CREATE TABLE partitions (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
    token_id TEXT PRIMARY KEY, partition TEXT NOT NULL, uid TEXT NOT NULL, branch TEXT NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE refs (
    uid TEXT NOT NULL, name TEXT NOT NULL, commit_id TEXT NOT NULL, metarange_id TEXT NOT NULL,
    PRIMARY KEY (uid, name)) STRICT, WITHOUT ROWID;
CREATE TABLE commits (
    uid TEXT NOT NULL, commit_id TEXT NOT NULL, parents TEXT NOT NULL, metarange_id TEXT NOT NULL,
    generation INTEGER NOT NULL, create_time_us INTEGER NOT NULL, referrer TEXT NOT NULL,
    has_row INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0, reachable INTEGER NOT NULL DEFAULT 0,
    suspected INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (uid, commit_id)) STRICT, WITHOUT ROWID;
CREATE TABLE expired (
    uid TEXT NOT NULL, commit_id TEXT NOT NULL, PRIMARY KEY (uid, commit_id)) STRICT, WITHOUT ROWID;
CREATE TABLE metaranges (
    uid TEXT NOT NULL, metarange_id TEXT NOT NULL, referrer TEXT NOT NULL,
    whole INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (uid, metarange_id)) STRICT, WITHOUT ROWID;
CREATE TABLE ranges (
    uid TEXT NOT NULL, range_id TEXT NOT NULL, min_path TEXT NOT NULL, max_path TEXT NOT NULL,
    count INTEGER NOT NULL, size_bytes INTEGER NOT NULL, object_bytes INTEGER NOT NULL,
    metarange_id TEXT NOT NULL, contradicted_by TEXT NOT NULL DEFAULT '',
    whole INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (uid, range_id))
    STRICT, WITHOUT ROWID;
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    UNIQUE (uid, kind, name)) STRICT;
CREATE TABLE runs (
    uid TEXT NOT NULL, round INTEGER NOT NULL, run INTEGER NOT NULL, part INTEGER NOT NULL,
    last TEXT NOT NULL, rows BLOB NOT NULL, UNIQUE (uid, round, run, part)) STRICT;
CREATE TABLE suspects (
    uid TEXT NOT NULL, source INTEGER NOT NULL, block TEXT NOT NULL, size INTEGER NOT NULL,
    is_damaged INTEGER NOT NULL, PRIMARY KEY (uid, source, block)) STRICT, WITHOUT ROWID;
CREATE TABLE victims (
    uid TEXT NOT NULL, block TEXT NOT NULL, source INTEGER NOT NULL, code TEXT NOT NULL,
    path TEXT NOT NULL, detail TEXT NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (uid, block, source)) STRICT, WITHOUT ROWID;
CREATE TABLE orphans (
    uid TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (uid, path))
    STRICT, WITHOUT ROWID;
"""


def open_state(path: Path, scope: str, now_us: int) -> State:
    """Opens the state in a file, or creates it; restarts the check if the one in the file was finished.

    Args:
        path: the file; its folder must exist.
        scope: installation and options; an unfinished check of another scope is refused.
        now_us: start time of a new check, microseconds since the epoch.

    Raises:
        TarnError: INVALID: the path holds another file, or an unfinished check of another scope;
            CONFLICT:
            another process uses it; INTERNAL: it cannot be written.
    """
    try:
        connection = sqlite3.connect(path, timeout=1.0)
        try:
            return _opened(connection, path, scope, now_us)
        except BaseException:
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            text = f"another check uses the state file {path}; wait for its end, or choose another file"
            raise TarnError(Kind.CONFLICT, Reason.UNAVAILABLE, text) from error
        text = f"cannot use the state file {path}: {error}"
        raise TarnError(Kind.INTERNAL, Reason.INTERNAL, text) from error
    except sqlite3.DatabaseError as error:
        raise _not_ours(path) from error


def _opened(connection: sqlite3.Connection, path: Path, scope: str, now_us: int) -> State:
    connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    connection.execute("BEGIN EXCLUSIVE")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type='table'").fetchall()
    if tables and (application, version) != (_APPLICATION_ID, _VERSION):
        raise _not_ours(path)
    if tables:
        state = State(connection)
        if state.all("SELECT 1 FROM steps LIMIT 1") and not state.is_finished:
            if state.meta("scope") != scope:
                text = (
                    f"{path} holds an unfinished check of {state.meta('scope')}, not of {scope}; choose another file, "
                    "or discard it with --restart"
                )
                raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
            connection.commit()
            return state
        for (name,) in tables:
            connection.execute(f"DROP TABLE {name}")
    for statement in _TABLES.strip().split(";\n"):
        connection.execute(statement.rstrip(";"))
    connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={_VERSION}")
    state = State(connection)
    state.set_meta("scope", scope)
    state.set_meta("start_time_us", str(now_us))
    state.save()
    return state


def _not_ours(path: Path) -> TarnError:
    text = f"{path} exists and is not a state file of this version; choose another file"
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)


class State:
    """An open state; made by `open_state`. Calls are short and stay on the event loop's thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._changes = 0

    def close(self) -> None:
        """Saves the state and releases the file. Idempotent."""
        self.save()
        self._connection.close()

    # ---- statements

    def change(self, statement: str, *values: object) -> int:
        """Executes a change; returns how many rows it changed."""
        count = self._connection.execute(statement, values).rowcount
        self._changed(1)
        return count

    def change_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Executes a change for each row."""
        self._connection.executemany(statement, rows)
        self._changed(len(rows))

    def all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Returns a small result as a whole."""
        return self._connection.execute(query, values).fetchall()

    def count(self, query: str, *values: object) -> int:
        """Returns a result of one number."""
        found = self._connection.execute(query, values).fetchone()[0]
        return int(found or 0)

    def pages(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yields a large result, which may be changed meanwhile, in pages by its first column, which is
        unique.

        `query` must order by that column, a text, and require it to be greater than its last parameter.
        """
        after: object = ""
        while True:
            rows = self.all(f"{query} LIMIT {_PAGE}", *values, after)
            yield from rows
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def save(self) -> None:
        """Makes all changes so far durable."""
        self._connection.commit()
        self._changes = 0

    def _changed(self, count: int) -> None:
        self._changes += count
        if self._changes >= _CHANGES_MAX:
            self.save()

    # ---- finished steps

    def meta(self, name: str) -> str:
        """Returns a stored value; empty if there is none."""
        found = self.all("SELECT value FROM meta WHERE name=?", name)
        return str(found[0][0]) if found else ""

    def set_meta(self, name: str, value: str) -> None:
        """Stores a value."""
        self.change("INSERT OR REPLACE INTO meta VALUES (?, ?)", name, value)

    @property
    def start_time_us(self) -> int:
        """When the check began, however often it was interrupted; microseconds since the epoch."""
        return int(self.meta("start_time_us"))

    @property
    def is_finished(self) -> bool:
        """Whether the check has finished."""
        return bool(self.meta("finished"))

    def finish(self) -> None:
        """Marks the check as finished."""
        self.set_meta("finished", "yes")
        self.save()

    def is_done(self, step: str) -> bool:
        """Whether a step was done, by this process or an earlier one."""
        return bool(self.all("SELECT 1 FROM steps WHERE name=?", step))

    def done(self, step: str) -> None:
        """Marks a step as done; its results are saved with the mark."""
        self.change("INSERT OR IGNORE INTO steps VALUES (?)", step)
        self.save()

    # ---- findings

    def find(self, finding: Finding) -> None:
        """Stores a finding; the first one of a code and subject is kept."""
        self.change(
            "INSERT OR IGNORE INTO findings VALUES (?, ?, ?, ?, ?)",
            finding.code.label,
            finding.repository,
            finding.subject,
            finding.detail,
            finding.size_bytes,
        )

    def forget_findings(self, repository: str) -> None:
        """Deletes the findings of a repository that no longer exists."""
        self.change("DELETE FROM findings WHERE repository=?", repository)

    def findings(self, code: Code | None = None) -> Iterator[Finding]:
        """Yields all findings, the worst first; or those of one code."""
        for severity in Severity:
            for each in Code:
                if each.severity is severity and code in {None, each}:
                    yield from self._findings_of(each)

    def _findings_of(self, code: Code) -> Iterator[Finding]:
        cursor = self._connection.execute(
            "SELECT repository, subject, detail, size_bytes FROM findings WHERE code=?"
            " ORDER BY repository, subject",
            (code.label,),
        )
        for repository, subject, detail, size_bytes in cursor:
            yield Finding(code, repository, subject, detail, size_bytes)

    def totals(self) -> dict[Code, tuple[int, int]]:
        """Returns the number of findings of each code, and their bytes."""
        rows = self._connection.execute(
            "SELECT code, count(*), sum(size_bytes) FROM findings GROUP BY code"
        ).fetchall()
        return {Code.of(label): (count, size) for label, count, size in rows}
