"""Reverts a range of commits: `A..B`, newest first.

The range is a line: B and its first parents, back to the first one that is A or an ancestor of A. So it holds the
changes of B's branch since A, and a merge counts as one change, that of its branch. Git would also revert the commits
that the merge brought, one by one, which undoes their changes twice.

All reverts are computed before any becomes visible: each is a merge into the listing of the one before, and the branch
moves to the last one by one compare-and-set. A conflict leaves nothing but commits that no branch names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tarn.block.merging import MergeSides
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import CommitId, MetarangeId
from tarn.kv.records import Repository
from tarn_graveler.branch.handle import UNGUARDED, HeadGuards
from tarn_graveler.branch.head_moves import HeadMoves, NewHead
from tarn_graveler.graph.merge_base import is_ancestor
from tarn_graveler.guards.fences import BuildBlocks
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.commits import Commits
from tarn_graveler.versioning.merges import (
    REVERT_OF,
    Destination,
    Merges,
    PickRequest,
    naming_commit,
)

__all__ = ["REVERTS_MAX", "RangeReverts", "RangeReverted", "RangeRevertRequest"]

REVERTS_MAX = 100
"""Most commits of one range: each is a merge, and all are made again if another operation moves the branch."""

RANGES_WRITTEN_MAX = 1_000
"""Ranges written by the reverts of one range of commits, after which no further revert begins: minutes of work. One
commit alone may need more."""


@dataclass(frozen=True, slots=True)
class RangeRevertRequest:
    """A revert of several commits, as its author asks for it.

    Attributes:
        since: the commits that are not ancestors of this one are undone.
        each: the parameters of every revert; its commit is the newest one of the range, and an empty message stands for
            a default text. Of merge commits, `parent_number` must be 1; other commits ignore it.
        squash: undo all by one commit.
    """

    since: CommitId
    each: PickRequest
    squash: bool = False


@dataclass(frozen=True, slots=True)
class RangeReverted:
    """A revert that was made.

    Attributes:
        head: the new head.
        undone: the commits whose changes were undone, newest first.
    """

    head: NewHead
    undone: tuple[CommitId, ...]


@dataclass(frozen=True, slots=True)
class _Undone:
    """A commit of the range.

    Attributes:
        commit_id: its id.
        source_id: its first parent, from which the revert takes entries; None if it has none.
        sides: the listings of the revert, without destination.
    """

    commit_id: CommitId
    source_id: CommitId | None
    sides: MergeSides


class RangeReverts:
    """Reverts ranges of commits."""

    def __init__(self, commits: Commits, merges: Merges, moves: HeadMoves) -> None:
        self._commits = commits
        self._merges = merges
        self._moves = moves

    async def revert(
        self, name: BranchName, request: RangeRevertRequest, guards: HeadGuards = UNGUARDED
    ) -> RangeReverted:
        """Undoes a range of commits; returns the new head.

        Commits whose changes the branch lacks are passed over, unless empty commits are allowed.

        Raises:
            TarnError: INVALID for an empty or too long range, one with too many changes, and for a merge commit without
                `parent_number` 1; MERGE_CONFLICT, which names the commit; NOTHING_TO_COMMIT; and as `HeadMoves.move`.
        """
        if request.each.parent_number not in (0, 1):
            text = (
                f"a range of commits follows first parents, so the parent number is 1, not "
                f"{request.each.parent_number}"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        line = await self._line(name.repository, request)
        undone: tuple[CommitId, ...] = ()

        async def propose(head_id: CommitId) -> NewHead:
            nonlocal undone

            async def make(made: BuildBlocks) -> tuple[NewHead, tuple[CommitId, ...]]:
                return await self._reverted(name, request, line, head_id, made)

            # One look for the whole chain: each revert takes over ranges of those before it.
            head, undone = await self._merges.rooted(name.repository, make)
            return head

        cause = Cause(HeadOperation.REVERT, request.each.committer)
        head = await self._moves.move(
            name, propose, cause=cause, expected=request.each.expected, guards=guards
        )
        return RangeReverted(head, undone)

    async def _line(self, repository: Repository, request: RangeRevertRequest) -> list[_Undone]:
        """Returns the commits of the range, newest first."""
        last, since = request.each.commit_id, request.since
        ids: list[CommitId] = [last]
        for _ in range(REVERTS_MAX):
            parents = (await self._commits.get(repository, ids[-1])).parents
            if not parents:
                break
            ids.append(parents[0])
        count = await self._count_beyond(repository, ids, since)
        if not count:
            text = f"there is nothing to revert: commit {since} contains commit {last}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, commit_id=last)
        if count > REVERTS_MAX:
            text = (
                f"the range from {since} to {last} has more than {REVERTS_MAX} commits; revert it in parts, newest "
                "first, or move the branch"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, commit_id=last)
        found = []
        for commit_id in ids[:count]:
            commit = await self._commits.get(repository, commit_id)
            number = request.each.parent_number if len(commit.parents) > 1 else 0
            parent = await self._merges.parent_of(repository, commit_id, number)
            source = None if parent is None else parent.metarange_id
            source_id = commit.parents[0] if commit.parents else None
            found.append(
                _Undone(commit_id, source_id, MergeSides(commit.metarange_id, source, None))
            )
        return found

    async def _count_beyond(
        self, repository: Repository, line: Sequence[CommitId], since: CommitId
    ) -> int:
        """Returns how many commits at the begin of a line of first parents are not ancestors of `since`.

        All ancestors of an ancestor are ancestors, so a bisection finds the first one.
        """
        read = partial(self._commits.get_many, repository)
        low, high = 0, len(line)
        while low < high:
            middle = (low + high) // 2
            if await is_ancestor(read, line[middle], since):
                high = middle
            else:
                low = middle + 1
        return low

    async def _reverted(
        self,
        name: BranchName,
        request: RangeRevertRequest,
        line: Sequence[_Undone],
        head_id: CommitId,
        made: BuildBlocks,
    ) -> tuple[NewHead, tuple[CommitId, ...]]:
        """Makes the reverts on a head; returns the last one, and which commits changed something."""
        repository, each = name.repository, request.each
        into = Destination("branch", name.branch_id)
        at = NewHead(head_id, await self._commits.get(repository, head_id))
        listing, written_count = at.commit.metarange_id, 0
        undone: list[CommitId] = []
        made.take_from(each.source_id for each in line if each.source_id)
        for one in line:
            commit_id = one.commit_id
            if undone and written_count >= RANGES_WRITTEN_MAX:
                raise _too_many_changes(request, line[0].commit_id, commit_id)
            with naming_commit(REVERT_OF, commit_id):
                after, count = await self._merges.merged(
                    repository, replace(one.sides, dest=listing), each.choice, into, made
                )
            if after == listing and not each.allow_empty:
                continue
            written_count += count
            listing = after
            undone.append(commit_id)
            if not request.squash:
                at = await self._commit(repository, each, at, after, commit_id, made)
        is_same = request.squash and listing == at.commit.metarange_id
        if not undone or (is_same and not each.allow_empty):
            raise _nothing_to_revert(name, request)
        if request.squash:
            of = f"{request.since}..{each.commit_id}"
            at = await self._commit(repository, each, at, listing, of, made)
        return at, tuple(undone)

    async def _commit(
        self,
        repository: Repository,
        each: PickRequest,
        parent: NewHead,
        listing: MetarangeId,
        of: str,
        made: BuildBlocks,
    ) -> NewHead:
        metadata = tuple(sorted((dict(each.metadata) | {REVERT_OF: of}).items()))
        request = replace(each, message=each.message or f"Revert {of}")
        return await self._merges.commit(
            repository, request, (parent.commit_id,), (parent.commit,), listing, made, metadata
        )


def _too_many_changes(
    request: RangeRevertRequest, newest: CommitId, commit_id: CommitId
) -> TarnError:
    text = (
        f"the commits from {request.since} to {newest} change too much for one revert; revert it in parts, newest "
        f"first: the first part can be {commit_id}..{newest}"
    )
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, commit_id=commit_id)


def _nothing_to_revert(name: BranchName, request: RangeRevertRequest) -> TarnError:
    last = request.each.commit_id
    text = (
        f"nothing to commit on {name.branch_id}: without the commits from {request.since} to {last} it "
        "would be the same"
    )
    return TarnError(Kind.FAILED_PRECONDITION, Reason.NOTHING_TO_COMMIT, text, commit_id=last)
