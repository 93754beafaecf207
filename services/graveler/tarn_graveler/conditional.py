"""Conditional writes: If-None-Match and If-Match (rule 3 of design §4, invariant I6).

They need a staging token of kind *conditional*, whose rows are registers: the first conditional write on
a branch seals the plain token and goes on, with everybody else, on a conditional one (until the next
commit seals that). Then

    read our path's row in the staging token; if there is none, the newest one beneath
    → verify the whole record → judge the condition → compare-and-set our row over what was read
    → read the record again: same token, done (rule 1); else once more.

Two writers that both saw the path as it was meet in one row, and one compare-and-set loses; or they
met different tokens, and then the older token was sealed, so that the writer on it is sent round again
and finds the other one's row.

An attempt that comes round again, or a client that repeats its request because the answer was lost, finds
its own earlier row: the entry names its operation. Its condition was judged when that row was written, so
it is not judged again; what may still have to be done is to write it where rule 1 wants it. Once a row of
this call is there, no refusal is told as one (`unknown_if`): a commit may have taken the row along, and the
gateway would remove its block.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.branch import Branch, TokenKind, seal
from tarn.core.condition import WriteCondition
from tarn.core.entry import identity_of, is_marker, operation_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.kv.keys import path_key
from tarn.kv.port import Kv, OutcomeUnknownError, Predicate, PredicateFailedError
from tarn.kv.records import Repository
from tarn_graveler.attempts import TRIES, BranchLife, unknown_if
from tarn_graveler.branches import Branches
from tarn_graveler.layers import Layers
from tarn_graveler.repositories import Repositories

__all__ = ["ConditionalStaging"]


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest row of a path.

    Attributes:
        packed: None if no layer has one.
        predicate: of the row in the staging token, None if it has none.
        is_staged: it lies in the staging token.
    """

    packed: bytes | None
    predicate: Predicate | None
    is_staged: bool


class ConditionalStaging:
    """Puts entries into staging tokens if a condition holds."""

    def __init__(
        self, kv: Kv, repositories: Repositories, branches: Branches, layers: Layers
    ) -> None:
        self._kv = kv
        self._repositories = repositories
        self._branches = branches
        self._layers = layers

    async def stage(
        self,
        repository: Repository,
        branch_id: BranchId,
        path: str,
        packed: bytes,
        condition: WriteCondition,
    ) -> bool:
        """Makes a path hold an entry if the condition holds.

        Args:
            repository: where.
            branch_id: which branch.
            path: which path.
            packed: the entry; names its operation (`Entry.operation_id`), the same one when a client
                repeats its request.
            condition: what must be true of the path right before.

        Returns:
            Whether the path holds the entry of an earlier request of the same operation instead of
            this one, so that surely nothing refers to this one's block.

        Raises:
            TarnError: INVALID without an operation; FAILED_PRECONDITION or NOT_FOUND when the condition
                does not hold, and surely nothing was done; BRANCH_NOT_FOUND; OUTCOME_UNKNOWN as
                `Staging.stage`.
        """
        operation_id = operation_of(packed)
        if not operation_id:
            text = "a conditional write names its operation"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        life = BranchLife(self._branches, repository, branch_id)
        value, written = packed, False
        for _ in range(TRIES):
            record = await self._conditional(life, repository, branch_id, written=written)
            with unknown_if(written):
                newest = await self._newest(repository, branch_id, record, path)
            verified = await self._verify(life, written=written)
            if not verified.same_layers(record):
                continue
            if newest.packed is not None and _is_repeated(newest.packed, packed, operation_id):
                if not written:
                    value = newest.packed
                if newest.is_staged:
                    return value != packed
            else:
                with unknown_if(written):
                    condition.check(path, newest.packed)
            with unknown_if(written):
                if not await self._set(repository, branch_id, record, path, value, newest):
                    continue
            written = True
            fresh = await life.fresh(written=True)
            if fresh.takes_writes_as(record):
                return value != packed
        text = f"{path}: branch {branch_id} or the path changed {TRIES} times meanwhile"
        if written:
            raise OutcomeUnknownError(text)
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    async def _conditional(
        self, life: BranchLife, repository: Repository, branch_id: BranchId, *, written: bool
    ) -> Branch:
        """A fresh record whose staging token is conditional; seals a plain one."""
        record = await life.fresh(written=written)
        if record.staging.kind is TokenKind.CONDITIONAL:
            return record

        def decide(now: Branch, op_id: bytes) -> Branch:
            if now.staging.kind is TokenKind.CONDITIONAL:
                return now
            return seal(now, self._branches.new_token(TokenKind.CONDITIONAL), op_id)

        with unknown_if(written):
            change = await self._branches.change(repository, branch_id, decide)
            return life.check(change.after.branch)

    async def _newest(
        self, repository: Repository, branch_id: BranchId, record: Branch, path: str
    ) -> _Newest:
        partition = self._repositories.keys_of(repository).token(branch_id, record.staging)
        (row,) = await self._kv.get_many(partition, [path_key(path)])
        if row is not None:
            return _Newest(row.value, row.predicate, is_staged=True)
        (found,) = await self._layers.find(repository, branch_id, record, [path], depth_min=1)
        return _Newest(found.packed, None, is_staged=False)

    async def _verify(self, life: BranchLife, *, written: bool) -> Branch:
        """The record after the last layer read: what was read counts if the layers are the same."""
        return await life.fresh(written=written)

    async def _set(
        self,
        repository: Repository,
        branch_id: BranchId,
        record: Branch,
        path: str,
        value: bytes,
        newest: _Newest,
    ) -> bool:
        """Writes the row over the one that was read; False if there is another one now.

        Raises:
            OutcomeUnknownError: it may be there, and a settling read does not show it.
        """
        partition = self._repositories.keys_of(repository).token(branch_id, record.staging)
        key = path_key(path)
        try:
            await self._kv.set_if(partition, key, value, newest.predicate)
        except PredicateFailedError:
            return False
        except OutcomeUnknownError:
            with unknown_if(True):
                (found,) = await self._kv.get_many(partition, [key], settle=True)
            if found is None or found.value != value:
                raise
        return True


def _is_repeated(newest: bytes, packed: bytes, operation_id: str) -> bool:
    """Whether a row was written by an earlier attempt of the same operation, for the same content."""
    if is_marker(newest):
        return False
    return operation_of(newest) == operation_id and identity_of(newest) == identity_of(packed)
