"""Stages the object of a multipart upload once (docs/design/protocol.md, "Uploads").

Gateways and clients repeat completions, and a process that seemed dead may continue. So the upload's
record names each token that an attempt may write to, *before* the attempt writes there. The first attempt
does a plain write, with a note beside its row in the same atomic group. Every later attempt finds out the
result of the earlier ones: it first seals a token that could still take one of their plain rows, and then
reads their rows and notes. It writes by a compare-and-set over the row that it read before it looked at
the notes.

- If no attempt landed, it sets its row.
- If one landed and is the newest row, that row is set in the staging token, unless it is there already.
- If one landed and was overwritten, the upload is complete, unless another attempt may still set its row over the
  newer one: then the outcome stays unknown until that attempt has ended. So this answer counts only if no attempt
  was added since the attempts were read. If the newer row is in a sealed token, where
  a commit may have missed it, the outcome stays unknown. To set that row in the staging token for its writer
  would not do: it may land after a merge and hide the content that the merge brought.
- If one landed, and the newer row was written conditionally, in a token that no attempt landed in, its writer may
  have read the attempt's token before the attempt landed there. Then no order explains both answers, so the
  outcome stays unknown.
- If a token has left the record, and the object is not the newest row, nothing shows whether the object
  was committed and overwritten, or never written. The outcome stays unknown; the client must upload
  again.

`tests/models/completion_model.py` has the program step by step, and shows what breaks without each of
these.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.condition import WriteCondition
from tarn.core.entry import is_tombstone, operation_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import TokenId
from tarn.kv.keys import path_key, staged_upload
from tarn.kv.port import (
    Group,
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    Versioned,
)
from tarn.kv.register import unknown_if
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.layers import LayerRow, Layers
from tarn_graveler.branch.object_events import TARN_ITSELF, Mutation, ObjectEvents, Origin
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.settling import TRIES, set_settled

__all__ = ["Completion", "CompletionLog", "StagingAttempt", "UploadedObject"]


@dataclass(frozen=True, slots=True)
class StagingAttempt:
    """A token to which an attempt may have written its row.

    Attributes:
        is_comparison: whether the attempt writes by compare-and-set, without a note.
    """

    token: Token
    is_comparison: bool


class CompletionLog(Protocol):
    """The completion state in an upload's record."""

    async def load(self) -> Sequence[StagingAttempt] | None:
        """Returns the attempts so far; None if the upload is complete.

        Raises:
            TarnError: UPLOAD_BUSY when the claim was lost; UPLOAD_NOT_FOUND.
        """
        ...

    async def add(self, attempt: StagingAttempt) -> bool:
        """Adds an attempt to those that `load` returned; False if the record has changed since."""
        ...

    async def withdraw(self) -> None:
        """Removes the last added attempt, because it wrote nothing. If it stays, others must assume that it
        wrote.
        """
        ...

    async def complete(self, entry: bytes, *, unless_added: bool) -> bool:
        """Records that the upload is complete, and its entry.

        Args:
            entry: the answer for repetitions.
            unless_added: only if the record has no other attempts than those that `load` returned.

        Returns:
            Whether it is recorded; only with `unless_added` it may not be.
        """
        ...


class _Fate(enum.Enum):
    """The result of earlier attempts."""

    LANDED = "landed"
    NOT_LANDED = "not landed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class UploadedObject:
    """The object that a completion stages.

    Attributes:
        packed: the entry; its operation is the upload.
        condition: condition on the state of the path immediately before the write.
        incarnation: the only life of the branch on which it may be staged; empty: any.
        origin: for the journal.
    """

    branch: BranchName
    path: str
    upload_id: str
    packed: bytes
    condition: WriteCondition
    incarnation: bytes = b""
    origin: Origin = TARN_ITSELF

    def is_in(self, row: bytes | None) -> bool:
        """Whether a row is this object, written by any attempt."""
        return row is not None and not is_tombstone(row) and operation_of(row) == self.upload_id


