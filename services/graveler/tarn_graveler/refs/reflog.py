"""Reads reflogs: their entries from the newest to the oldest, and the head of a branch at an earlier moment.

An entry is in the outbox of the branch record, or in a row, or in both for a while. The record is read first:
an entry leaves the outbox only after its row is durable, so the rows that are read afterwards hold every entry
that the outbox no longer holds. No read of this module needs the branch to exist.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tarn.core.branch import Branch
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.core.ids import BranchId, CommitId
from tarn.core.moments import At, Back, Moment, iso_time
from tarn.core.reflog import DeletionJudge
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Kv
from tarn.kv.records import Repository, decode_branch, decode_head_change
from tarn_graveler.records.reflog_rows import ReflogRows
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.refs.moment_cache import FoundEntries, MomentCache, Neighbours

__all__ = ["DeletedBranch", "Reflog", "ReflogPage"]


@dataclass(frozen=True, slots=True)
class ReflogPage:
    """Some entries of a reflog, newest first.

    Attributes:
        cursor: where the next page begins; empty if there is none.
    """

    entries: list[HeadChange]
    cursor: str


@dataclass(frozen=True, slots=True)
class DeletedBranch:
    """A branch that does not exist any more, and the entry of its deletion."""

    branch_id: BranchId
    deletion: HeadChange


class Reflog:
    """The reflogs of an installation.

    Args:
        clock_skew_seconds: how far in the future a moment may be, and still mean now.
    """

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        rows: ReflogRows,
        clock: Clock,
        clock_skew_seconds: float,
    ) -> None:
        self._kv = kv
        self._repositories = repositories
        self._rows = rows
        self._clock = clock
        self._skew_us = int(clock_skew_seconds * 1_000_000)
        self._moments = MomentCache(clock)
        self._moments = MomentCache(clock)

    # ---- entries

    async def page(
        self, repository: Repository, branch_id: BranchId, cursor: str, limit: int
    ) -> ReflogPage:
        """Returns up to `limit` entries, newest first; none for a name that no branch has had.

        Args:
            repository: the repository.
            branch_id: the branch; may be deleted.
            cursor: that of the previous page; empty for the first one.
            limit: greatest number of entries.
        """
        live = await self._live(repository, branch_id)
        found: list[HeadChange] = []
        async for entry in self._walk(repository, branch_id, live, cursor):
            if len(found) == limit:
                return ReflogPage(found, _cursor(found[-1]))
            found.append(entry)
        return ReflogPage(found, "")

    async def _live(self, repository: Repository, branch_id: BranchId) -> Branch | None:
        """Returns the record of a branch; None if it does not exist or is being created or deleted."""
        refs = self._repositories.keys_of(repository).refs
        keys = [RepositoryKeys.branch(branch_id), RepositoryKeys.CLOSED]
        found, closed = await self._kv.get_many(refs, keys)
        self._repositories.refuse_closed(repository, closed)
        branch = None if found is None else decode_branch(found.value)
        return None if branch is None or branch.is_deleted else branch

    async def _walk(
        self, repository: Repository, branch_id: BranchId, live: Branch | None, cursor: str = ""
    ) -> AsyncIterator[HeadChange]:
        """Yields the entries that count and are not expired, newest first, as of the read of `live`."""
        limits, oldest_us = self._rows.limits, self._oldest_us()
        after, last, since_us = _position(cursor)
        judge = DeletionJudge(None if live is None else live.incarnation, last, since_us)
        newest = 0 if live is None else live.head_sequence
        if live is None and cursor:
            keys = self._repositories.keys_of(repository)
            first = await self._rows.newest(keys, branch_id)
            newest = 0 if first is None else first.sequence
        async for entry in self._merged(repository, branch_id, live, after):
            if live is not None and entry.sequence > live.head_sequence:
                continue  # later than the read of the record, or a deletion that failed
            newest = newest or entry.sequence
            if entry.sequence <= newest - limits.entries_max or entry.time_us < oldest_us:
                return
            if judge.counts(entry):
                yield entry

    def _oldest_us(self) -> int:
        return self._clock.now_us() - self._rows.limits.retention_us

    async def _merged(
        self, repository: Repository, branch_id: BranchId, live: Branch | None, after: bytes
    ) -> AsyncIterator[HeadChange]:
        """Yields each entry of outbox and rows once, in the order of their keys."""
        keys = self._repositories.keys_of(repository)
        start = keys.reflog_rows(branch_id) + after + b"\0" if after else b""
        outbox = () if live is None else live.outbox
        keyed = sorted((keys.reflog_row(branch_id, entry), entry) for entry in outbox)
        waiting = deque(each for each in keyed if each[0] >= start)
        async for key, entry in self._rows.scan(keys, branch_id, start):
            while waiting and waiting[0][0] < key:
                yield waiting.popleft()[1]
            if waiting and waiting[0][0] == key:
                waiting.popleft()
            yield entry
        for _, entry in waiting:
            yield entry

    # ---- moments

    async def head_at(
        self, repository: Repository, branch_id: BranchId, moment: Moment, ref: str
    ) -> CommitId:
        """Returns the commit that was the head of a branch at a moment.

        Args:
            repository: the repository.
            branch_id: the branch; may be deleted.
            moment: a number of changes back, or a time.
            ref: the ref as its caller wrote it, for errors.

        Raises:
            TarnError: REF_NOT_FOUND: the branch did not exist then, or its head is not recorded; INVALID: the
                time is in the future.
        """
        if isinstance(moment, Back):
            return await self._before(repository, branch_id, moment.count, ref)
        now_us = self._clock.now_us()
        time_us = moment.time_us if isinstance(moment, At) else now_us - moment.age_us
        if time_us > now_us + self._skew_us:
            text = f"ref {ref} is in the future: it is {iso_time(now_us)} now"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, ref=ref)
        return await self._at(repository, branch_id, time_us, ref)

    async def _before(
        self, repository: Repository, branch_id: BranchId, count: int, ref: str
    ) -> CommitId:
        """The head before the last `count` changes."""
        live = await self._live(repository, branch_id)
        if count == 0:
            if live is None:
                raise await self._absent(repository, branch_id, ref)
            return live.commit_id
        known = self._moments.of(repository, branch_id, live)
        entry = known.numbered(count)
        if entry is None and (known.count is None or count <= known.count):
            entry = await self._numbered(repository, branch_id, live, count, known)
        if entry is None:
            if live is None and not known.count:
                raise await self._absent(repository, branch_id, ref)
            raise _not_found(ref, f"the reflog of branch {branch_id} has {known.count} entries")
        if entry.old_commit_id is None:
            raise _not_found(ref, f"{_created(branch_id, entry)}; it did not exist before")
        return entry.old_commit_id

    async def _numbered(
        self,
        repository: Repository,
        branch_id: BranchId,
        live: Branch | None,
        count: int,
        known: FoundEntries,
    ) -> HeadChange | None:
        """Returns the entry of the change with a number; None, and counts the entries, if there are fewer."""
        seen = 0
        async for entry in self._walk(repository, branch_id, live):
            seen += 1
            if seen == count:
                known.keep_numbered(count, entry)
                return entry
        known.count = seen
        return None

    async def _at(
        self, repository: Repository, branch_id: BranchId, time_us: int, ref: str
    ) -> CommitId:
        """The head at a time: the old head of the first change after it, or the present head if no change followed."""
        live = await self._live(repository, branch_id)
        if live is not None and 0 < live.head_time_us <= time_us:
            return live.commit_id
        known = self._moments.of(repository, branch_id, live)
        found = known.neighbours(time_us)
        if found is None:
            found = await self._neighbours(repository, branch_id, live, time_us)
            known.keep_neighbours(found)
        if found.older is not None:
            if found.older.is_deletion:
                raise _not_found(ref, _deleted(branch_id, found.older))
            assert found.older.new_commit_id is not None
            return found.older.new_commit_id
        change = found.newer
        if change is None:
            if live is None:
                raise await self._absent(repository, branch_id, ref)
            raise _not_found(ref, f"the reflog of branch {branch_id} has no entry")
        if change.old_commit_id is None:
            raise _not_found(ref, f"{_created(branch_id, change)}, later than that")
        if 0 < change.old_since_us <= time_us:
            return change.old_commit_id
        began = iso_time(change.old_since_us or change.time_us)
        raise _not_found(ref, f"the reflog of branch {branch_id} begins at {began}")

    async def _neighbours(
        self, repository: Repository, branch_id: BranchId, live: Branch | None, time_us: int
    ) -> Neighbours:
        newer: HeadChange | None = None
        async for entry in self._walk(repository, branch_id, live):
            if entry.time_us <= time_us:
                return Neighbours(entry, newer)
            newer = entry
        return Neighbours(None, newer)

    async def _absent(self, repository: Repository, branch_id: BranchId, ref: str) -> TarnError:
        """The error for a branch that does not exist now."""
        async for entry in self._walk(repository, branch_id, None):
            if entry.is_deletion:
                why = f"{_deleted(branch_id, entry)}; {branch_id}@{{1}} was its last head"
                return _not_found(ref, why)
            break
        refs = self._repositories.keys_of(repository).refs
        (tag,) = await self._kv.get_many(refs, [RepositoryKeys.tag(branch_id)])
        kind = "is a tag" if tag is not None else "is not a branch, and no reflog has this name"
        return _not_found(ref, f"{branch_id} {kind}; only branches have a reflog")

    # ---- deleted branches

    async def deletion(self, repository: Repository, branch_id: BranchId) -> HeadChange | None:
        """Returns the entry of the deletion of a branch; None if it exists, or its reflog is expired."""
        live = await self._live(repository, branch_id)
        if live is not None:
            return None
        async for entry in self._walk(repository, branch_id, None):
            return entry if entry.is_deletion else None
        return None

    async def deleted(
        self, repository: Repository, prefix: str, after: str, limit: int
    ) -> tuple[list[DeletedBranch], str]:
        """Returns branches that can be restored, and after which name the next page begins.

        Reads at most `limit` rows of the index, so a page may be short, or empty, although more pages follow.
        The second value is empty after the last page.
        """
        keys = self._repositories.keys_of(repository)
        begin = keys.DELETED + prefix.encode()
        start = keys.DELETED + after.encode() + b"0" if after else begin  # "0" follows "/"
        rows = await self._kv.scan(keys.reflog, max(start, begin), after_prefix(begin), limit)
        newest: dict[BranchId, HeadChange] = {}
        for key, value in rows:
            newest.setdefault(keys.deleted_branch(key), decode_head_change(value))
        names = list(newest)
        refs = [*(keys.branch(name) for name in names), keys.CLOSED]
        *records, closed = await self._kv.get_many(keys.refs, refs)
        self._repositories.refuse_closed(repository, closed)
        oldest_us = self._oldest_us()
        found = [
            DeletedBranch(name, newest[name])
            for name, record in zip(names, records, strict=True)
            if (record is None or decode_branch(record.value).is_deleted)
            and newest[name].time_us >= oldest_us
        ]
        return found, names[-1] if len(rows) == limit else ""


def _cursor(entry: HeadChange) -> str:
    row = RepositoryKeys.reflog_row("", entry)[len(RepositoryKeys.reflog_rows("")) :]
    return f"{row.decode()} {entry.incarnation.hex()} {entry.old_since_us}"


def _position(cursor: str) -> tuple[bytes, bytes | None, int]:
    """Returns the key of the last entry of the previous page, without its prefix, its incarnation, and since when its
    old head was the head (0 if unknown: a cursor of the last release)."""
    if not cursor:
        return b"", None, 0
    row, incarnation, *since = cursor.split(" ")
    return row.encode(), bytes.fromhex(incarnation), int(since[0]) if since else 0


def _not_found(ref: str, why: str) -> TarnError:
    text = f"ref {ref} names no commit: {why}"
    return TarnError(Kind.NOT_FOUND, Reason.REF_NOT_FOUND, text, ref=ref)


def _created(branch_id: BranchId, entry: HeadChange) -> str:
    return f"branch {branch_id} was created at {iso_time(entry.time_us)}"


def _deleted(branch_id: BranchId, entry: HeadChange) -> str:
    return f"branch {branch_id} was deleted at {iso_time(entry.time_us)}"
