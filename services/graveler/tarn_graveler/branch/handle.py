"""A branch handle: one incarnation of a branch, for the length of one operation.

A branch that was deleted and created again under the same name is another branch. An operation that began
on the old one fails with "not found" and does not reach the new one, as a file handle never reaches the
file that took over its path. So an operation makes one handle, and reads and changes the record through
it only; no caller compares incarnations.

Every operation that publishes a commit or a listing has three steps (rules 4, 5 and 8):

    sealed = await handle.seal()     # writes go to a new token
    ...                              # build from `sealed`, a confirmed record, and from no other
    await handle.publish(sealed, after, still_holds=..., announce=...)

Reads by rule 2 use no handle: they are right for whichever incarnation has the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from tarn.aio.first_error import collapse_error_groups
from tarn.core.branch import (
    AfterLostRace,
    Branch,
    Token,
    TokenKind,
    after_lost_race,
    removed_tokens,
    seal,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import UNATTRIBUTED, Cause
from tarn.core.reflog import leave_outbox
from tarn.kv.register import unknown_if
from tarn_graveler.records.branches import (
    CAS_TRIES,
    BranchChange,
    Branches,
    BranchName,
    BranchVersion,
    branch_not_found,
    changed_too_often,
)
from tarn_graveler.records.settling import Attempts

__all__ = [
    "UNGUARDED",
    "Announce",
    "BeforePublish",
    "BranchHandle",
    "HeadGuards",
    "announcing",
    "claims_nothing",
]

Announce = Callable[[BranchName, Iterable[Token]], Coroutine[Any, Any, None]]
"""Puts the tokens that a change removes on the drop list."""

BeforePublish = Callable[[], Awaitable[None]]
"""Called after the record to replace was read and before each attempt to replace it; may raise to give up."""


@dataclass(frozen=True, slots=True)
class HeadGuards:
    """What a caller has looked at while the head of a branch is changed.

    Attributes:
        incarnation: the life of the branch whose head is changed; None: the present one.
        before_build: called before each build; may raise to give up.
        before_publish: see `BeforePublish`.
    """

    incarnation: bytes | None = None
    before_build: BeforePublish | None = None
    before_publish: BeforePublish | None = None


UNGUARDED = HeadGuards()
"""Nothing is looked at."""

_PUBLISH_TRIES = 16
_SEALED_LIMIT = 32
"""Greatest number of sealed tokens, each a layer for every read; beyond it, only a commit that can build
seals.
"""


def announcing(announce: Announce, before_publish: BeforePublish | None) -> Announce:
    """Returns what announces the tokens of a change, and then calls `before_publish`."""
    if before_publish is None:
        return announce

    async def both(name: BranchName, tokens: Iterable[Token]) -> None:
        await announce(name, tokens)
        await before_publish()

    return both


def claims_nothing(_: Branch) -> bool:
    """The postcondition of a change whose caller uses `BranchChange.written` only, or nothing of the change."""
    return True


class BranchHandle:
    """Reads and changes the record of one incarnation: the given one, or that of the first record that it reads.

    Every method but `cached` raises BRANCH_NOT_FOUND if the branch does not exist any more, or if its name
    has another incarnation now.
    """

    __slots__ = ("_branches", "_incarnation", "name")

    def __init__(
        self, branches: Branches, name: BranchName, incarnation: bytes | None = None
    ) -> None:
        self.name = name
        self._branches = branches
        self._incarnation = incarnation

    def _check(self, version: BranchVersion) -> BranchVersion:
        """Returns a version of the record if it belongs to the incarnation of this handle."""
        incarnation = version.branch.incarnation
        if self._incarnation is None:
            self._incarnation = incarnation
        elif self._incarnation != incarnation:
            raise branch_not_found(self.name)
        return version

    def cached(self) -> Branch | None:
        """Returns the record as it was at most two seconds ago; None if this process has not read it since.

        May belong to an earlier incarnation, and does not decide which one the handle stays with.
        """
        return self._branches.cached(self.name)

    async def version(self) -> BranchVersion:
        """Returns the record and its predicate, by a read issued after this call."""
        return self._check(await self._branches.fresh(self.name))

    async def fresh(self, *, written: bool) -> Branch:
        """Returns the record, by a read issued after this call.

        Args:
            written: True if a row of the operation is already written, so that no error is a refusal.

        Raises:
            TarnError: BRANCH_NOT_FOUND; OUTCOME_UNKNOWN instead of any error if `written`.
        """
        try:
            return self._check(await self._branches.fresh(self.name)).branch
        except TarnError:
            with unknown_if(written):  # not around the read: each write makes one, and most succeed
                raise

    async def compare_and_set(
        self,
        before: BranchVersion,
        after: Branch,
        attempts: Attempts,
        cause: Cause = UNATTRIBUTED,
    ) -> BranchChange | BranchVersion:
        """Makes one attempt at a change, as `Branches.compare_and_set`.

        Returns:
            The confirmed change, or the existing record, without the change.

        Raises:
            TarnError: as `Branches.compare_and_set`; BRANCH_NOT_FOUND.
        """
        outcome = await self._branches.compare_and_set(self.name, before, after, attempts, cause)
        if outcome is None:
            raise branch_not_found(self.name)
        return outcome if isinstance(outcome, BranchChange) else self._check(outcome)

    async def change(
        self, decide: Callable[[Branch, bytes], Branch], holds: Callable[[Branch], bool]
    ) -> BranchChange:
        """Applies a decision to the record, and repeats until it was applied to the newest one and holds.

        If the answer of an attempt is lost, a read settles it (rule 8). That read may find a later record, in which
        other operations have undone the change. Then the decision is applied again, to that record. So no caller goes
        on with a record that lacks what the caller has decided.

        Args:
            decide: takes the current record and an id of this attempt; returns the next record, or the
                current one itself when there is nothing to change. Tokens that it adds must be new in
                each call (`Branches.new_token`).
            holds: the postcondition: whether a record has what the caller is about to rely on. It is true of each
                record that `decide` changes. A caller that must not repeat the change claims nothing
                (`claims_nothing`), and uses only the record that was written.

        Returns:
            The change. Its newest record is one that `decide` has left unchanged, or one that holds.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES: other operations have changed the record, or have undone this
                change, each time; OUTCOME_UNKNOWN.
        """
        attempts = Attempts()
        current = await self.version()
        for _ in range(CAS_TRIES):
            after = decide(current.branch, self._branches.new_op_id())
            if after is current.branch:
                return BranchChange(after, after, current)
            assert holds(after), (
                "a decision that lacks its own postcondition would be repeated in vain"
            )
            outcome = await self.compare_and_set(current, after, attempts)
            if isinstance(outcome, BranchChange):
                if outcome.newest.branch.is_deleted:
                    raise branch_not_found(self.name)
                if holds(outcome.newest.branch):
                    return outcome
                outcome = outcome.newest
            current = outcome
        with attempts.unknown_if_pending():
            raise changed_too_often(self.name.branch_id, "one change")

    async def seal(self) -> BranchVersion:
        """Gives the branch a new staging token (rule 4).

        Returns:
            The confirmed record, the only one whose sealed tokens may be scanned: they, or its base, hold every row
            that was acknowledged before this call.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """
        made: Branch | None = None

        def decide(now: Branch, op_id: bytes) -> Branch:
            nonlocal made
            made = seal(now, self._branches.new_token(), op_id)
            return made

        def holds(now: Branch) -> bool:
            # Else a commit or a reset has taken the tokens: the caller would judge an outcome that is not its own.
            return made is not None and after_lost_race(made, now) is AfterLostRace.REUSE

        return (await self.change(decide, holds)).newest

    async def seal_unless(
        self, fits: Callable[[Branch], bool], kind: TokenKind, *, written: bool
    ) -> Branch:
        """Returns a fresh record that fits; gives the branch a staging token of a kind if it does not.

        Args:
            fits: whether a record can take the operation's row.
            kind: kind of the new token.
            written: as in `fresh`.

        Raises:
            TarnError: UNAVAILABLE when there are so many sealed tokens that commits must have been
                failing for some time; BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """
        record = await self.fresh(written=written)
        if fits(record):
            return record

        def decide(now: Branch, op_id: bytes) -> Branch:
            if fits(now):
                return now
            if len(now.sealed) >= _SEALED_LIMIT:
                text = (
                    f"branch {self.name.branch_id} has {len(now.sealed)} sealed tokens: its commits "
                    "fail, and one must succeed before it can be sealed again"
                )
                raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
            return seal(now, self._branches.new_token(kind), op_id)

        with unknown_if(written):
            return (await self.change(decide, fits)).newest.branch

    async def publish(
        self,
        record: BranchVersion,
        decide: Callable[[Branch, bytes], Branch],
        *,
        still_holds: Callable[[Branch], bool],
        announce: Announce,
        cause: Cause = UNATTRIBUTED,
    ) -> BranchChange | BranchVersion:
        """Puts the result of a build into the record, by one compare-and-set (rules 4, 5, 8 and 12).

        Args:
            record: the confirmed record that the result was built from.
            decide: takes the record to replace and an id of this attempt; returns the next record.
            still_holds: whether the result is right for a record. No attempt is made on a record for which it is
                not; on a newer one for which it is, the change is repeated.
            announce: puts the tokens that the change removes on the drop list; called before each attempt.
                If it raises, the change is not made.
            cause: who moves the head, and how, for the reflog.

        Returns:
            The confirmed change; or a record without the change, for which the operation must build again. No
            attempt can be applied any more then. The newest record of the change may be any later one.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN; errors of `announce`.
        """
        if not still_holds(record.branch):
            return record
        # Invariant of the loop: the result is right for `current`, and no earlier attempt can be applied any more.
        attempts = Attempts()
        current = record
        for _ in range(_PUBLISH_TRIES):
            # 1. Decide on the record to replace.
            after = decide(current.branch, self._branches.new_op_id())
            # 2. Before it is replaced: its removed tokens are on the drop list, its outbox is in the reflog.
            with attempts.unknown_if_pending(), collapse_error_groups():
                # Beside each other, so that the reflog adds no round trip.
                async with asyncio.TaskGroup() as both:
                    both.create_task(announce(self.name, removed_tokens(current.branch, after)))
                    writing = both.create_task(
                        self._branches.write_reflog(self.name, current.branch)
                    )
            after = leave_outbox(after, writing.result())
            # 3. Compare and set. A record without the change: again from 1 if the result is right for that one, too.
            outcome = await self.compare_and_set(current, after, attempts, cause)
            if isinstance(outcome, BranchChange) or not still_holds(outcome.branch):
                return outcome
            current = outcome
        text = (
            f"branch {self.name.branch_id} was sealed {_PUBLISH_TRIES} times during one operation; "
            "try again"
        )
        with attempts.unknown_if_pending():
            raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)