class Completion:
    """Stages completed uploads."""

    def __init__(
        self,
        kv: Kv,
        branches: Branches,
        layers: Layers,
        clock_skew_seconds: float,
        events: ObjectEvents,
    ) -> None:
        self._kv = kv
        self._events = events
        self._branches = branches
        self._layers = layers
        self._skew_us = int(clock_skew_seconds * 1_000_000)

    async def stage(self, made: UploadedObject, log: CompletionLog) -> None:
        """Stages the object at its path, once, and records that the upload is complete.

        Raises:
            TarnError: FAILED_PRECONDITION or NOT_FOUND when the condition does not hold, and nothing was
                staged; BRANCH_NOT_FOUND; UPLOAD_BUSY; OUTCOME_UNKNOWN when the row may be written but is
                not acknowledged, or its state cannot be determined.
        """
        one = _Staging(
            self._kv, self._branches, self._layers, made, log, self._skew_us, self._events
        )
        for _ in range(TRIES):
            if not await one.attempt():
                continue
            with unknown_if(written=True):
                is_recorded = await log.complete(made.packed, unless_added=one.is_covered)
            if is_recorded:
                one.count()
                return
        text = (
            f"upload {made.upload_id}: branch {made.branch.branch_id} changed {TRIES} times during "
            "its completion; complete it again"
        )
        with unknown_if(one.may_be_staged):
            raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


