"""The state of an import on the local disk, so that it goes on after an interruption, and holds no history in memory.

One SQLite file: what the dump says (commits, refs), and what was done (blocks that were copied, listings and commits
that were written). What was done is recorded after it is durable, so a crash repeats at most the last steps.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["CopiedBlock", "ImportState", "PeerRef", "WrittenListing"]

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refs (
  kind TEXT, name TEXT, peer_id TEXT NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commits (
  peer_id TEXT PRIMARY KEY, depth INTEGER NOT NULL, record BLOB NOT NULL, line TEXT,
  is_expired INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parents (
  child TEXT, place INTEGER, parent TEXT NOT NULL, PRIMARY KEY (child, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS wanted (peer_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS listings (
  peer_id TEXT PRIMARY KEY, metarange_id TEXT NOT NULL, gone INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blocks (
  address TEXT PRIMARY KEY, size INTEGER NOT NULL, block BLOB, md5 BLOB,
  is_gone INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
"""
_FIND_WANTED: Final = """
WITH RECURSIVE reached (peer_id) AS (
  SELECT peer_id FROM refs
  UNION SELECT parent FROM parents JOIN reached ON child = reached.peer_id)
INSERT OR IGNORE INTO wanted SELECT peer_id FROM reached
"""


@dataclass(frozen=True, slots=True)
class PeerRef:
    """A branch or tag of lakeFS; `kind` is `branch` or `tag`."""

    kind: str
    name: str
    peer_id: str


@dataclass(frozen=True, slots=True)
class CopiedBlock:
    """An object's bytes in Tarn.

    Attributes:
        address: of the block.
        size: bytes.
        md5: of the bytes.
        is_gone: lakeFS did not have the bytes any more, so there is no block at this address.
    """

    address: bytes
    size: int
    md5: bytes
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class WrittenListing:
    """A listing in Tarn, and how many of its objects are gone."""

    metarange_id: str
    gone: int


def _refused(text: str) -> TarnError:
    return TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)


