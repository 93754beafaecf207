"""Moves the head of a branch to a commit that is not built from its staged rows (rules 7 to 10).

Merge, revert and cherry-pick begin as a commit does: seal; confirm the seal; then look at the sealed
tokens, which take no more acknowledged writes. If these change anything, the branch is dirty, and the
operation is refused. Otherwise a commit is made on the head and published by one compare-and-set of the
whole record, which also replaces the staging token: a conditional write that verified the old content must
not be acknowledged over the new content. The replaced token stays in the record as a sealed one, because
rows may have been acknowledged in it since the first seal. They stay uncommitted, on top of the new head.

If the compare-and-set finds another head, the commit is made again on that one, and the sealed tokens are
judged again: rows that changed nothing on one commit may change another one.

A reset discards the uncommitted changes; a forced move discards them and moves the head.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from tarn.core.branch import (
    AfterLostRace,
    Branch,
    Pin,
    after_lost_race,
    discard_changes,
    forget_sealed,
    move_head,
    pin_listing,
    with_oldest_of,
)
from tarn.core.clock import Clock
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import UNATTRIBUTED, Cause, HeadOperation
from tarn.core.ids import CommitId
from tarn.core.path_names import NAMED_PATHS_MAX, named_paths
from tarn.kv.port import OutcomeUnknownError
from tarn.telemetry.operations import Operations, phase
from tarn_graveler.branch.handle import UNGUARDED, Announce, BranchHandle, HeadGuards, announcing
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.publications import Publications
from tarn_graveler.branch.uncommitted import UncommittedChanges
from tarn_graveler.guards.drops import Drops
from tarn_graveler.records.branches import BranchChange, Branches, BranchName, BranchVersion
from tarn_graveler.records.expired import ExpiredCommits

__all__ = ["HeadMoves", "NewHead", "Propose"]

_TRIES = 64
"""Heads that one operation builds on: each lost race is another operation that landed."""
_FORGET_FROM = 8
"""Number of sealed tokens from which they are removed as soon as they are found to change nothing."""


@dataclass(frozen=True, slots=True)
class NewHead:
    """A commit to put a branch on; durable, and perhaps not yet named by any branch.

    Attributes:
        is_new: the operation wrote its row, so its entries are roots. Otherwise the commit may have expired.
    """

    commit_id: CommitId
    commit: Commit
    is_new: bool = False


Propose = Callable[[CommitId], Awaitable[NewHead]]
"""Makes the new head for a present head. Called again if another operation moves the branch."""


class HeadMoves:
    """Changes the head of branches, and discards uncommitted changes."""

    def __init__(
        self,
        branches: Branches,
        layers: Layers,
        changes: UncommittedChanges,
        publications: Publications,
        drops: Drops,
        clock: Clock,
        operations: Operations,
        expired: ExpiredCommits,
    ) -> None:
        self._expired = expired
        self._branches = branches
        self._layers = layers
        self._changes = changes
        self._publications = publications
        self._drops = drops
        self._clock = clock
        self._operations = operations

    async def move(
        self,
        name: BranchName,
        propose: Propose,
        *,
        is_reset: bool = False,
        cause: Cause = UNATTRIBUTED,
        expected: CommitId | None = None,
        guards: HeadGuards = UNGUARDED,
    ) -> NewHead:
        """Publishes the proposed commit as the head of a clean branch.

        Args:
            name: the branch.
            propose: makes the new head from the present one; may raise to refuse the operation.
            is_reset: the new head does not descend from the present one, so that a concurrent commit must
                not take its tokens for committed.
            cause: who moves the head, and how, for the reflog.
            expected: the head that the caller knows; the branch is not moved from any other. None: from any.
            guards: see `HeadGuards`.

        Raises:
            TarnError: BRANCH_DIRTY; REF_MOVED if the head is not the expected one; BRANCH_NOT_FOUND; EXPIRED_COMMIT;
                TOO_MANY_RETRIES; OUTCOME_UNKNOWN; errors of `propose` and of the guards.
        """
        new, _ = await self._move(name, propose, expected, guards, is_reset=is_reset, cause=cause)
        return new

    async def _move(
        self,
        name: BranchName,
        propose: Propose,
        expected: CommitId | None,
        guards: HeadGuards,
        *,
        is_reset: bool,
        cause: Cause,
    ) -> tuple[NewHead, Branch | None]:
        """As `move`; returns also the record that has the new head.

        The record is None if the answer of the compare-and-set was lost, and the history tells that it was made. That
        never happens to a reset.
        """
        what = "move" if cause.operation is HeadOperation.OTHER else cause.operation.value
        repository_id = name.repository.repository_id
        with self._operations.begin(what, repository=repository_id, branch=name.branch_id):
            return await self._move_clean(
                name, propose, expected, guards, is_reset=is_reset, cause=cause
            )

    async def _move_clean(
        self,
        name: BranchName,
        propose: Propose,
        expected: CommitId | None,
        guards: HeadGuards,
        *,
        is_reset: bool,
        cause: Cause,
    ) -> tuple[NewHead, Branch | None]:
        # Invariant of the loop: `record` is the newest record that is known; `built_from` is one whose sealed tokens
        # hold every row that was acknowledged before the operation, and whose head is that of `record`.
        handle = BranchHandle(self._branches, name, guards.incarnation)
        announce = announcing(self._drops.announce, guards.before_publish)
        # 1. Seal: from here on, the rows to judge take no more acknowledged writes.
        with phase("seal"):
            record = await self._seal(handle)
        built_from = record.branch
        for _ in range(_TRIES):
            # 2. Judge them: they must change nothing on this head.
            await self._refuse_dirty(name, built_from)
            if len(built_from.sealed) >= _FORGET_FROM:
                # Refused operations would pile up tokens that change nothing, each a layer for every read.
                record = await self._forget(handle, record, built_from)
                built_from = with_oldest_of(built_from, record.branch)
                continue
            # 3. Build the commit on this head.
            if expected is not None and expected != built_from.commit_id:
                raise _ref_moved(name, built_from.commit_id, expected)
            if guards.before_build is not None:
                await guards.before_build()
            with phase("build"):
                new = await propose(built_from.commit_id)
            if new.commit_id == built_from.commit_id:
                return new, record.branch
            # 4. Pin an old commit, so that it cannot expire before a branch names it.
            record, pin = await self._rooted(handle, record, new)
            # 5. Publish by one compare-and-set. If another operation has moved the head: again from 2, on that one.
            with phase("publish"):
                outcome = await self._publish(
                    handle, record, built_from, new, pin, announce, is_reset=is_reset, cause=cause
                )
            if not isinstance(outcome, BranchVersion):
                return new, outcome
            record = outcome
            built_from = with_oldest_of(built_from, outcome.branch)
        text = f"branch {name.branch_id} moved {_TRIES} times during one operation; try again"
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    async def _rooted(
        self, handle: BranchHandle, record: BranchVersion, new: NewHead
    ) -> tuple[BranchVersion, Pin | None]:
        """Makes the entries of an old commit roots, and then makes sure that it has not expired (rule 14).

        Returns:
            The newest record that is known; and its pin, without which the commit must not be published. None: the
            commit needs no pin, because its row is new.

        Raises:
            TarnError: EXPIRED_COMMIT; as `BranchHandle.change`.
        """
        if new.is_new:
            return record, None
        await self._expired.refuse(handle.name.repository, [new.commit_id])
        pin = Pin(self._branches.new_op_id(), new.commit.metarange_id)

        def decide(now: Branch, op_id: bytes) -> Branch:
            return pin_listing(now, pin, op_id)

        def holds(now: Branch) -> bool:
            return pin in now.pins  # else another operation has published, which removes all pins

        pinned = (await handle.change(decide, holds)).newest
        await self._expired.refuse(handle.name.repository, [new.commit_id])
        return pinned, pin

    async def _seal(self, handle: BranchHandle) -> BranchVersion:
        """Returns a confirmed record whose sealed tokens hold every row that was acknowledged before.

        An empty staging token is not sealed, and neither is that of a branch that is dirty already, so that refused
        operations add no layers. This first look includes the staging token: its rows may undo the sealed ones.
        """
        current = await handle.version()
        await self._refuse_dirty(handle.name, replace(current.branch, sealed=current.branch.tokens))
        is_empty = await self._layers.is_empty(handle.name, current.branch.staging)
        verified = await handle.version()
        if is_empty and verified.branch.same_layers(current.branch):
            return verified
        return await handle.seal()

    async def _refuse_dirty(self, name: BranchName, branch: Branch) -> None:
        """Refuses a branch whose sealed tokens, or whose compacted listing, change its commit (rule 7)."""
        paths = await self._changes.first(name, branch, NAMED_PATHS_MAX + 1)
        if not paths:
            return
        text = (
            f"branch {name.branch_id} has uncommitted changes: {named_paths(paths, len(paths))}. Commit "
            "them or reset the branch first"
        )
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.BRANCH_DIRTY, text, branch=name.branch_id)

    async def _forget(
        self, handle: BranchHandle, record: BranchVersion, built_from: Branch
    ) -> BranchVersion:
        """Removes sealed tokens that change nothing; returns the new record, or another operation's record
        that still has some of them.
        """

        def decide(current: Branch, op_id: bytes) -> Branch:
            return forget_sealed(built_from, current, op_id)

        outcome = await handle.publish(
            record,
            decide,
            still_holds=partial(_still_holds, built_from, None),
            announce=self._drops.announce,
        )
        # Any newer record will do: the sealed tokens that are left are judged again, over its base.
        return outcome.newest if isinstance(outcome, BranchChange) else outcome

    async def _publish(
        self,
        handle: BranchHandle,
        record: BranchVersion,
        built_from: Branch,
        new: NewHead,
        pin: Pin | None,
        announce: Announce,
        *,
        is_reset: bool,
        cause: Cause,
    ) -> Branch | BranchVersion | None:
        """Moves the head; returns the record as `_move`, or a newer version if the head must be proposed again."""

        def decide(current: Branch, op_id: bytes) -> Branch:
            token = self._branches.new_token(current.staging.kind)
            return move_head(
                built_from,
                current,
                new.commit_id,
                token,
                op_id,
                now_us=self._clock.now_us(),
                is_reset=is_reset,
            )

        try:
            outcome = await handle.publish(
                record,
                decide,
                still_holds=partial(_still_holds, built_from, pin),
                announce=announce,
                cause=cause,
            )
        except OutcomeUnknownError:
            # The target of a reset was in the history before, so finding it there proves nothing.
            if is_reset or not await self._publications.find(handle.name, new.commit_id):
                raise
            written = None
        else:
            if isinstance(outcome, BranchVersion):
                return outcome
            written = outcome.written
        await self._publications.note(handle.name, new.commit_id)
        return written

    async def reset(self, name: BranchName) -> None:
        """Discards all uncommitted changes: those acknowledged before this call, and perhaps some of those
        under way (rule 10).

        One compare-and-set. It is repeated only when the record has changed, which proves that the earlier
        attempt was not made; a repetition after a lost answer could discard writes that followed it.

        Raises:
            TarnError: BRANCH_NOT_FOUND; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """
        handle = BranchHandle(self._branches, name)

        def decide(current: Branch, op_id: bytes) -> Branch:
            return self._discarded(current, current.commit_id, op_id)

        await handle.publish(
            await handle.version(),
            decide,
            still_holds=lambda _: True,
            announce=self._drops.announce,
        )

    def _discarded(self, current: Branch, commit_id: CommitId, op_id: bytes) -> Branch:
        token = self._branches.new_token()
        return discard_changes(current, commit_id, token, op_id, now_us=self._clock.now_us())

    async def move_to(
        self,
        name: BranchName,
        new: NewHead,
        expected: CommitId,
        *,
        force: bool,
        user_id: str = "",
    ) -> Branch:
        """Puts a branch on another commit: a hard reset.

        Returns:
            The record that the move wrote, so that no read has to follow, whose failure would hide the move. Other
            operations may have changed it since.

        Args:
            name: the branch.
            new: the commit.
            expected: the head that the caller knows; the branch is not moved from any other.
            force: discard uncommitted changes, as `reset` does; otherwise they refuse the move.
            user_id: who moves the branch, for the reflog.

        Raises:
            TarnError: REF_MOVED if the head is another one; BRANCH_DIRTY; BRANCH_NOT_FOUND; EXPIRED_COMMIT;
                TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """
        cause = Cause(HeadOperation.MOVE, user_id)
        if not force:

            async def propose(_: CommitId) -> NewHead:
                return new

            _, moved = await self._move(
                name, propose, expected, UNGUARDED, is_reset=True, cause=cause
            )
            assert moved is not None, "only a move that is no reset is found in the history"
            return moved
        handle = BranchHandle(self._branches, name)
        record = await handle.version()
        if record.branch.commit_id != expected:
            raise _ref_moved(name, record.branch.commit_id, expected)
        record, pin = await self._rooted(handle, record, new)

        def decide(current: Branch, op_id: bytes) -> Branch:
            return self._discarded(current, new.commit_id, op_id)

        outcome = await handle.publish(
            record,
            decide,
            still_holds=lambda now: now.commit_id == expected and (not pin or pin in now.pins),
            announce=self._drops.announce,
            cause=cause,
        )
        if isinstance(outcome, BranchVersion):
            if outcome.branch.commit_id == expected:
                text = f"other operations removed the pin of a move of branch {name.branch_id}; try again"
                raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)
            raise _ref_moved(name, outcome.branch.commit_id, expected)
        await self._publications.note(name, new.commit_id)
        return outcome.written


def _still_holds(built_from: Branch, pin: Pin | None, current: Branch) -> bool:
    return after_lost_race(built_from, current, pin) is AfterLostRace.REUSE


def _ref_moved(name: BranchName, head: CommitId, expected: CommitId) -> TarnError:
    text = (
        f"branch {name.branch_id} is at commit {head}, not at the expected commit {expected}; look at "
        "the new head and decide again"
    )
    return TarnError(Kind.CONFLICT, Reason.REF_MOVED, text, branch=name.branch_id, commit_id=head)