class _Staging:
    """One call of `Completion.stage`."""

    def __init__(
        self,
        kv: Kv,
        branches: Branches,
        layers: Layers,
        made: UploadedObject,
        log: CompletionLog,
        skew_us: int,
        events: ObjectEvents,
    ) -> None:
        self._events = events
        self._event = events.complete(made.origin, made.upload_id)
        self._kv = kv
        self._layers = layers
        self._made = made
        self._log = log
        self._skew_us = skew_us
        self._handle = BranchHandle(branches, made.branch, made.incarnation or None)
        self._branches = branches
        self.may_be_staged = False
        """Whether a row of this call or of an earlier one may be written, so that no failure is a refusal."""
        self.is_covered = False
        """Whether the object is staged beneath a newer row, over which no attempt that was read may set it again."""

    def count(self) -> None:
        """Counts the row for compactors, in the token that takes the writes as far as this replica knows."""
        name = self._made.branch
        if (record := self._branches.cached(name)) is not None:
            self._branches.events.wrote(
                name.repository.repository_id,
                name.branch_id,
                record.staging.token_id,
                len(self._made.path) + len(self._made.packed),
            )

    async def attempt(self) -> bool:
        """Does one round; returns whether the object is staged, now or earlier."""
        self.is_covered = False
        with unknown_if(self.may_be_staged):
            attempts = await self._log.load()
        if attempts is None:
            return True
        self.may_be_staged |= bool(attempts)
        if not attempts and not self._made.condition:
            return await self._write_first()
        return await self._compare(attempts)

    async def _write_first(self) -> bool:
        record = await self._handle.fresh(written=False)
        if not await self._log.add(StagingAttempt(record.staging, is_comparison=False)):
            return False
        key = path_key(self._made.path)
        rows = ((key, self._made.packed), (staged_upload(self._made.upload_id), b""))
        partition = self._token(record.staging)
        event = self._event.companions(self._made.path, self._made.packed)
        (error,) = await self._kv.set_many(partition, [Group(key, rows, event)])
        if error is not None:
            raise error
        self.may_be_staged = True
        return await self._is_acknowledged(record, self._event)

    async def _is_acknowledged(self, record: Branch, event: Mutation) -> bool:
        """Whether the branch takes writes as it did when the row was written, whose event was made then."""
        fresh = await self._handle.fresh(written=True)
        if not fresh.takes_writes_as(record):
            return False
        event.check_age()
        return True

    async def _compare(self, attempts: Sequence[StagingAttempt]) -> bool:
        written = self.may_be_staged
        if await self._is_done(attempts):
            return True
        record = await self._conditional(attempts)
        with unknown_if(written):
            row = await self._staged_row(record)
            # After the row: see the model, "rows first".
            fate, landed_in = await self._fate(record, attempts)
            found = await self._beneath(record) if row is None else LayerRow(row.value, 0)
            newest = found.packed
        verified = await self._handle.fresh(written=written)
        if not verified.same_layers(record):
            return False
        if self._made.is_in(newest) and row is not None:
            return True
        if self._made.is_in(newest) or fate is _Fate.LANDED:
            self._check_moves(record, attempts)
            self._check_order(record, found, landed_in)
            if row is not None:  # overwritten, by a row that every commit will find
                self._check_rivals(record, attempts)
                self.is_covered = True
                return True
            if newest is None:
                return False  # its token left the record while the layers were read
            self._check_covered(newest)
            value, is_new_attempt = newest, False
        else:
            with unknown_if(written):
                self._check(fate, newest)
            if not await self._log.add(StagingAttempt(record.staging, is_comparison=True)):
                return False
            value, is_new_attempt = self._made.packed, True
        # The row of another write that is carried over is one more event; it is not this upload's.
        event = self._event if self._made.is_in(value) else self._events.put(TARN_ITSELF)
        if not await self._set(record, value, None if row is None else row.predicate, event):
            # Not by the value: a row of an earlier attempt that is carried over may be the same object.
            if is_new_attempt:
                await self._log.withdraw()
            return False
        self.may_be_staged = True
        return await self._is_acknowledged(record, event)

    async def _is_done(self, attempts: Sequence[StagingAttempt]) -> bool:
        """Whether an earlier attempt landed, and its row or a newer one is in the staging token.

        Then every commit finds that row, and the upload is complete. This is decided before anything is
        sealed: afterwards the same rows would lie in a sealed token, where a commit may miss them.
        """
        if not attempts:
            return False
        record = await self._handle.fresh(written=self.may_be_staged)
        with unknown_if(self.may_be_staged):
            row = await self._staged_row(record)
            fate, landed_in = await self._fate(record, attempts)  # after the row, as in `_compare`
        if fate is not _Fate.LANDED or row is None:
            return False
        verified = await self._handle.fresh(written=self.may_be_staged)
        if not verified.same_layers(record):
            return False
        if not self._made.is_in(row.value):
            self._check_moves(record, attempts)
            self._check_order(record, LayerRow(row.value, 0), landed_in)
            self._check_rivals(record, attempts)
            self.is_covered = True
        return True

    def _check_rivals(self, record: Branch, attempts: Sequence[StagingAttempt]) -> None:
        """Whether no other attempt may set its row over the newer one, which lies in the staging token.

        Such an attempt has read the newer row, and then that no attempt had landed. Its compare-and-set would bring
        the object back after the newer row was read.

        Raises:
            OutcomeUnknownError: one may. It withdraws, or is the newest row, when it has ended.
        """
        if any(
            each.is_comparison and each.token.token_id == record.staging.token_id
            for each in attempts
        ):
            text = (
                f"upload {self._made.upload_id}: another attempt to complete it may still replace a newer object at "
                f"{self._made.path}; read the path before you upload again"
            )
            raise OutcomeUnknownError(text)

    def _check_order(self, record: Branch, found: LayerRow, landed_in: frozenset[TokenId]) -> None:
        """Whether the upload surely came before the row that covers it, if one does.

        Raises:
            OutcomeUnknownError: the row is conditional and lies in a token of its own, so that its writer may
                have seen the path without the upload.
        """
        if found.packed is None or self._made.is_in(found.packed) or not operation_of(found.packed):
            return
        if found.depth < 0 or record.tokens[found.depth].token_id not in landed_in:
            text = (
                f"upload {self._made.upload_id}: a conditional write covers {self._made.path} and may "
                "not have seen the upload; upload again"
            )
            raise OutcomeUnknownError(text)

    def _check_covered(self, newest: bytes) -> None:
        """Whether the newest row, which lies in a sealed token, is the upload's own, so that it may be set again.

        The row of another writer must not be: that writer may have been answered long ago, and a merge may come
        before the row lands. Then the row would hide the content that the merge brought.

        Raises:
            OutcomeUnknownError: another writer's row covers the upload, and a commit may have missed that row.
        """
        if not self._made.is_in(newest):
            text = (
                f"upload {self._made.upload_id}: another write covers {self._made.path} and may not have been "
                "in time for a commit; upload again"
            )
            raise OutcomeUnknownError(text)

    def _check_moves(self, record: Branch, attempts: Sequence[StagingAttempt]) -> None:
        """Whether the condition surely held for the content that lies beneath the row of an attempt.

        The row may have landed after a merge that brought other content (rule 9), in a token that is older
        than the merge.

        Raises:
            OutcomeUnknownError: as `ConditionalStaging` does for its own rows.
        """
        if not self._made.condition or not record.was_moved:
            return
        if any(
            each.token.create_time_us <= record.move_time_us + self._skew_us for each in attempts
        ):
            text = (
                f"upload {self._made.upload_id}: a merge or a reset changed the branch during its "
                "completion, so whether its condition held is unknown; read the path before you upload again"
            )
            raise OutcomeUnknownError(text)

    def _check(self, fate: _Fate, newest: bytes | None) -> None:
        if fate is _Fate.UNKNOWN:
            text = (
                f"upload {self._made.upload_id}: an earlier completion may have been committed and "
                "overwritten since, or never have been made; upload again"
            )
            raise OutcomeUnknownError(text)
        if self._made.condition:
            self._made.condition.check(self._made.path, newest)

    async def _conditional(self, attempts: Sequence[StagingAttempt]) -> Branch:
        """Returns a fresh record whose staging token is conditional and takes no plain row of an attempt."""
        plain = {each.token.token_id for each in attempts if not each.is_comparison}

        def fits(branch: Branch) -> bool:
            is_conditional = branch.staging.kind is TokenKind.CONDITIONAL
            return is_conditional and branch.staging.token_id not in plain

        return await self._handle.seal_unless(
            fits, TokenKind.CONDITIONAL, written=self.may_be_staged
        )

    def _token(self, token: Token) -> Partition:
        return self._layers.partition(self._made.branch, token)

    async def _staged_row(self, record: Branch) -> Versioned | None:
        partition = self._token(record.staging)
        (row,) = await self._kv.get_many(partition, [path_key(self._made.path)])
        return row

    async def _beneath(self, record: Branch) -> LayerRow:
        made = self._made
        (found,) = await self._layers.find(made.branch, record, [made.path], depth_min=1)
        return found

    async def _fate(
        self, record: Branch, attempts: Sequence[StagingAttempt]
    ) -> tuple[_Fate, frozenset[TokenId]]:
        """The fate of all attempts together, and the tokens that one landed in."""
        fates = [(each.token.token_id, await self._fate_of(record, each)) for each in attempts]
        landed_in = frozenset(each for each, fate in fates if fate is _Fate.LANDED)
        if landed_in:
            return _Fate.LANDED, landed_in
        is_unknown = any(fate is _Fate.UNKNOWN for _, fate in fates)
        return (_Fate.UNKNOWN if is_unknown else _Fate.NOT_LANDED), landed_in

    async def _fate_of(self, record: Branch, attempt: StagingAttempt) -> _Fate:
        if not record.names(attempt.token.token_id):
            return _Fate.UNKNOWN
        partition = self._token(attempt.token)
        (row,) = await self._kv.get_many(partition, [path_key(self._made.path)])
        if row is not None and self._made.is_in(row.value):
            return _Fate.LANDED
        if await self._has_note(partition):
            return _Fate.LANDED
        return _Fate.UNKNOWN if row is not None and attempt.is_comparison else _Fate.NOT_LANDED

    async def _has_note(self, partition: Partition) -> bool:
        """Whether a row of the upload landed in a token. Only a scan finds the note, which lies beside that
        row.
        """
        note = staged_upload(self._made.upload_id)
        return bool(await self._kv.scan(partition, note, note + b"\0", 1))

    async def _set(
        self, record: Branch, value: bytes, predicate: Predicate | None, event: Mutation
    ) -> bool:
        """Sets the row over the one that was read, with its event; False if there is another one now.

        Raises:
            OutcomeUnknownError: the row may be written.
        """
        partition, path = self._token(record.staging), self._made.path
        rows = event.companions(path, value)
        with unknown_if(self.may_be_staged):
            try:
                await set_settled(self._kv, partition, path_key(path), value, predicate, rows)
            except PredicateFailedError:
                return False
        return True
