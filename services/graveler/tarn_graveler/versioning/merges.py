"""Merges commits into branches, reverts commits, and picks commits (docs/design/versioning.md).

All three are three-way merges of listings into the head of a branch:

    operation     base                source
    merge         the merge bases     the merged commit
    revert        the commit          its parent
    cherry-pick   its parent          the commit
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tarn.block.committed import Committed
from tarn.block.merging import ConflictPage, MergePreview, MergeSides
from tarn.core.clock import Clock
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.changed_paths import NO_PATHS
from tarn.core.listing.choice import REFUSE, Choice
from tarn.core.path_names import NAMED_PATHS_MAX, named_paths
from tarn.kv.records import Repository
from tarn_graveler.branch.handle import UNGUARDED, HeadGuards
from tarn_graveler.branch.head_moves import HeadMoves, NewHead
from tarn_graveler.graph.virtual_bases import MergeBases
from tarn_graveler.guards.fences import BuildBlocks, Fences, ResultT
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.path_records import PathRecords

__all__ = [
    "CHERRY_PICKED_FROM",
    "REVERT_OF",
    "Destination",
    "MergeRequest",
    "Merges",
    "PickRequest",
    "Preview",
    "naming_commit",
]

CHERRY_PICKED_FROM = "tarn.cherry_picked_from"
"""Name under which a commit's metadata records the commit that it was picked from."""
REVERT_OF = "tarn.revert_of"
"""Name under which a commit's metadata records the commit that it undoes."""

_OPERATIONS = {CHERRY_PICKED_FROM: HeadOperation.CHERRY_PICK, REVERT_OF: HeadOperation.REVERT}


@dataclass(frozen=True, slots=True)
class Destination:
    """The branch or ref that takes a merge, as errors name it.

    Attributes:
        kind: `branch`, or `ref` if nothing but a commit is needed.
        name: as the caller wrote it.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


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
        expected: the head that the author knows; nothing is merged into any other. None: into any.
    """

    source: CommitId
    committer: str
    message: str
    metadata: tuple[tuple[str, str], ...] = ()
    choice: Choice = REFUSE
    squash: bool = False
    allow_empty: bool = False
    fast_forward_only: bool = False
    expected: CommitId | None = None


