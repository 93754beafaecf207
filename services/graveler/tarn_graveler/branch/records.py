"""Branch records: cached reads, fresh reads, and compare-and-set.

There are two kinds of read, and the protocol is safe only if they are never confused. A *cached* read may
be seconds old; the only cost of a stale one is a retry. A *fresh* read is issued after its caller asked
for it. Callers may share it, but only those that asked before it was sent (`tarn.aio.batcher`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tarn.aio.batcher import Batcher
from tarn.aio.bounded_map import BoundedMap
from tarn.aio.task_set import TaskSet
from tarn.core.branch import Branch, Settled, Token, TokenKind, seal, settle
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, TokenId, parse_branch_id
from tarn.core.value import hot_value
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import (
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    Versioned,
)
from tarn.kv.records import (
    RefKind,
    Repository,
    decode_branch,
    encode_branch,
    is_pending_branch,
)
from tarn_graveler.history.ref_names import RefNames
from tarn_graveler.repository.records import Repositories

__all__ = ["Attempts", "BranchChange", "BranchVersion", "Branches", "branch_not_found"]

_CACHE_SECONDS = 2.0
_CACHED_MAX = 10_000
_CAS_TRIES = 32
_STAGING_BUCKETS = 4
_SEALED_LIMIT = 32
"""Greatest number of sealed tokens, each a layer for every read; beyond it, only a commit that can build
seals.
"""


def branch_not_found(repository: Repository, branch_id: str) -> TarnError:
    """Returns the error for a branch that does not exist."""
    text = f"branch {branch_id} does not exist in repository {repository.repository_id}"
    metadata = {"repository": str(repository.repository_id), "branch": branch_id}
    return TarnError(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, text, **metadata)


def _changed_too_often(branch_id: str, under: str) -> TarnError:
    text = f"branch {branch_id} changed {_CAS_TRIES} times during {under}; try again"
    return TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


@hot_value
class BranchVersion:
    """A branch record and the predicate of this version of it."""

    branch: Branch
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class BranchChange:
    """A confirmed change: the record before it and the record after it."""

    before: Branch
    after: BranchVersion


class Attempts:
    """The attempts of one change of a branch record whose answers were lost (rule 8).

    An attempt is *pending* while the record is still the one that it expects: it was not applied, but its
    request may wait in a queue and be applied at any time, even after a settling read. It is decided as
    soon as the record has changed. Until then, no failure of a later step may claim that nothing was
    done.
    """

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[tuple[Branch, bytes]] = []

    @property
    def is_pending(self) -> bool:
        """Whether an attempt may still be applied, or may have been applied without a trace."""
        return bool(self._pending)

    def add(self, base: Branch, op_id: bytes) -> None:
        """Adds an attempt whose answer was lost."""
        self._pending.append((base, op_id))

    def judge(self, current: Branch) -> Branch | None:
        """Decides the attempts by a record that was read after they were sent.

        Returns:
            The record that an attempt was applied to; None if none was applied so far.

        Raises:
            OutcomeUnknownError: the record no longer shows whether an attempt was applied.
        """
        pending, self._pending = self._pending, []
        for base, op_id in pending:
            match settle(base, op_id, current):
                case Settled.APPLIED:
                    self._pending = []
                    return base
                case Settled.PENDING:
                    self._pending.append((base, op_id))
                case Settled.UNDECIDABLE:
                    raise OutcomeUnknownError(
                        "cannot settle a change of a branch: too many changes followed it"
                    )
                case Settled.NOT_APPLIED:
                    pass
        return None

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turns every failure into an unknown outcome while an attempt is pending.

        A failed predicate passes through: the record that it carries decides the attempts.
        """
        try:
            yield
        except (OutcomeUnknownError, PredicateFailedError):
            raise
        except TarnError as error:
            if not self._pending:
                raise
            text = f"an earlier attempt may still be applied; a later step failed: {error.message}"
            raise OutcomeUnknownError(text) from error


@dataclass(slots=True)
class _Known:
    """A cached branch: its newest record, the record's bytes, and the time of the last read.

    Attributes:
        read_at: monotonic seconds; updated by each read that finds the same bytes, as most do.
    """

    value: bytes
    branch: Branch
    read_at: float