class ImportState:
    """The state in a folder. Use it as a context manager; one process uses it at a time.

    Args:
        folder: is made if it does not exist.
        scope: what is imported from where to where; a state of another scope is refused.

    Raises:
        TarnError: FAILED_PRECONDITION: another process uses it, another user owns it, or it has another scope.
    """

    def __init__(self, folder: Path, scope: str) -> None:
        self.folder = folder
        self._lock = _locked(folder)
        try:
            self._db = sqlite3.connect(folder / "state.sqlite", isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
            if self.get("scope") not in ("", scope):
                text = f"{folder} holds the import of {self.get('scope')}; finish it, or name another folder by --work"
                raise _refused(text)
            self.set("scope", scope)
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._db.close()
        self._lock.close()

    def get(self, name: str) -> str:
        """Returns a fact about the import; empty if there is none."""
        row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def set(self, name: str, value: str) -> None:
        """Records a fact."""
        self._db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    # ---- the dump

    def clear_dump(self) -> None:
        """Forgets a dump that was read in part."""
        for table in ("refs", "commits", "parents", "wanted"):
            self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - a constant

    def add_refs(self, refs: Iterable[PeerRef]) -> None:
        """Adds branches or tags."""
        rows = [(each.kind, each.name, each.peer_id) for each in refs]
        with self._batch():
            self._db.executemany("INSERT OR REPLACE INTO refs VALUES (?, ?, ?)", rows)

    def add_commits(self, commits: Iterable[tuple[str, int, bytes, tuple[str, ...]]]) -> None:
        """Adds commits: id, generation, record, parents."""
        with self._batch():
            for peer_id, depth, record, parents in commits:
                values = (peer_id, depth, record)
                self._db.execute("INSERT OR REPLACE INTO commits VALUES (?, ?, ?, NULL, 0)", values)
                rows = [(peer_id, place, parent) for place, parent in enumerate(parents)]
                self._db.executemany("INSERT OR REPLACE INTO parents VALUES (?, ?, ?)", rows)

    def find_wanted(self) -> str:
        """Finds the commits to which a branch or tag leads; returns one that the dump lacks, or an empty text."""
        self._db.execute(_FIND_WANTED)
        row = self._db.execute(
            "SELECT peer_id FROM wanted WHERE peer_id NOT IN (SELECT peer_id FROM commits) LIMIT 1"
        ).fetchone()
        return "" if row is None else str(row[0])

    def refs(self, kind: str) -> list[PeerRef]:
        """Returns the branches or the tags."""
        rows = self._db.execute("SELECT * FROM refs WHERE kind = ? ORDER BY name", (kind,))
        return [PeerRef(*row) for row in rows]

    def count(self, *, done: bool = False) -> int:
        """Returns the number of wanted commits, or of those that are written."""
        more = " WHERE line IS NOT NULL" if done else ""
        query = f"SELECT count(*) FROM wanted JOIN commits USING (peer_id){more}"  # noqa: S608
        return int(self._db.execute(query).fetchone()[0])

    def pending(self) -> Iterator[bytes]:
        """Yields the records of the wanted commits that are not written, parents first.

        They may be written meanwhile.
        """
        after = (-1, "")
        while True:
            rows = self._db.execute(
                "SELECT depth, peer_id, record FROM wanted JOIN commits USING (peer_id) "
                "WHERE line IS NULL AND (depth, peer_id) > (?, ?) ORDER BY depth, peer_id LIMIT 100",
                after,
            ).fetchall()
            if not rows:
                return
            for depth, peer_id, record in rows:
                after = depth, peer_id
                yield record

    def record(self, peer_id: str) -> bytes:
        """Returns the record of a commit of the dump."""
        row = self._db.execute(
            "SELECT record FROM commits WHERE peer_id = ?", (peer_id,)
        ).fetchone()
        return bytes(row[0])

    # ---- what was done

    def line(self, peer_id: str) -> str | None:
        """Returns the line of a written commit (`tarn.core.dump`); None if it is not written."""
        row = self._db.execute("SELECT line FROM commits WHERE peer_id = ?", (peer_id,)).fetchone()
        return None if row is None else row[0]

    def set_line(self, peer_id: str, line: str, *, is_expired: bool) -> None:
        """Records that a commit is written, and whether objects of it are gone."""
        values = (line, is_expired, peer_id)
        self._db.execute("UPDATE commits SET line = ?, is_expired = ? WHERE peer_id = ?", values)

    def lines(self, *, of_expired: bool = False) -> Iterator[str]:
        """Yields the lines of all written commits, or of those of which objects are gone."""
        more = " AND is_expired" if of_expired else ""
        query = f"SELECT line FROM commits WHERE line IS NOT NULL{more}"  # noqa: S608 - a constant
        for (line,) in self._db.execute(query):
            yield line

    def ref_at(self, peer_id: str) -> PeerRef | None:
        """Returns a branch or tag at a commit, if there is one."""
        row = self._db.execute(
            "SELECT * FROM refs WHERE peer_id = ? LIMIT 1", (peer_id,)
        ).fetchone()
        return None if row is None else PeerRef(*row)

    def listing(self, peer_id: str) -> WrittenListing | None:
        """Returns Tarn's listing of a listing of lakeFS; None if it is not written."""
        row = self._db.execute(
            "SELECT metarange_id, gone FROM listings WHERE peer_id = ?", (peer_id,)
        ).fetchone()
        return None if row is None else WrittenListing(*row)

    def set_listing(self, peer_id: str, listing: WrittenListing) -> None:
        """Records that a listing is written."""
        values = (peer_id, listing.metarange_id, listing.gone)
        self._db.execute("INSERT OR REPLACE INTO listings VALUES (?, ?, ?)", values)

    def block(self, address: str) -> CopiedBlock | None:
        """Returns the copy of an address; None if it is not copied."""
        row = self._db.execute(
            "SELECT block, size, md5, is_gone FROM blocks WHERE address = ? AND block IS NOT NULL",
            (address,),
        ).fetchone()
        if row is None:
            return None
        block, size, md5, is_gone = row
        return CopiedBlock(block, size, md5, is_gone=bool(is_gone))

    def set_block(self, address: str, block: CopiedBlock) -> None:
        """Records that an address is copied, or gone."""
        values = (address, block.size, block.address, block.md5, block.is_gone)
        self._db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?)", values)

    def add_seen(self, sizes: Iterable[tuple[str, int]]) -> None:
        """Records addresses and sizes that a dry run finds."""
        with self._batch():
            self._db.executemany(
                "INSERT OR IGNORE INTO blocks VALUES (?, ?, NULL, NULL, 0)", list(sizes)
            )

    def blocks_seen(self) -> tuple[int, int]:
        """Returns the number and the bytes of the addresses that are copied or were found by a dry run."""
        count, size = self._db.execute("SELECT count(*), total(size) FROM blocks").fetchone()
        return int(count), int(size)

    def _batch(self) -> _Batch:
        return _Batch(self._db)


class _Batch:
    """A transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN")

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


def _locked(folder: Path) -> IO[bytes]:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if found.st_uid != os.geteuid() or folder.is_symlink():
            raise _refused(
                f"{folder} belongs to another user, or is a link; name another by --work"
            )
        lock = (folder / "lock").open("ab")
    except OSError as error:
        raise _refused(
            f"folder {folder} cannot be used: {error.strerror}; name another by --work"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise _refused(f"another process imports with {folder}; wait for its end") from error
    return lock
