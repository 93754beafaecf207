"""Merges, reverts and picks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tarn.client.calls import PAGE_SIZE, Calls
from tarn.client.operations.conflict_choices import choices_to_wire, side_to_wire
from tarn.client.paging import Listing
from tarn.client.values import Choice, Commit, Conflict, MergePreview, RevertedRange, Side

__all__ = ["MergeOperations"]


class MergeOperations(Calls):
    """Merges, reverts and picks commits."""

    async def merge(
        self,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        squash: bool = False,
        allow_empty: bool = False,
        fast_forward_only: bool = False,
        expected_commit_id: str = "",
    ) -> Commit:
        """Merges the commit of a ref into a branch; returns the new head.

        Args:
            repository_id: the repository.
            branch_id: the branch that takes the merge.
            source_ref: the ref to merge.
            message: empty for a default text that names both refs.
            metadata: of the merge commit.
            choices: see the class.
            default_side: see the class.
            squash: make a commit with one parent, the former head.
            allow_empty: make a merge commit even if there is nothing to merge.
            fast_forward_only: move the branch to the source's commit; make no commit.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.

        Raises:
            NothingToMergeError: the branch contains the source already, and `allow_empty` is False.
            NotFastForwardError: with `fast_forward_only`, the branch has commits that the source lacks.
        """
        return Commit.of(
            await self.graveler.merge(
                self.call(),
                repository_id,
                branch_id,
                source_ref,
                message=message,
                metadata=metadata,
                choices=choices_to_wire(choices),
                default_side=side_to_wire(default_side),
                squash=squash,
                allow_empty=allow_empty,
                fast_forward_only=fast_forward_only,
                expected_commit_id=expected_commit_id,
            )
        )

    async def create_merge_branch(
        self,
        repository_id: str,
        branch_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        allow_empty: bool = False,
    ) -> Commit:
        """Creates a branch at the merge of two refs, which stay as they are; returns the merge commit.

        The merge commit is the one that `merge` would make of the two commits.

        Args:
            repository_id: the repository.
            branch_id: the branch to create.
            destination_ref: the ref that takes the merge; uncommitted changes of a branch have no part.
            source_ref: the ref to merge.
            message: empty for a default text that names both refs.
            metadata: of the merge commit.
            choices: see the class.
            default_side: see the class.
            allow_empty: make a merge commit even if there is nothing to merge.

        Raises:
            BranchExistsError, TagExistsError: the name is taken.
            NothingToMergeError: the destination contains the source already, and `allow_empty` is False.
        """
        return Commit.of(
            await self.graveler.create_merge_branch(
                self.call(),
                repository_id,
                branch_id,
                destination_ref,
                source_ref,
                message=message,
                metadata=metadata,
                choices=choices_to_wire(choices),
                default_side=side_to_wire(default_side),
                allow_empty=allow_empty,
            )
        )

    async def preview_merge(
        self,
        repository_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
    ) -> MergePreview:
        """Returns the effect of a merge without making it; `list_conflicts` lists its conflicts."""
        return MergePreview.of(
            await self.graveler.preview_merge(
                self.call(),
                repository_id,
                destination_ref,
                source_ref,
                choices=choices_to_wire(choices),
                default_side=side_to_wire(default_side),
                page_size=1,
            )
        )

    async def find_merge_base(
        self, repository_id: str, destination_ref: str, source_ref: str
    ) -> tuple[str, ...]:
        """Returns the ids of the merge bases of two refs: one; several after criss-cross merges, greatest generation
        first; none for unrelated histories.

        Raises:
            TooManyMergeBasesError: there are more than 32.
        """
        found = await self.graveler.find_merge_base(
            self.call(), repository_id, destination_ref, source_ref
        )
        return tuple(found.base_commit_ids)

    def list_conflicts(
        self,
        repository_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        page_size: int = PAGE_SIZE,
    ) -> Listing[Conflict]:
        """Lists the conflicts of a merge that no choice decides, in byte order of the paths.

        All pages are about the two commits that the first one read.
        """
        commits = [destination_ref, source_ref]

        async def read(after: str) -> tuple[Iterable[Conflict], str]:
            page = await self.graveler.preview_merge(
                self.call(),
                repository_id,
                *commits,
                choices=choices_to_wire(choices),
                default_side=side_to_wire(default_side),
                after=after,
                page_size=page_size,
            )
            commits[:] = page.destination_commit_id, page.source_commit_id
            return map(Conflict.of, page.conflicts), page.next_after

        return Listing(read)

    async def revert(
        self,
        repository_id: str,
        branch_id: str,
        ref: str,
        *,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> Commit:
        """Undoes the changes of one commit by a new commit, which it returns.

        Args:
            repository_id: the repository.
            branch_id: the branch that takes the new commit.
            ref: the commit to undo.
            parent_number: the parent, from 1, whose content is restored; needed for a merge commit only.
            message: empty for a default text that names the commit.
            metadata: of the new commit.
            choices: see the class; the source is the commit's parent.
            default_side: see the class.
            allow_empty: commit even if the branch lacks all changes of the commit.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.

        Raises:
            NothingToCommitError: the branch lacks all changes of the commit, and `allow_empty` is False.
            InvalidArgumentError: the commit is a merge and `parent_number` is 0, or it has no such parent.
        """
        return Commit.of(
            await self.graveler.revert(
                self.call(),
                repository_id,
                branch_id,
                ref,
                parent_number=parent_number,
                message=message,
                metadata=metadata,
                choices=choices_to_wire(choices),
                default_side=side_to_wire(default_side),
                allow_empty=allow_empty,
                expected_commit_id=expected_commit_id,
            )
        )

    async def revert_range(
        self,
        repository_id: str,
        branch_id: str,
        since_ref: str,
        ref: str,
        *,
        squash: bool = False,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> RevertedRange:
        """Undoes up to 100 commits, newest first; all of it becomes visible together, or nothing.

        The range is `ref` and its first parents, without `since_ref` and its ancestors (`tarn revert SINCE..REF`).

        Args:
            repository_id: the repository.
            branch_id: the branch that takes the new commits.
            since_ref: the range begins after it; not empty.
            ref: the newest commit to undo.
            squash: make one commit instead of one for each.
            parent_number: 1 if there are merge commits in the range.
            message: of each new commit; empty for a default text that names the undone commit.
            metadata: of each new commit.
            choices: see the class; the source is the parent of the undone commit.
            default_side: see the class.
            allow_empty: commit even where the branch lacks all changes of a commit; otherwise it is passed over.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.
        """
        if not since_ref:
            raise ValueError("since_ref is empty; to undo one commit, call revert")
        sent = await self.graveler.revert_range(
            self.call(),
            repository_id,
            branch_id,
            since_ref,
            ref,
            squash=squash,
            parent_number=parent_number,
            message=message,
            metadata=metadata,
            choices=choices_to_wire(choices),
            default_side=side_to_wire(default_side),
            allow_empty=allow_empty,
            expected_commit_id=expected_commit_id,
        )
        return RevertedRange(Commit.of(sent.commit), tuple(sent.reverted_commit_ids))

    async def cherry_pick(
        self,
        repository_id: str,
        branch_id: str,
        ref: str,
        *,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> Commit:
        """Applies the changes of one commit to a branch by a new commit, which it returns.

        The arguments and errors are those of `revert`; the source of conflicts is the commit.
        """
        return Commit.of(
            await self.graveler.cherry_pick(
                self.call(),
                repository_id,
                branch_id,
                ref,
                parent_number=parent_number,
                message=message,
                metadata=metadata,
                choices=choices_to_wire(choices),
                default_side=side_to_wire(default_side),
                allow_empty=allow_empty,
                expected_commit_id=expected_commit_id,
            )
        )
