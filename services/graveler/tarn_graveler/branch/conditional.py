"""Conditional writes and deletes: If-None-Match, If-Match and others (docs/design/protocol.md, rule 3; invariant I6).

The rule is executable in tests/models/branch_writes.py.

Conditional writes need a staging token of kind *conditional*, whose rows are registers. The first
conditional write on a branch seals the plain token. From then on, all writers use a conditional token,
until the next commit seals it. Then

    read the path's row in the staging token; if there is none, the newest row beneath
    → verify the whole record → evaluate the condition → compare-and-set the new row over the one that was read
    → read the record again: if it names the same token, done (rule 1); otherwise repeat.

Two writers that both saw the old state of the path either write to the same row, and one compare-and-set
loses; or they write to different tokens. Then the older token was sealed, so the writer on it must repeat
and finds the row of the other one.

A lost compare-and-set returns the row that won. It is the newest row of the path if the record, read
again, still has the same layers: the loser evaluates its condition on that row and reads no layer again.
So a loser of `If-None-Match: *` is refused after one more read of the record, however many writers there
are.

A repeated attempt, or a client that repeats its request because the answer was lost, finds its own
earlier row: the entry names its operation. Its condition was evaluated when that row was written and is
not evaluated again; at most the row must still be written where rule 1 requires it. Once a row of this
call is written, no error is reported as a refusal (`unknown_if`): a commit may have included the row, and
the gateway would remove its block.

A conditional delete is the same write: its row is a tombstone that names its operation. It differs in one point: a
condition on size or time alone holds for a path without an object, where there may be nothing to write, as for a plain
delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarn.core.branch import Branch, TokenKind
from tarn.core.condition import WriteCondition
from tarn.core.entry import (
    identity_of,
    is_tombstone,
    judged_at,
    judged_move_of,
    operation_of,
    replacing,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import path_key
from tarn.kv.port import Kv, OutcomeUnknownError, Predicate, PredicateFailedError, Row
from tarn.kv.register import unknown_if
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.object_events import TARN_ITSELF, Mutation, ObjectEvents, Origin
from tarn_graveler.guards.address_age import AddressAge
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.settling import TRIES, set_settled

__all__ = ["ConditionalStaging"]

_LOST_MAX = 64
"""Compare-and-sets that one attempt may lose, each to another completed write of the path. Only writers
whose condition still holds after a loss, such as `If-Match: *`, lose more than one.
"""


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest row of a path.

    Attributes:
        packed: None if no layer has a row of the path.
        predicate: predicate of the row in the staging token; None if it has no row.
        is_staged: whether the row is in the staging token.
    """

    packed: bytes | None
    predicate: Predicate | None
    is_staged: bool


@dataclass(slots=True)
class _Write:
    """The state of one conditional write, over all its attempts.

    Attributes:
        path: path of the object.
        packed: the entry of this call.
        operation_id: operation that the entry names.
        condition: condition on the state of the path immediately before the write.
        value: the row to write: `packed`, or the row of an earlier call of the same operation; it says by which
            record its condition was judged (`Entry.judged_move_us`).
        event: its event.
        written: whether a row of this call is written, in any token.
    """

    path: str
    packed: bytes
    operation_id: str
    condition: WriteCondition
    value: bytes
    event: Mutation
    written: bool = False

    @property
    def is_of_earlier_call(self) -> bool:
        """Whether the row to write is that of an earlier call."""
        return judged_at(self.value, 0) != judged_at(self.packed, 0)

    @property
    def is_delete(self) -> bool:
        """Whether the row is a tombstone."""
        return is_tombstone(self.packed)

    def _has_nothing_to_delete(self, newest: _Newest) -> bool:
        """Whether it is a delete that needs no row. A tombstone in a sealed token is no reason (rule 3)."""
        if not self.is_delete:
            return False
        return newest.packed is None or (newest.is_staged and is_tombstone(newest.packed))

    def judge(self, newest: _Newest, record: Branch) -> bool:
        """Evaluates the condition on the newest row of the path, read by a verified record.

        Returns:
            Whether no write is needed: the row of the operation is already where rule 1 requires it, or there is
                nothing to delete.

        Raises:
            TarnError: the condition does not hold; OUTCOME_UNKNOWN instead if a row of this call is
                written.
        """
        row = newest.packed
        if row is None or not _is_repeated(row, self.packed, self.operation_id):
            with unknown_if(self.written):
                self.condition.check(self.path, row)
            if self._has_nothing_to_delete(newest):
                return True
            self.value = judged_at(self.value, record.move_time_us)
            return False
        # Outside the staging token, the row may have landed after a merge or a reset that brought other content,
        # judged by the record before it (rule 9). The row's time would not tell: the time of a move is read before
        # its compare-and-set lands.
        if not newest.is_staged and judged_move_of(row) != record.move_time_us:
            text = (
                f"{self.path}: a merge or a reset changed the branch during this write, so whether its "
                "condition held is unknown; read the path before you repeat the write"
            )
            raise OutcomeUnknownError(text)
        if not self.written:
            self.value = replacing(row, b"")  # as it was staged: a build may have set the address
        return newest.is_staged


