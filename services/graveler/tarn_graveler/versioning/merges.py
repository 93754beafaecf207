"""Merges commits into branches, reverts commits, and picks commits (docs/design/versioning.md).

All three are three-way merges of listings into the head of a branch:

    operation     base                source
    merge         the merge base      the merged commit
    revert        the commit          its parent
    cherry-pick   its parent          the commit
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tarn.block.committed import Committed
from tarn.block.merging import ConflictPage, MergePreview, MergeSides
from tarn.core.clock import Clock
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.choice import REFUSE, Choice
from tarn.kv.records import Repository
from tarn_graveler.branch.head_moves import HeadMoves, NewHead
from tarn_graveler.branch.records import BranchName
from tarn_graveler.history.commits import Commits
from tarn_graveler.history.merge_base import merge_base

__all__ = ["CHERRY_PICKED_FROM", "REVERT_OF", "MergeRequest", "Merges", "PickRequest", "Preview"]

CHERRY_PICKED_FROM = "tarn.cherry_picked_from"
"""Name under which a commit's metadata records the commit that it was picked from."""
REVERT_OF = "tarn.revert_of"
"""Name under which a commit's metadata records the commit that it undoes."""

_OPERATIONS = {CHERRY_PICKED_FROM: HeadOperation.CHERRY_PICK, REVERT_OF: HeadOperation.REVERT}
_NAMED_CONFLICTS = 10


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A merge, as its author asks for it.

    Attributes:
        source: the commit to merge.
        committer: id of the user.
        message: message of the merge commit.
        metadata: pairs of name and value, sorted by name.
        choice: decides conflicts.
        squash: the merge commit has one parent only, the former head.
        allow_empty: make a merge commit even if the branch contains the source already.
        fast_forward_only: move the branch to the source instead of making a merge commit; refuse a branch
            that has commits of its own.
    """

    source: CommitId
    committer: str
    message: str
    metadata: tuple[tuple[str, str], ...] = ()
    choice: Choice = REFUSE
    squash: bool = False
    allow_empty: bool = False
    fast_forward_only: bool = False


@dataclass(frozen=True, slots=True)
class PickRequest:
    """A revert or a cherry-pick, as its author asks for it.

    Attributes:
        commit_id: the commit to undo or to apply.
        parent_number: the parent that it is compared with, from 1; 0 for the only one.
        committer, message, metadata, choice: as in `MergeRequest`.
        allow_empty: make a commit even if nothing changes.
    """

    commit_id: CommitId
    committer: str
    message: str
    parent_number: int = 0
    metadata: tuple[tuple[str, str], ...] = ()
    choice: Choice = REFUSE
    allow_empty: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect that a merge would have.

    Attributes:
        base: the merge base; None if the histories are unrelated.
        merge: changes and conflicts.
    """

    base: CommitId | None
    merge: MergePreview