class Branches:
    """Reads and changes branch records."""

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        clock: Clock,
        ids: IdSource,
        tasks: TaskSet,
        names: RefNames,
    ) -> None:
        self._kv = kv
        self._names = names
        self._repositories = repositories
        self._clock = clock
        self._ids = ids
        # By repository instance and branch.
        # Not a `TtlCache`: what is too old to be used is still compared with what was read (`_accept`).
        self._known: BoundedMap[tuple[str, str], _Known] = BoundedMap(_CACHED_MAX)
        self._reads = Batcher[Partition, bytes, Versioned | None](self._read_together, tasks)

    async def _read_together(
        self, partition: Partition, keys: Sequence[bytes]
    ) -> Sequence[Versioned | None]:
        wanted = list(dict.fromkeys(keys))
        found = dict(zip(wanted, await self._kv.get_many(partition, wanted), strict=True))
        return [found[key] for key in keys]

    def new_token(self, kind: TokenKind = TokenKind.PLAIN) -> Token:
        """Returns a token that has no rows yet."""
        token_id = TokenId(self._ids.uuid7().hex())
        return Token(token_id, kind, _STAGING_BUCKETS, self._clock.now_us())

    # ---- reading

    def cached(self, repository: Repository, branch_id: str) -> Branch | None:
        """Returns the record as it was at most two seconds ago; None if this process has not read it since."""
        known = self._known.get((repository.instance_uid, branch_id))
        if known is None or self._clock.monotonic() - known.read_at >= _CACHE_SECONDS:
            return None
        return known.branch

    def begin_fresh(
        self, repository: Repository, branch_id: str
    ) -> asyncio.Future[Versioned | None]:
        """Requests a fresh read of the record; pass the future to `end_fresh`."""
        partition = self._repositories.keys_of(repository).refs
        return self._reads.submit(partition, RepositoryKeys.branch(branch_id))

    async def end_fresh(
        self, repository: Repository, branch_id: str, read: asyncio.Future[Versioned | None]
    ) -> BranchVersion:
        """Waits for a fresh read.

        Raises:
            TarnError: BRANCH_NOT_FOUND, also when its repository is being deleted.
        """
        return self._accept(repository, branch_id, await read)

    async def fresh(self, repository: Repository, branch_id: str) -> BranchVersion:
        """Returns the record, by a read issued after this call."""
        return await self.end_fresh(repository, branch_id, self.begin_fresh(repository, branch_id))

    def _accept(
        self, repository: Repository, branch_id: str, found: Versioned | None
    ) -> BranchVersion:
        place = (repository.instance_uid, branch_id)
        if found is None:
            self._known.pop(place)
            raise branch_not_found(repository, branch_id)
        known = self._known.get(place)
        if known is not None and known.value == found.value:
            known.read_at = self._clock.monotonic()
            return BranchVersion(known.branch, found.predicate)
        branch = decode_branch(found.value)
        if branch.is_deleted:
            self._known.pop(place)
            self._repositories.forget(repository.repository_id)
            raise branch_not_found(repository, branch_id)
        self._keep(place, found.value, branch)
        return BranchVersion(branch, found.predicate)

    def _keep(self, place: tuple[str, str], value: bytes, branch: Branch) -> None:
        self._known.put(place, _Known(value, branch, self._clock.monotonic()))

    async def page(
        self, repository: Repository, prefix: str, after: str, limit: int
    ) -> list[tuple[BranchId, Branch]]:
        """Returns up to `limit` branches in byte order of their names.

        Includes branches that are being created or deleted (`is_deleted`), because paging counts them.
        """
        start = RepositoryKeys.branch(after + "\0" if after >= prefix and after else prefix)
        end = after_prefix(RepositoryKeys.branch(prefix))
        rows = await self._kv.scan(self._repositories.keys_of(repository).refs, start, end, limit)
        skip = len(RepositoryKeys.branch(""))
        return [(BranchId(key[skip:].decode()), decode_branch(value)) for key, value in rows]

    # ---- changing

    async def create(
        self, repository: Repository, branch_id: BranchId, commit_id: CommitId
    ) -> Branch:
        """Creates a branch at a commit, in constant time.

        Raises:
            TarnError: BRANCH_EXISTS, TAG_EXISTS; OUTCOME_UNKNOWN.
        """
        branch = Branch(
            incarnation=b"",
            staging=self.new_token(),
            sealed=(),
            commit_id=commit_id,
            create_time_us=self._clock.now_us(),
        )

        def encode(nonce: bytes, is_pending: bool) -> bytes:
            return encode_branch(replace(branch, incarnation=nonce), is_pending=is_pending)

        name = parse_branch_id(branch_id)
        nonce = await self._names.create(repository, RefKind.BRANCH, name, encode)
        return replace(branch, incarnation=nonce)

    async def compare_and_set(
        self,
        repository: Repository,
        branch_id: str,
        before: BranchVersion,
        after: Branch,
        attempts: Attempts,
    ) -> BranchChange | BranchVersion | None:
        """Makes one attempt at a change; settles it if its answer is lost (rule 8).

        Args:
            repository: repository of the branch.
            branch_id: branch to change.
            before: the record that the attempt replaces.
            after: the new record; carries a new operation id in front of `recent_op_ids`.
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
        partition = self._repositories.keys_of(repository).refs
        key = RepositoryKeys.branch(branch_id)
        value = encode_branch(after)
        try:
            with attempts.told():
                predicate = await self._kv.set_if(partition, key, value, before.predicate)
        except PredicateFailedError as error:
            return self._judge(attempts, error.current)
        except OutcomeUnknownError:
            return await self._settle(repository, branch_id, before, after, attempts)
        self._keep((repository.instance_uid, branch_id), value, after)
        return BranchChange(before.branch, BranchVersion(after, predicate))

    async def _settle(
        self,
        repository: Repository,
        branch_id: str,
        before: BranchVersion,
        after: Branch,
        attempts: Attempts,
    ) -> BranchChange | BranchVersion | None:
        """Decides an attempt whose answer was lost, as far as a read can."""
        attempts.add(before.branch, after.recent_op_ids[0])
        partition = self._repositories.keys_of(repository).refs
        with attempts.told():  # a failed read says nothing about the change
            (found,) = await self._kv.get_many(
                partition, [RepositoryKeys.branch(branch_id)], settle=True
            )
        return self._judge(attempts, found)

    @staticmethod
    def _judge(attempts: Attempts, found: Versioned | None) -> BranchChange | BranchVersion | None:
        if found is None:
            if attempts.is_pending:
                raise OutcomeUnknownError(
                    "cannot settle a change of a branch: it has been deleted since"
                )
            return None
        version = BranchVersion(decode_branch(found.value), found.predicate)
        base = attempts.judge(version.branch)
        if base is not None:
            return BranchChange(base, version)
        return None if version.branch.is_deleted else version

    async def change(
        self,
        repository: Repository,
        branch_id: str,
        decide: Callable[[Branch, bytes], Branch],
    ) -> BranchChange:
        """Applies a decision to the record, and repeats until it was applied to the newest one.

        Args:
            repository: repository of the branch.
            branch_id: branch to change.
            decide: takes the current record and an id of this attempt; returns the next record, or the
                current one itself when there is nothing to change. Tokens that it adds must be new in
                each call (`new_token`).

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """
        attempts = Attempts()
        current = await self.fresh(repository, branch_id)
        for _ in range(_CAS_TRIES):
            after = decide(current.branch, self._ids.nonce())
            if after is current.branch:
                return BranchChange(after, current)
            outcome = await self.compare_and_set(repository, branch_id, current, after, attempts)
            if isinstance(outcome, BranchChange):
                return outcome
            if outcome is None:
                raise branch_not_found(repository, branch_id)
            current = outcome
        with attempts.told():
            raise _changed_too_often(branch_id, "one change")

    async def seal(
        self,
        repository: Repository,
        branch_id: str,
        kind: TokenKind,
        *,
        unless: Callable[[Branch], bool],
    ) -> Branch:
        """Gives a branch a new staging token of a kind, unless its record already fits.

        Returns:
            The confirmed record.

        Raises:
            TarnError: UNAVAILABLE when there are so many sealed tokens that commits must have been
                failing for some time; BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """

        def decide(now: Branch, op_id: bytes) -> Branch:
            if unless(now):
                return now
            if len(now.sealed) >= _SEALED_LIMIT:
                text = (
                    f"branch {branch_id} has {len(now.sealed)} sealed tokens: its commits fail, and "
                    "one must succeed before it can be sealed again"
                )
                raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
            return seal(now, self.new_token(kind), op_id)

        return (await self.change(repository, branch_id, decide)).after.branch

    async def delete(
        self,
        repository: Repository,
        branch_id: str,
        announce: Callable[[Sequence[Token]], Awaitable[None]],
    ) -> Branch:
        """Removes the record; returns its last version.

        Args:
            repository: repository of the branch.
            branch_id: branch to delete.
            announce: puts the tokens of the record on the drop list (rule 5); called before each attempt.
                If it raises, nothing is removed.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """
        partition = self._repositories.keys_of(repository).refs
        key = RepositoryKeys.branch(branch_id)
        current = await self.fresh(repository, branch_id)
        for _ in range(_CAS_TRIES):
            await announce(current.branch.tokens)
            try:
                await self._kv.delete_if(partition, key, current.predicate)
            except PredicateFailedError as error:
                current = self._accept(repository, branch_id, error.current)
                continue
            self._known.pop((repository.instance_uid, branch_id))
            return current.branch
        raise _changed_too_often(branch_id, "its deletion")

    async def mark_deleted(self, repository: Repository, branch_id: BranchId) -> Branch:
        """Marks a branch as deleted together with its repository: it accepts no more writes or reads.

        May be repeated. Returns the record, with the tokens to drop.
        """
        partition = self._repositories.keys_of(repository).refs
        key = RepositoryKeys.branch(branch_id)
        for _ in range(_CAS_TRIES):
            (found,) = await self._kv.get_many(partition, [key], settle=True)
            if found is None:
                raise branch_not_found(repository, branch_id)
            branch = decode_branch(found.value)
            # A branch that is being created is marked, too; otherwise it could go live after this.
            if branch.is_deleted and not is_pending_branch(found.value):
                return branch
            marked = replace(branch, is_deleted=True)
            try:
                await self._kv.set_if(partition, key, encode_branch(marked), found.predicate)
            except PredicateFailedError:
                continue
            self._known.pop((repository.instance_uid, branch_id))
            return marked
        raise _changed_too_often(branch_id, "its deletion")