class ConditionalStaging:
    """Writes entries and tombstones to staging tokens if a condition holds."""

    def __init__(
        self, kv: Kv, branches: Branches, layers: Layers, age: AddressAge, events: ObjectEvents
    ) -> None:
        self._age = age
        self._events = events
        self._kv = kv
        self._branches = branches
        self._layers = layers

    async def stage(
        self,
        name: BranchName,
        path: str,
        packed: bytes,
        condition: WriteCondition,
        *,
        origin: Origin = TARN_ITSELF,
    ) -> bool:
        """Stages an entry at a path, or deletes the path, if the condition holds.

        Args:
            name: branch to write to.
            path: path of the object.
            packed: the entry, or the tombstone of a delete (`tombstone_of`); it names its operation, which stays the
                same when a client repeats its request.
            condition: condition on the state of the path immediately before the write.
            origin: for the journal.

        Returns:
            True if the path holds the entry of an earlier request of the same operation instead of this
            one, so that no entry refers to the block of this request.

        Raises:
            TarnError: INVALID for an entry without an operation; FAILED_PRECONDITION or NOT_FOUND when
                the condition does not hold, and nothing was written; BRANCH_NOT_FOUND; ADDRESS_TOO_OLD and
                OUTCOME_UNKNOWN as `Staging.stage`.
        """
        self._age.check(packed, written=False)
        operation_id = operation_of(packed)
        if not operation_id:
            text = "the entry of a conditional write must name its operation"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        handle = BranchHandle(self._branches, name)
        begin = self._events.delete if is_tombstone(packed) else self._events.put
        write = _Write(path, packed, operation_id, condition, packed, begin(origin))
        for _ in range(TRIES):
            record = await handle.seal_unless(
                _takes_registers, TokenKind.CONDITIONAL, written=write.written
            )
            if await self._write_on(handle, record, write):
                # The row to acknowledge may be that of an earlier call, with the address of that call.
                self._age.check(write.value, written=True)
                self._branches.events.wrote(
                    name.repository.repository_id,
                    name.branch_id,
                    record.staging.token_id,
                    len(path) + len(packed),
                    tombstones=int(write.is_delete),
                )
                return write.is_of_earlier_call
        text = (
            f"{path}: branch {name.branch_id} was sealed or committed, or the path was overwritten, during "
            f"all {TRIES} attempts of a conditional write; repeat the write"
        )
        if write.written:
            raise OutcomeUnknownError(text)
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    async def _write_on(self, handle: BranchHandle, record: Branch, write: _Write) -> bool:
        """Writes the row to the staging token of a record; False if the record has changed since.

        Raises:
            TarnError: the condition does not hold.
        """
        with unknown_if(write.written):
            newest = await self._newest(handle.name, record, write.path)
        for _ in range(_LOST_MAX):
            verified = await self._verify(handle, written=write.written)
            if not verified.same_layers(record):
                return False
            if write.judge(newest, record):
                return True
            with unknown_if(write.written):
                event = write.event.companions(write.path, write.value)
                there = await self._set(handle.name, record, write.path, write.value, newest, event)
            if there is None:
                write.written = True
                fresh = await handle.fresh(written=True)
                if not fresh.takes_writes_as(record):
                    return False
                write.event.check_age()
                return True
            if there.packed is None:  # rows disappear only with their token; read the record again
                return False
            newest = there
        return False

    async def _newest(self, name: BranchName, record: Branch, path: str) -> _Newest:
        partition = self._layers.partition(name, record.staging)
        (row,) = await self._kv.get_many(partition, [path_key(path)])
        if row is not None:
            return _Newest(row.value, row.predicate, is_staged=True)
        (found,) = await self._layers.find(name, record, [path], depth_min=1)
        return _Newest(found.packed, None, is_staged=False)

    async def _verify(self, handle: BranchHandle, *, written: bool) -> Branch:
        """Returns the record after the last layer read: the rows that were read count if it has the same
        layers.
        """
        return await handle.fresh(written=written)

    async def _set(
        self,
        name: BranchName,
        record: Branch,
        path: str,
        value: bytes,
        newest: _Newest,
        event: Sequence[Row],
    ) -> _Newest | None:
        """Writes the row over the one that was read, with its event.

        Returns:
            None when the row is written; otherwise the row that the staging token holds instead.

        Raises:
            OutcomeUnknownError: the row may be written.
        """
        partition = self._layers.partition(name, record.staging)
        try:
            await set_settled(self._kv, partition, path_key(path), value, newest.predicate, event)
        except PredicateFailedError as error:
            current = error.current
            if current is None:
                return _Newest(None, None, is_staged=False)
            return _Newest(current.value, current.predicate, is_staged=True)
        return None


def _takes_registers(branch: Branch) -> bool:
    return branch.staging.kind is TokenKind.CONDITIONAL


def _is_repeated(newest: bytes, packed: bytes, operation_id: str) -> bool:
    """Whether a row was written by an earlier attempt of the same operation, for the same content."""
    if is_tombstone(newest) != is_tombstone(packed):
        return False
    if operation_of(newest) != operation_id:
        return False
    return identity_of(replacing(newest, b"")) == identity_of(packed)
