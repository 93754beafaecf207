"""Branch records: cached reads, fresh reads, and compare-and-set.

There are two kinds of read, and the protocol is safe only if they are never confused. A *cached* read may
be seconds old; the only cost of a stale one is a retry. A *fresh* read is issued after its caller asked
for it. Callers may share it, but only those that asked before it was sent (`tarn.aio.batcher`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from tarn.aio.bounded_map import BoundedMap
from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.branch_expiry import BranchExpiry
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import UNATTRIBUTED, Cause, HeadChange, HeadOperation
from tarn.core.ids import (
    BranchId,
    CommitId,
    TokenId,
    parse_branch_id,
    parse_new_branch_id,
)
from tarn.core.reflog import (
    OUTBOX_MAX,
    begin_reflog,
    deletion_of,
    leave_outbox,
    note_head_change,
)
from tarn.core.value import hot_value
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import (
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    RowName,
    Versioned,
)
from tarn.kv.record_events import changing
from tarn.kv.records import (
    RefKind,
    Repository,
    decode_branch,
    encode_branch,
    is_pending_branch,
)
from tarn_graveler.records.expired import ExpiredCommits
from tarn_graveler.records.fresh_reads import FreshReads
from tarn_graveler.records.ref_names import RefNames
from tarn_graveler.records.reflog_rows import ReflogRows
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.records.settling import Attempts
from tarn_graveler.records.staging_events import StagingEvents

__all__ = [
    "CAS_TRIES",
    "BranchChange",
    "BranchName",
    "BranchVersion",
    "Branches",
    "branch_not_found",
    "changed_too_often",
]

CAS_TRIES = 32
"""Attempts of one change of a record; an attempt fails only if another change was made."""

_CREATION = Cause(HeadOperation.CREATE)
_DELETION = Cause(HeadOperation.DELETE)
_CACHE_SECONDS = 2.0
"""How long a record is taken for the one that this process has read."""
_CACHED_MAX = 10_000
_STAGING_BUCKETS = 4


@hot_value
class BranchName:
    """A branch as callers name it: whichever incarnation has the name. `BranchHandle` stays with one."""

    repository: Repository
    branch_id: BranchId


def branch_not_found(name: BranchName) -> TarnError:
    """Returns the error for a branch that does not exist."""
    repository_id = name.repository.repository_id
    text = f"branch {name.branch_id} does not exist in repository {repository_id}"
    metadata = {"repository": str(repository_id), "branch": str(name.branch_id)}
    return TarnError(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, text, **metadata)


def changed_too_often(branch_id: BranchId, under: str) -> TarnError:
    """Returns the error for a change that lost `CAS_TRIES` races; `under` names the change."""
    text = f"branch {branch_id} changed {CAS_TRIES} times during {under}; try again"
    return TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


def _was_restored(name: BranchName) -> TarnError:
    text = (
        f"branch {name.branch_id} was created again and deleted during its restore; its last head is another one "
        "now. Restore it again"
    )
    return TarnError(Kind.CONFLICT, Reason.REF_MOVED, text, branch=name.branch_id)


@hot_value
class BranchVersion:
    """A branch record and the predicate of this version of it."""

    branch: Branch
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class BranchChange:
    """A confirmed change of a record.

    Attributes:
        before: the record that it replaced.
        written: the record that it wrote, as the branch had it for a moment.
        newest: the newest record that is known: `written`, or a *later* one if the answer was lost and a read settled
            it. Other operations may have undone in it whatever this change did (`BranchHandle.change`).
    """

    before: Branch
    written: Branch
    newest: BranchVersion


_Outcome = TypeVar("_Outcome", bound="BranchChange | BranchVersion | None")


KeptBranch = tuple[Branch, Partition, RowName, Predicate]
"""A cached record, the partition of its staging token, the row of the record, and the version of that row."""


@dataclass(slots=True)
class _Known:
    """A cached branch: its newest record, the record's bytes, and the time of the last read.

    Attributes:
        predicate: of this version of the record.
        read_at: monotonic seconds; updated by each read that finds the same bytes, as most do.
        rows: the row of the record, and the partition of its staging token; None until they are needed.
    """

    value: bytes
    branch: Branch
    predicate: Predicate
    read_at: float
    rows: tuple[RowName, Partition] | None = None


class Branches:
    """Reads and changes branch records.

    Attributes:
        events: told of every confirmed change, and by writers of every acknowledged row.
        reads_at_once: whether a fresh read of a record takes no time, so that nothing is gained by another read at the
            same time.
    """

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        clock: Clock,
        ids: IdSource,
        reads: FreshReads,
        names: RefNames,
        reflog: ReflogRows,
        expired: ExpiredCommits,
        events: StagingEvents | None = None,
    ) -> None:
        self._expired = expired
        self.events = events or StagingEvents(ids, clock)
        self._kv = kv
        self._names = names
        self._reflog = reflog
        self._repositories = repositories
        self._clock = clock
        self._now = clock.monotonic
        self._ids = ids
        # By repository instance and branch.
        # Not a `TtlCache`: `accept` still compares a record that is too old to be used with the one that was read.
        self._known: BoundedMap[tuple[str, str], _Known] = BoundedMap(_CACHED_MAX)
        self._reads = reads
        self.reads_at_once = reads.are_at_once

    def new_token(self, kind: TokenKind = TokenKind.PLAIN) -> Token:
        """Returns a token that has no rows yet."""
        token_id = TokenId(self._ids.uuid7().hex())
        return Token(token_id, kind, _STAGING_BUCKETS, self._clock.now_us())

    def new_op_id(self) -> bytes:
        """Returns the id of one attempt at a change of a record."""
        return self._ids.nonce()

    # ---- reading

    def cached(self, name: BranchName) -> Branch | None:
        """Returns the record as it was at most two seconds ago; None if this process has not read it since."""
        known = self._known.get((name.repository.instance_uid, name.branch_id))
        if known is None or self._clock.monotonic() - known.read_at >= _CACHE_SECONDS:
            return None
        return known.branch

    def begin_fresh(self, name: BranchName) -> asyncio.Future[Versioned | None]:
        """Requests a fresh read of the record; pass its result to `accept`."""
        return self._reads.begin(*self._row(name))

    async def fresh(self, name: BranchName) -> BranchVersion:
        """Returns the record, by a read issued after this call.

        Raises:
            TarnError: BRANCH_NOT_FOUND, also when its repository is being deleted.
        """
        if self.reads_at_once:
            known = self._known.get((name.repository.instance_uid, name.branch_id))
            row = self._row(name) if known is None else self._rows(name, known)[0]
            (found,) = self._reads.at_once(row) or await self._reads.together(row)
        else:
            found = await self.begin_fresh(name)
        return self.accept(name, found)

    async def at_once(
        self, place: tuple[str, str], key: bytes, begin: float = -inf
    ) -> tuple[Branch, Versioned | None] | None:
        """Returns the record, and the row of a key in its staging token, both as of one moment of this call; only if
        `reads_at_once`. None if the record is not the one that this process knows.

        Args:
            place: instance of the repository, and branch.
            key: of the row.
            begin: if nothing has resolved the name: monotonic seconds of now. Then this process must have read the
                record within `_CACHE_SECONDS` before.

        Raises:
            TarnError: errors of the store.
        """
        known = self._known.get(place)
        if known is None or known.rows is None or known.read_at <= begin - _CACHE_SECONDS:
            return None
        record, token = known.rows
        row_name = token, key
        found, row = self._reads.at_once(record, row_name) or await self._reads.together(
            record, row_name
        )
        if found is None or found.value != known.value:
            return None
        known.read_at = self._now()
        return known.branch, row

    def staging_partition(self, name: BranchName, branch: Branch) -> Partition:
        """Returns the partition of the staging token of a record."""
        known = self._known.get((name.repository.instance_uid, name.branch_id))
        if known is not None and known.branch is branch:
            return self._rows(name, known)[1]
        return self._repositories.keys_of(name.repository).token(name.branch_id, branch.staging)

    def kept(self, name: BranchName) -> KeptBranch | None:
        """Returns the record, as `cached`, its version and where its rows are."""
        known = self._known.get((name.repository.instance_uid, name.branch_id))
        if known is None or self._now() - known.read_at >= _CACHE_SECONDS:
            return None
        record, token = known.rows or self._rows(name, known)
        return known.branch, token, record, known.predicate

    def _rows(self, name: BranchName, known: _Known) -> tuple[RowName, Partition]:
        """Returns `_Known.rows`."""
        rows = known.rows
        if rows is None:
            keys = self._repositories.keys_of(name.repository)
            token = keys.token(name.branch_id, known.branch.staging)
            rows = known.rows = self._row(name), token
        return rows

    def _row(self, name: BranchName) -> RowName:
        keys = self._repositories.keys_of(name.repository)
        return keys.refs, RepositoryKeys.branch(name.branch_id)

    def accept(self, name: BranchName, found: Versioned | None) -> BranchVersion:
        """Decodes and caches the record that a fresh read found.

        Raises:
            TarnError: as `fresh`.
        """
        place = (name.repository.instance_uid, name.branch_id)
        if found is None:
            self._known.pop(place)
            raise branch_not_found(name)
        known = self._known.get(place)
        if known is not None and known.value == found.value:
            known.read_at = self._clock.monotonic()
            known.predicate = found.predicate
            return BranchVersion(known.branch, found.predicate)
        branch = decode_branch(found.value)
        if branch.is_deleted:
            self._known.pop(place)
            self._repositories.forget(name.repository.repository_id)
            raise branch_not_found(name)
        version = BranchVersion(branch, found.predicate)
        self._keep(place, found.value, version)
        return version

    def _keep(self, place: tuple[str, str], value: bytes, version: BranchVersion) -> None:
        known = _Known(value, version.branch, version.predicate, self._clock.monotonic())
        self._known.put(place, known)

    # ---- changing

    async def create(
        self,
        name: BranchName,
        commit_id: CommitId,
        cause: Cause = _CREATION,
        *,
        undone: HeadChange | None = None,
        create_time_us: int = 0,
        continues: bool = False,
        expiry: BranchExpiry | None = None,
    ) -> Branch:
        """Creates a branch at a commit, in constant time.

        Args:
            name: the new branch.
            commit_id: its head.
            cause: who creates it, and how.
            undone: the deletion that a restore undoes. If the name has had another branch since, its last head is
                another one, and the creation is refused.
            create_time_us: time to record; 0 for now. With another time the branch comes from a dump, where it had this
                head, so the commit may be expired.
            continues: as `begin_reflog`.
            expiry: its end, which is registered already (`BranchExpiring.register`).

        Raises:
            TarnError: BRANCH_EXISTS, TAG_EXISTS; REF_MOVED; EXPIRED_COMMIT; OUTCOME_UNKNOWN.
        """
        now_us, entry_id = self._clock.now_us(), self.new_op_id()
        begin_us = create_time_us or now_us
        token = self.new_token()
        bare = Branch(b"", token, (), commit_id, create_time_us=begin_us, expiry=expiry)
        newest: HeadChange | None = None

        def made(nonce: bytes) -> Branch:
            branch = replace(bare, incarnation=nonce)
            return begin_reflog(
                branch, cause, newest, entry_id=entry_id, now_us=now_us, continues=continues
            )

        def encode(nonce: bytes, is_pending: bool) -> bytes:
            return encode_branch(made(nonce), is_pending=is_pending)

        async def before_live() -> None:
            if not create_time_us:
                # Under the pending record, which is a root (rule 14).
                await self._expired.refuse(name.repository, [commit_id])
            # Read under the pending record: no earlier branch of this name can change any more.
            nonlocal newest
            newest = await self._reflog.newest(
                self._repositories.keys_of(name.repository), name.branch_id
            )
            if undone is not None and newest is not None and newest.sequence > undone.sequence:
                raise _was_restored(name)

        # A dump and a deleted branch may have names of older releases.
        is_new = not create_time_us and undone is None
        parse = parse_new_branch_id if is_new else parse_branch_id
        branch_id = parse(name.branch_id)
        nonce = await self._names.create(
            name.repository, RefKind.BRANCH, branch_id, encode, before_live
        )
        return made(nonce)

    async def compare_and_set(
        self,
        name: BranchName,
        before: BranchVersion,
        after: Branch,
        attempts: Attempts,
        cause: Cause = UNATTRIBUTED,
    ) -> BranchChange | BranchVersion | None:
        """Makes one attempt at a change; settles it if its answer is lost (rule 8).

        If the change moves the head, it adds an entry of the reflog to the record (rule 12).

        Args:
            name: branch to change.
            before: the record that the attempt replaces.
            after: the new record; carries a new operation id in front of `recent_op_ids`.
            cause: who moves the head, and how.
            attempts: the earlier attempts of the same change; this attempt is added if its answer is
                lost.

        Returns:
            The confirmed change, also if an earlier attempt was applied (no other one can be applied any
            more, because the record has changed); or the existing record, without the change; or None
            if the branch does not exist any more.

        Raises:
            OutcomeUnknownError: it can no longer be determined whether the change was made.
            TarnError: UNAVAILABLE: no attempt made the change.
        """
        partition = self._repositories.keys_of(name.repository).refs
        key = RepositoryKeys.branch(name.branch_id)
        after = note_head_change(before.branch, after, cause, now_us=self._clock.now_us())
        if len(after.outbox) > OUTBOX_MAX:
            with attempts.unknown_if_pending():
                after = leave_outbox(after, await self.write_reflog(name, before.branch))
        value = encode_branch(after)
        try:
            with attempts.unknown_if_pending(), changing(before.branch):
                predicate = await self._kv.set_if(partition, key, value, before.predicate)
        except PredicateFailedError as error:
            return self._told(name, self._judge(attempts, error.current))
        except OutcomeUnknownError:
            return self._told(name, await self._settle(name, before, after, attempts))
        version = BranchVersion(after, predicate)
        self._keep((name.repository.instance_uid, name.branch_id), value, version)
        return self._told(name, BranchChange(before.branch, after, version))

    def _told(self, name: BranchName, outcome: _Outcome) -> _Outcome:
        """Counts a confirmed change, and returns the outcome."""
        if isinstance(outcome, BranchChange):
            repository_id = name.repository.repository_id
            self.events.changed(repository_id, name.branch_id, outcome.before, outcome.written)
        return outcome

    async def _settle(
        self,
        name: BranchName,
        before: BranchVersion,
        after: Branch,
        attempts: Attempts,
    ) -> BranchChange | BranchVersion | None:
        """Decides an attempt whose answer was lost, as far as a read can."""
        attempts.add(before.branch, after)
        partition = self._repositories.keys_of(name.repository).refs
        with attempts.unknown_if_pending():  # a failed read says nothing about the change
            (found,) = await self._kv.get_many(
                partition, [RepositoryKeys.branch(name.branch_id)], settle=True
            )
        return self._judge(attempts, found)

    @staticmethod
    def _judge(attempts: Attempts, found: Versioned | None) -> BranchChange | BranchVersion | None:
        if found is None:
            if attempts.is_pending:
                raise OutcomeUnknownError(
                    "cannot settle a change of a branch, because the branch was deleted since"
                )
            return None
        version = BranchVersion(decode_branch(found.value), found.predicate)
        applied = attempts.judge(version.branch)
        if applied is not None:
            return BranchChange(*applied, newest=version)
        return None if version.branch.is_deleted else version

    async def write_reflog(self, name: BranchName, branch: Branch) -> frozenset[bytes]:
        """Makes the rows of a record's outbox durable; returns the ids of the entries.

        Raises:
            TarnError: UNAVAILABLE.
        """
        keys = self._repositories.keys_of(name.repository)
        await self._reflog.write(keys, name.branch_id, branch.outbox)
        return frozenset(entry.entry_id for entry in branch.outbox)

    async def delete(
        self,
        name: BranchName,
        announce: Callable[[Sequence[Token]], Awaitable[None]],
        cause: Cause = _DELETION,
        judge: Callable[[Branch], None] = lambda _: None,
    ) -> Branch:
        """Removes the record; returns its last version. A branch that takes over the name meanwhile stays.

        Args:
            name: branch to delete.
            announce: puts the tokens of the record on the drop list (rule 5); called before each attempt.
                If it raises, nothing is removed.
            cause: who deletes the branch.
            judge: called with each version that an attempt would remove; raises if that one must stay.

        Raises:
            TarnError: BRANCH_NOT_FOUND; errors of `announce` and `judge`; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """
        partition = self._repositories.keys_of(name.repository).refs
        key = RepositoryKeys.branch(name.branch_id)
        current = await self.fresh(name)
        incarnation = current.branch.incarnation
        for _ in range(CAS_TRIES):
            if current.branch.incarnation != incarnation:
                raise branch_not_found(name)
            judge(current.branch)
            await announce(current.branch.tokens)
            # The outbox goes with the record, so all entries become rows first (rule 12).
            gone = deletion_of(
                current.branch, cause, entry_id=self.new_op_id(), now_us=self._clock.now_us()
            )
            keys, entries = self._repositories.keys_of(name.repository), current.branch.outbox
            await self._reflog.write(keys, name.branch_id, (*entries, gone))
            try:
                with changing(None, gone.entry_id):
                    await self._kv.delete_if(partition, key, current.predicate)
            except PredicateFailedError as error:
                current = self.accept(name, error.current)
                continue
            self._known.pop((name.repository.instance_uid, name.branch_id))
            self.events.removed(name.repository.repository_id, name.branch_id, current.branch)
            return current.branch
        raise changed_too_often(name.branch_id, "its deletion")

    async def mark_deleted(self, name: BranchName) -> Branch:
        """Marks a branch as deleted together with its repository: it accepts no more writes or reads.

        May be repeated. Returns the record, with the tokens to drop.
        """
        partition = self._repositories.keys_of(name.repository).refs
        key = RepositoryKeys.branch(name.branch_id)
        for _ in range(CAS_TRIES):
            (found,) = await self._kv.get_many(partition, [key], settle=True)
            if found is None:
                raise branch_not_found(name)
            branch = decode_branch(found.value)
            # A branch that is being created is marked, too; otherwise it could go live after this.
            if branch.is_deleted and not is_pending_branch(found.value):
                return branch
            marked = replace(branch, is_deleted=True)
            try:
                await self._kv.set_if(partition, key, encode_branch(marked), found.predicate)
            except PredicateFailedError:
                continue
            self._known.pop((name.repository.instance_uid, name.branch_id))
            self.events.removed(name.repository.repository_id, name.branch_id, marked)
            return marked
        raise changed_too_often(name.branch_id, "its deletion")
