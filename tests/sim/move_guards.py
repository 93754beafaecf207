"""Guards of merges, resets and hard moves, and the replacements that disable them (see `lake_guards`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.sim.overwriting import overwriting
from tests.support.faults.guards import Guard, Weakening

import tarn_graveler.branch.head_moves
import tarn_graveler.records.branches
from tarn.core.branch import Branch, Token, discard_changes, move_head
from tarn.core.head_change import Cause, HeadChange, HeadOperation
from tarn.core.ids import CommitId
from tarn.core.reflog import begin_reflog
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.head_moves import HeadMoves, NewHead
from tarn_graveler.records.branches import BranchChange, Branches, BranchName, BranchVersion

__all__ = ["MOVE_GUARDS", "RARE_MOVE_GUARDS"]


def _keep_token(
    built_from: Branch, current: Branch, commit_id: CommitId, token: Token, op_id: bytes, **how: Any
) -> Branch:
    """Keeps the staging token, as if its replacement at the beginning were enough."""
    after = move_head(built_from, current, commit_id, token, op_id, **how)
    return replace(after, staging=current.staging, sealed=after.sealed[1:])


def _forget_token(
    built_from: Branch, current: Branch, commit_id: CommitId, token: Token, op_id: bytes, **how: Any
) -> Branch:
    """Removes the replaced token together with those that change nothing."""
    after = move_head(built_from, current, commit_id, token, op_id, **how)
    return replace(after, sealed=after.sealed[1:])


async def _refuse_never(self: HeadMoves, name: BranchName, branch: Branch) -> None:
    """Refuses no branch, so that staged rows are dropped with their tokens."""


async def _seal_nothing(self: HeadMoves, handle: BranchHandle) -> BranchVersion:
    """Leaves the staging token unsealed; only tokens that are sealed already are checked for changes."""
    return await handle.version()


async def _move_from_any(
    self: HeadMoves,
    name: BranchName,
    new: NewHead,
    expected: CommitId,
    *,
    force: bool,
    user_id: str = "",
) -> Branch:
    """Moves the branch from any head."""
    del expected
    cause = Cause(HeadOperation.MOVE, user_id)
    if not force:

        async def propose(head: CommitId) -> NewHead:
            return new

        await self.move(name, propose, is_reset=True, cause=cause)
        return (await self._branches.fresh(name)).branch
    handle = BranchHandle(self._branches, name)

    def decide(current: Branch, op_id: bytes) -> Branch:
        token = self._branches.new_token()
        now_us = self._clock.now_us()
        return discard_changes(current, new.commit_id, token, op_id, now_us=now_us)

    outcome = await handle.publish(
        await handle.version(),
        decide,
        still_holds=lambda _: True,
        announce=self._drops.announce,
        cause=cause,
    )
    assert isinstance(outcome, BranchChange)
    return outcome.written


_begin_reflog = begin_reflog


def _forget_moves(
    branch: Branch,
    cause: Cause,
    newest: HeadChange | None,
    *,
    entry_id: bytes,
    now_us: int,
    continues: bool = False,
) -> Branch:
    """Lets each branch of a name begin as if no other had been moved."""
    begun = _begin_reflog(
        branch, cause, newest, entry_id=entry_id, now_us=now_us, continues=continues
    )
    return replace(begun, move_time_us=0)


def _is_reset(before: Branch, after: Branch) -> bool:
    return after.reset_count != before.reset_count


MOVE_GUARDS: Sequence[Guard] = (
    Guard(
        "move-seals",
        "9",
        "I1 I3 I6 I8",
        "the last step of a merge does not replace the staging token",
        (Weakening(tarn_graveler.branch.head_moves, "move_head", _keep_token),),
        runs=300,
    ),
    Guard(
        "move-keeps-rows",
        "9",
        "I1 I3",
        "the token that a merge replaces does not stay in the record",
        (Weakening(tarn_graveler.branch.head_moves, "move_head", _forget_token),),
        runs=300,
    ),
    Guard(
        "move-verifies",
        "7",
        "I1 I3 I8",
        "a merge looks for uncommitted changes without a confirmed seal",
        (Weakening(HeadMoves, "_seal", _seal_nothing),),
        runs=300,
    ),
    Guard(
        "clean-tokens-only",
        "7",
        "I1 I3 I8",
        "a merge removes sealed tokens although their rows change the head",
        (Weakening(HeadMoves, "_refuse_dirty", _refuse_never),),
        runs=300,
    ),
    Guard(
        "move-expects",
        "10",
        "I1 I3 I4 I5 I8",
        "a hard move does not compare the head with the one that its caller expects",
        (Weakening(HeadMoves, "move_to", _move_from_any),),
        runs=300,
    ),
    Guard(
        "reset-compares",
        "10",
        "I1 I3 I4 I5 I8",
        "a reset sets the record unconditionally",
        (Weakening(Branches, "compare_and_set", overwriting(_is_reset)),),
        runs=300,
    ),
)

RARE_MOVE_GUARDS: Sequence[Guard] = (
    Guard(
        "moves-of-all-lives",
        "9",
        "I6",
        "a restored branch does not know the moves of its former life",
        (Weakening(tarn_graveler.records.branches, "begin_reflog", _forget_moves),),
        runs=200,
    ),
)
"""Guards for which no seed is recorded; `tests.sim.rare_guards` names the tests that detect their absence."""