@dataclass(frozen=True, slots=True)
class PickRequest:
    """A revert or a cherry-pick, as its author asks for it.

    Attributes:
        commit_id: the commit to undo or to apply.
        parent_number: the parent that it is compared with, from 1; 0 for the only one.
        committer, message, metadata, choice, expected: as in `MergeRequest`.
        allow_empty: make a commit even if nothing changes.
    """

    commit_id: CommitId
    committer: str
    message: str
    parent_number: int = 0
    metadata: tuple[tuple[str, str], ...] = ()
    choice: Choice = REFUSE
    allow_empty: bool = False
    expected: CommitId | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect that a merge would have.

    Attributes:
        bases: the merge bases, as `MergeBases.of` returns them.
        merge: changes and conflicts.
    """

    bases: tuple[CommitId, ...]
    merge: MergePreview


class Merges:
    """Makes commits from commits, and publishes them on branches."""

    def __init__(
        self,
        commits: Commits,
        committed: Committed,
        moves: HeadMoves,
        clock: Clock,
        path_records: PathRecords,
        bases: MergeBases,
        fences: Fences,
    ) -> None:
        self._fences = fences
        self._commits = commits
        self._bases = bases
        self._committed = committed
        self._moves = moves
        self._clock = clock
        self._path_records = path_records

    async def merge(
        self, name: BranchName, request: MergeRequest, guards: HeadGuards = UNGUARDED
    ) -> NewHead:
        """Merges a commit into a branch; returns the new head.

        Raises:
            TarnError: NOTHING_TO_MERGE; NOT_FAST_FORWARD; MERGE_CONFLICT; TOO_MANY_MERGE_BASES; and as
                `HeadMoves.move`.
        """
        into = Destination("branch", name.branch_id)

        async def propose(head_id: CommitId) -> NewHead:
            return await self.propose(name.repository, head_id, into, request)

        cause = Cause(HeadOperation.MERGE, request.committer)
        return await self._moves.move(
            name, propose, cause=cause, expected=request.expected, guards=guards
        )

    async def propose(
        self, repository: Repository, dest: CommitId, into: Destination, request: MergeRequest
    ) -> NewHead:
        """Makes the commit that merges a commit into `dest`; durable, and not yet named by any branch.

        Raises:
            TarnError: NOTHING_TO_MERGE; NOT_FAST_FORWARD; MERGE_CONFLICT; TOO_MANY_MERGE_BASES; EXPIRED_COMMIT;
                UNAVAILABLE.
        """

        async def make(made: BuildBlocks) -> NewHead:
            return await self._propose(repository, dest, into, request, made)

        return await self.rooted(repository, make)

    async def _propose(
        self,
        repository: Repository,
        dest: CommitId,
        into: Destination,
        request: MergeRequest,
        made: BuildBlocks,
    ) -> NewHead:
        source = await self._commits.get(repository, request.source)
        bases = await self._bases.of(repository, dest, request.source)
        if bases == (request.source,) and not request.allow_empty:
            raise _nothing_to_merge(into, request.source)
        if request.fast_forward_only:
            if bases != (dest,):
                raise _not_fast_forward(into, dest, request.source)
            return NewHead(request.source, source)
        sides = await self._sides(repository, dest, request.source, bases)
        # The head of a branch keeps its objects; nothing keeps those of the source, or of a ref that is no branch.
        made.take_from([request.source] if into.kind == "branch" else [request.source, dest])
        listing, _ = await self.merged(repository, sides, request.choice, into, made)
        head = await self._commits.get(repository, dest)
        if request.squash and listing == head.metarange_id and not request.allow_empty:
            # A squash does not record its source, so only the listing shows that it was made before.
            raise _nothing_to_squash(into, request.source)
        parents = (dest,) if request.squash else (dest, request.source)
        return await self.commit(repository, request, parents, (head, source), listing, made)

    async def bases(
        self, repository: Repository, dest: CommitId, source: CommitId
    ) -> tuple[CommitId, ...]:
        """Returns the merge bases of two commits, as `MergeBases.of`."""
        return await self._bases.of(repository, dest, source)

    async def preview(
        self, repository: Repository, dest: CommitId, source: CommitId, choice: Choice, limit: int
    ) -> Preview:
        """Returns the changes that a merge would make, and the paths that conflict; writes nothing."""
        bases = await self._bases.of(repository, dest, source)
        sides = await self._sides(repository, dest, source, bases)
        merge = await self._committed.preview_merge(
            repository.storage_namespace, sides, choice, limit=limit
        )
        return Preview(bases, merge)

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
        bases = await self._bases.of(repository, dest, source)
        sides = await self._sides(repository, dest, source, bases)
        return await self._committed.merge_conflicts(
            repository.storage_namespace, sides, choice, after=after, limit=limit
        )

    async def preview_pick(
        self,
        repository: Repository,
        dest: CommitId,
        commit_id: CommitId,
        parent_number: int,
        *,
        is_revert: bool,
        limit: int,
    ) -> tuple[CommitId | None, Preview]:
        """Returns the source of a revert or a cherry-pick into `dest`, and its effect; writes nothing.

        Args:
            repository: the repository.
            dest: the commit that would take it.
            commit_id: the commit to undo or to apply.
            parent_number: as in `PickRequest`.
            is_revert: whether it would be undone.
            limit: most conflicts to list.

        Raises:
            TarnError: EXPIRED_COMMIT; INVALID for a parent that the commit does not have.
        """
        commit = await self._commits.get(repository, commit_id)
        parent = await self.parent_of(repository, commit_id, parent_number)
        parent_id = commit.parents[max(parent_number, 1) - 1] if commit.parents else None
        before, after = (parent_id, parent), (commit_id, commit)
        (base_id, base), (source_id, source) = (after, before) if is_revert else (before, after)
        sides = MergeSides(
            base=None if base is None else base.metarange_id,
            source=None if source is None else source.metarange_id,
            dest=(await self._commits.get(repository, dest)).metarange_id,
        )
        merge = await self._committed.preview_merge(
            repository.storage_namespace, sides, REFUSE, limit=limit
        )
        return source_id, Preview(() if base_id is None else (base_id,), merge)

    async def revert(
        self, name: BranchName, request: PickRequest, guards: HeadGuards = UNGUARDED
    ) -> NewHead:
        """Undoes the changes of one commit by a new commit; returns the new head.

        Raises:
            TarnError: NOTHING_TO_COMMIT; MERGE_CONFLICT; EXPIRED_COMMIT; INVALID for a parent that the commit does not
                have; and as `HeadMoves.move`.
        """
        commit = await self._commits.get(name.repository, request.commit_id)
        parent = await self.parent_of(name.repository, request.commit_id, request.parent_number)
        source_id = commit.parents[max(request.parent_number, 1) - 1] if commit.parents else None
        return await self._apply(
            name, request, guards, base=commit, source=parent, source_id=source_id, note=REVERT_OF
        )

    async def cherry_pick(
        self, name: BranchName, request: PickRequest, guards: HeadGuards = UNGUARDED
    ) -> NewHead:
        """Applies the changes of one commit by a new commit; returns the new head. Raises as `revert`."""
        commit = await self._commits.get(name.repository, request.commit_id)
        parent = await self.parent_of(name.repository, request.commit_id, request.parent_number)
        return await self._apply(
            name,
            request,
            guards,
            base=parent,
            source=commit,
            source_id=request.commit_id,
            note=CHERRY_PICKED_FROM,
        )

    async def parent_of(
        self, repository: Repository, commit_id: CommitId, number: int
    ) -> Commit | None:
        """Returns the parent that a commit is compared with; None if it has none.

        Args:
            repository: its repository.
            commit_id: the commit.
            number: the parent, from 1; 0 for the only one.

        Raises:
            TarnError: INVALID for a parent that the commit does not have, and for 0 if it has several.
        """
        commit = await self._commits.get(repository, commit_id)
        count = len(commit.parents)
        if number > max(count, 1) or number < 0:
            text = f"commit {commit_id} has {count} parents, so there is no parent {number}"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, commit_id=commit_id)
        if count > 1 and not number:
            text = (
                f"commit {commit_id} is a merge of {count} parents; say by number which of them "
                "it is compared with (1 is the branch that took the merge)"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, commit_id=commit_id)
        if not count:
            return None
        return await self._commits.get(repository, commit.parents[max(number, 1) - 1])

    async def _apply(
        self,
        name: BranchName,
        request: PickRequest,
        guards: HeadGuards,
        *,
        base: Commit | None,
        source: Commit | None,
        source_id: CommitId | None,
        note: str,
    ) -> NewHead:
        """Publishes a commit with one parent that merges the change from `base` to `source` (id: `source_id`)."""
        listed = dict(request.metadata) | {note: str(request.commit_id)}
        metadata = tuple(sorted(listed.items()))
        into = Destination("branch", name.branch_id)

        async def make(head_id: CommitId, made: BuildBlocks) -> NewHead:
            head = await self._commits.get(name.repository, head_id)
            sides = MergeSides(
                base=None if base is None else base.metarange_id,
                source=None if source is None else source.metarange_id,
                dest=head.metarange_id,
            )
            made.take_from([source_id] if source_id else [])
            with naming_commit(note, request.commit_id):
                listing, _ = await self.merged(name.repository, sides, request.choice, into, made)
            if listing == head.metarange_id and not request.allow_empty:
                raise _nothing_to_apply(name, request, note)
            return await self.commit(
                name.repository, request, (head_id,), (head,), listing, made, metadata
            )

        async def propose(head_id: CommitId) -> NewHead:
            return await self.rooted(name.repository, partial(make, head_id))

        cause = Cause(_OPERATIONS[note], request.committer)
        return await self._moves.move(
            name, propose, cause=cause, expected=request.expected, guards=guards
        )

    async def _sides(
        self,
        repository: Repository,
        dest: CommitId,
        source: CommitId,
        bases: tuple[CommitId, ...],
    ) -> MergeSides:
        """Returns the listings to merge."""
        return MergeSides(
            base=await self._bases.listing(repository, bases),
            source=(await self._commits.get(repository, source)).metarange_id,
            dest=(await self._commits.get(repository, dest)).metarange_id,
        )

    async def rooted(
        self, repository: Repository, make: Callable[[BuildBlocks], Awaitable[ResultT]]
    ) -> ResultT:
        """Returns the commits that `make` makes by `merged` and `commit`, as `Fences.rooted` (rule 13)."""
        return await self._fences.rooted(repository, make)

    async def merged(
        self,
        repository: Repository,
        sides: MergeSides,
        choice: Choice,
        into: Destination,
        made: BuildBlocks,
    ) -> tuple[MetarangeId, int]:
        """Returns the merged listing, durable, and how many of its ranges had to be written.

        Args:
            repository: the repository.
            sides: the listings to merge.
            choice: decides conflicts.
            into: the branch or ref that takes the merge, for errors.
            made: that of `rooted`; the blocks of the listing are added.

        Raises:
            TarnError: MERGE_CONFLICT: names the first paths and the number of all.
        """
        result = await self._committed.merge(
            repository.storage_namespace, sides, choice, limit=NAMED_PATHS_MAX
        )
        made.add(result.made)
        if result.metarange_id is None:
            raise _conflict(into, result.conflicts.paths, result.conflict_count)
        return result.metarange_id, result.ranges_written

    async def commit(
        self,
        repository: Repository,
        request: MergeRequest | PickRequest,
        parents: tuple[CommitId, ...],
        ancestors: tuple[Commit, ...],
        listing: MetarangeId,
        made: BuildBlocks,
        metadata: tuple[tuple[str, str], ...] | None = None,
    ) -> NewHead:
        """Makes a commit of a listing; durable, and not yet named by any branch.

        Args:
            repository: the repository.
            request: its author, message and metadata.
            parents: its parents.
            ancestors: the commits of these parents, in the same order; perhaps more.
            listing: its listing, durable.
            made: that of `rooted`, with the blocks of the listing.
            metadata: instead of that of the request.
        """
        commit = Commit(
            parents=parents,
            metarange_id=listing,
            committer=request.committer,
            message=request.message,
            create_time_us=self._clock.now_us(),
            generation=1 + max(each.generation for each in ancestors[: len(parents)]),
            metadata=request.metadata if metadata is None else metadata,
        )
        await made.check()
        commit_id = await self._commits.add(repository, commit)
        if len(parents) > 1:  # a merge takes every path from one of its parents
            self._path_records.remember(repository, {commit_id: NO_PATHS})
        return NewHead(commit_id, commit, is_new=True)


def _nothing_to_merge(into: Destination, source: CommitId) -> TarnError:
    text = f"nothing to merge: {into} contains commit {source} already"
    reason = Reason.NOTHING_TO_MERGE
    return TarnError(Kind.FAILED_PRECONDITION, reason, text, commit_id=source)


def _nothing_to_squash(into: Destination, source: CommitId) -> TarnError:
    text = f"nothing to merge: {into} has the changes of commit {source} already"
    reason = Reason.NOTHING_TO_MERGE
    return TarnError(Kind.FAILED_PRECONDITION, reason, text, commit_id=source)


def _not_fast_forward(into: Destination, head: CommitId, source: CommitId) -> TarnError:
    text = (
        f"{into} cannot be fast-forwarded to commit {source}: its head {head} is not an "
        "ancestor of it. Merge without fast-forward, or merge the branch into the source first"
    )
    return TarnError(Kind.FAILED_PRECONDITION, Reason.NOT_FAST_FORWARD, text, commit_id=head)


def _nothing_to_apply(name: BranchName, request: PickRequest, note: str) -> TarnError:
    has = "lacks" if note == REVERT_OF else "has"
    text = f"nothing to commit on {name.branch_id}: it {has} the changes of commit {request.commit_id} already"
    return TarnError(
        Kind.FAILED_PRECONDITION, Reason.NOTHING_TO_COMMIT, text, commit_id=request.commit_id
    )


def _conflict(into: Destination, paths: list[str], count: int) -> TarnError:
    noun = "path" if count == 1 else "paths"
    text = (
        f"{count} {noun} changed differently on both sides: {named_paths(paths, count)}. Choose a side "
        f"for them, or change them on {into} first"
    )
    metadata = {into.kind: into.name, "conflict_count": str(count)}
    return TarnError(Kind.FAILED_PRECONDITION, Reason.MERGE_CONFLICT, text, **metadata)


@contextmanager
def naming_commit(note: str, commit_id: CommitId) -> Iterator[None]:
    """Makes a conflict name the commit that could not be reverted or cherry-picked.

    Args:
        note: `REVERT_OF` or `CHERRY_PICKED_FROM`.
        commit_id: the commit.
    """
    try:
        yield
    except TarnError as error:
        if error.reason is not Reason.MERGE_CONFLICT:
            raise
        done = "reverted" if note == REVERT_OF else "cherry-picked"
        text = f"commit {commit_id} cannot be {done}: {error.message}"
        metadata = {**error.metadata, "commit_id": commit_id}
        raise TarnError(error.kind, error.reason, text, **metadata) from error