class Merges:
    """Makes commits from commits, and publishes them on branches."""

    def __init__(
        self, commits: Commits, committed: Committed, moves: HeadMoves, clock: Clock
    ) -> None:
        self._commits = commits
        self._committed = committed
        self._moves = moves
        self._clock = clock

    async def merge(self, name: BranchName, request: MergeRequest) -> NewHead:
        """Merges a commit into a branch; returns the new head.

        Raises:
            TarnError: NOTHING_TO_MERGE; NOT_FAST_FORWARD; MERGE_CONFLICT; and as `HeadMoves.move`.
        """
        repository = name.repository
        source = await self._commits.get(repository, request.source)

        async def propose(head_id: CommitId) -> NewHead:
            base_id, sides = await self._sides(repository, head_id, request.source)
            if base_id == request.source and not request.allow_empty:
                raise _nothing_to_merge(name, request.source)
            if request.fast_forward_only:
                if base_id != head_id:
                    raise _not_fast_forward(name, head_id, request.source)
                return NewHead(request.source, source)
            listing = await self._merged(name, sides, request.choice)
            head = await self._commits.get(repository, head_id)
            if request.squash and listing == head.metarange_id and not request.allow_empty:
                # A squash does not record its source, so only the listing shows that it was made before.
                raise _nothing_to_squash(name, request.source)
            parents = (head_id,) if request.squash else (head_id, request.source)
            return await self._commit(name, request, parents, (head, source), listing)

        cause = Cause(HeadOperation.MERGE, request.committer)
        return await self._moves.move(name, propose, cause=cause)

    async def preview(
        self, repository: Repository, dest: CommitId, source: CommitId, choice: Choice, limit: int
    ) -> Preview:
        """Finds what a merge would change and which paths conflict; writes nothing."""
        base, sides = await self._sides(repository, dest, source)
        merge = await self._committed.preview_merge(
            repository.storage_namespace, sides, choice, limit=limit
        )
        return Preview(base, merge)

    async def conflicts(
        self,
        repository: Repository,
        dest: CommitId,
        source: CommitId,
        choice: Choice,
        *,
        after: str,
        limit: int,
    ) -> ConflictPage:
        """Returns the conflicts of a merge at paths greater than `after`."""
        _, sides = await self._sides(repository, dest, source)
        return await self._committed.merge_conflicts(
            repository.storage_namespace, sides, choice, after=after, limit=limit
        )

    async def revert(self, name: BranchName, request: PickRequest) -> NewHead:
        """Undoes the changes of one commit by a new commit; returns the new head.

        Raises:
            TarnError: NOTHING_TO_COMMIT; MERGE_CONFLICT; INVALID for a parent that the commit does not have;
                and as `HeadMoves.move`.
        """
        commit = await self._commits.get(name.repository, request.commit_id)
        parent = await self._parent(name.repository, request, commit)
        return await self._apply(name, request, base=commit, source=parent, note=REVERT_OF)

    async def cherry_pick(self, name: BranchName, request: PickRequest) -> NewHead:
        """Applies the changes of one commit by a new commit; returns the new head. Raises as `revert`."""
        commit = await self._commits.get(name.repository, request.commit_id)
        parent = await self._parent(name.repository, request, commit)
        return await self._apply(name, request, base=parent, source=commit, note=CHERRY_PICKED_FROM)

    async def _parent(
        self, repository: Repository, request: PickRequest, commit: Commit
    ) -> Commit | None:
        """The parent that a commit is compared with; None if it has none."""
        count, number = len(commit.parents), request.parent_number
        if number > max(count, 1) or number < 0:
            text = f"commit {request.commit_id} has {count} parents, so there is no parent {number}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        if count > 1 and not number:
            text = (
                f"commit {request.commit_id} is a merge of {count} parents; say by number which of them "
                "it is compared with (1 is the branch that took the merge)"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        if not count:
            return None
        return await self._commits.get(repository, commit.parents[max(number, 1) - 1])

    async def _apply(
        self,
        name: BranchName,
        request: PickRequest,
        *,
        base: Commit | None,
        source: Commit | None,
        note: str,
    ) -> NewHead:
        """Publishes a commit with one parent that merges the change from `base` to `source`."""
        listed = dict(request.metadata) | {note: str(request.commit_id)}
        metadata = tuple(sorted(listed.items()))

        async def propose(head_id: CommitId) -> NewHead:
            head = await self._commits.get(name.repository, head_id)
            sides = MergeSides(
                base=None if base is None else base.metarange_id,
                source=None if source is None else source.metarange_id,
                dest=head.metarange_id,
            )
            listing = await self._merged(name, sides, request.choice)
            if listing == head.metarange_id and not request.allow_empty:
                raise _nothing_to_apply(name, request, note)
            return await self._commit(name, request, (head_id,), (head,), listing, metadata)

        cause = Cause(_OPERATIONS[note], request.committer)
        return await self._moves.move(name, propose, cause=cause)

    async def _sides(
        self, repository: Repository, dest: CommitId, source: CommitId
    ) -> tuple[CommitId | None, MergeSides]:
        """Returns the merge base of two commits, None if they are unrelated, and the listings to merge."""
        base = await merge_base(partial(self._commits.get_many, repository), dest, source)
        listings = [
            None if each is None else (await self._commits.get(repository, each)).metarange_id
            for each in (base, source, dest)
        ]
        return base, MergeSides(*listings)

    async def _merged(self, name: BranchName, sides: MergeSides, choice: Choice) -> MetarangeId:
        """Returns the merged listing, durable.

        Raises:
            TarnError: MERGE_CONFLICT: names the first paths and the number of all.
        """
        result = await self._committed.merge(
            name.repository.storage_namespace, sides, choice, limit=_NAMED_CONFLICTS
        )
        if result.metarange_id is None:
            raise _conflict(name, result.conflicts.paths, result.conflict_count)
        return result.metarange_id

    async def _commit(
        self,
        name: BranchName,
        request: MergeRequest | PickRequest,
        parents: tuple[CommitId, ...],
        ancestors: tuple[Commit, ...],
        listing: MetarangeId,
        metadata: tuple[tuple[str, str], ...] | None = None,
    ) -> NewHead:
        commit = Commit(
            parents=parents,
            metarange_id=listing,
            committer=request.committer,
            message=request.message,
            create_time_us=self._clock.now_us(),
            generation=1 + max(each.generation for each in ancestors[: len(parents)]),
            metadata=request.metadata if metadata is None else metadata,
        )
        return NewHead(await self._commits.add(name.repository, commit), commit)


def _nothing_to_merge(name: BranchName, source: CommitId) -> TarnError:
    text = f"nothing to merge: branch {name.branch_id} contains commit {source} already"
    reason = Reason.NOTHING_TO_MERGE
    return TarnError(Kind.FAILED_PRECONDITION, reason, text, commit_id=source)


def _nothing_to_squash(name: BranchName, source: CommitId) -> TarnError:
    text = f"nothing to merge: branch {name.branch_id} has the changes of commit {source} already"
    reason = Reason.NOTHING_TO_MERGE
    return TarnError(Kind.FAILED_PRECONDITION, reason, text, commit_id=source)


def _not_fast_forward(name: BranchName, head: CommitId, source: CommitId) -> TarnError:
    text = (
        f"branch {name.branch_id} cannot be fast-forwarded to commit {source}: its head {head} is not an "
        "ancestor of it. Merge without fast-forward, or merge the branch into the source first"
    )
    return TarnError(Kind.FAILED_PRECONDITION, Reason.NOT_FAST_FORWARD, text, commit_id=head)


def _nothing_to_apply(name: BranchName, request: PickRequest, note: str) -> TarnError:
    has = "lacks" if note == REVERT_OF else "has"
    text = f"nothing to commit on {name.branch_id}: it {has} the changes of commit {request.commit_id} already"
    return TarnError(
        Kind.FAILED_PRECONDITION, Reason.NOTHING_TO_COMMIT, text, commit_id=request.commit_id
    )


def _conflict(name: BranchName, paths: list[str], count: int) -> TarnError:
    more = ", …" if count > len(paths) else ""
    noun = "path" if count == 1 else "paths"
    text = (
        f"{count} {noun} changed differently on both sides: {', '.join(paths)}{more}. Choose a side for "
        f"them, or change them on branch {name.branch_id} first"
    )
    return TarnError(
        Kind.FAILED_PRECONDITION,
        Reason.MERGE_CONFLICT,
        text,
        branch=name.branch_id,
        conflict_count=str(count),
    )
