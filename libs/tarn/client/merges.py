"""Client of graveler's operations that make commits from commits: merge, revert and cherry-pick."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as pb
from tarn_proto.graveler.v1.merge_service_rpc import MergeServiceClient

__all__ = ["MergeClient"]


class MergeClient(RpcClient):
    """Merges, reverts and picks commits. Methods raise the `TarnError` that graveler raised.

    The methods share two arguments about conflicts, paths that both sides changed differently: `choices` names
    the winning side for the paths of a pattern, and the first pattern that matches a path decides; `default_side`
    decides the paths that no pattern matches. A conflict that neither decides fails the operation.

    A call whose answer was lost (OUTCOME_UNKNOWN) may have made its commit: look at the branch before sending it
    again.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._merge_service = MergeServiceClient(transport)

    async def merge(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[pb.ConflictChoice] = (),
        default_side: pb.MergeSide = pb.MERGE_SIDE_UNSPECIFIED,
        squash: bool = False,
        allow_empty: bool = False,
        fast_forward_only: bool = False,
        expected_commit_id: str = "",
    ) -> commit_pb.Commit:
        """Merges the commit of a ref into a branch; returns the new head.

        Args:
            call: context of the call.
            repository_id: the repository.
            branch_id: the branch that takes the merge.
            source_ref: the ref whose commit is merged. Uncommitted changes of a branch are not merged.
            message: empty for a default text that names both refs.
            metadata: of the merge commit.
            choices: see the class.
            default_side: see the class.
            squash: make a commit with one parent, the former head.
            allow_empty: make a merge commit even if there is nothing to merge.
            fast_forward_only: move the branch to the source's commit; make no commit.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.

        Raises:
            TarnError: FAILED_PRECONDITION with NOTHING_TO_MERGE, BRANCH_DIRTY or NOT_FAST_FORWARD; MERGE_CONFLICT.
        """
        request = pb.MergeRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            source_ref=source_ref,
            message=message,
            metadata=metadata,
            choices=choices,
            default_side=default_side,
            squash=squash,
            allow_empty=allow_empty,
            fast_forward_only=fast_forward_only,
            expected_commit_id=expected_commit_id,
        )
        return await self.merge_as(call, request)

    async def merge_as(self, call: Call, request: pb.MergeRequest) -> commit_pb.Commit:
        """As `merge`, with its arguments in a request."""
        answer = await self._merge_service.Merge(request, call)
        return answer.commit

    async def create_merge_branch(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[pb.ConflictChoice] = (),
        default_side: pb.MergeSide = pb.MERGE_SIDE_UNSPECIFIED,
        allow_empty: bool = False,
    ) -> commit_pb.Commit:
        """Creates a branch at the merge of two refs, which stay as they are; returns the merge commit.

        Args:
            call: context of the call.
            repository_id: the repository.
            branch_id: the branch to create.
            destination_ref: the ref that takes the merge; its uncommitted changes are ignored.
            source_ref: the ref whose commit is merged.
            message: empty for a default text that names both refs.
            metadata: of the merge commit.
            choices: see the class.
            default_side: see the class.
            allow_empty: make a merge commit even if there is nothing to merge.

        Raises:
            TarnError: ALREADY_EXISTS with BRANCH_EXISTS or TAG_EXISTS; FAILED_PRECONDITION with NOTHING_TO_MERGE;
                MERGE_CONFLICT.
        """
        request = pb.CreateMergeBranchRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            destination_ref=destination_ref,
            source_ref=source_ref,
            message=message,
            metadata=metadata,
            choices=choices,
            default_side=default_side,
            allow_empty=allow_empty,
        )
        answer = await self._merge_service.CreateMergeBranch(request, call)
        return answer.commit

    async def find_merge_base(
        self, call: Call, repository_id: str, destination_ref: str, source_ref: str
    ) -> pb.FindMergeBaseResponse:
        """Returns the commits of two refs, and their merge bases: one; several after criss-cross merges; or none."""
        request = pb.FindMergeBaseRequest(
            repository_id=repository_id, destination_ref=destination_ref, source_ref=source_ref
        )
        return await self._merge_service.FindMergeBase(request, call)

    async def preview_merge(
        self,
        call: Call,
        repository_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        choices: Sequence[pb.ConflictChoice] = (),
        default_side: pb.MergeSide = pb.MERGE_SIDE_UNSPECIFIED,
        after: str = "",
        page_size: int = 0,
    ) -> pb.PreviewMergeResponse:
        """Returns the effect of a merge without making it: counts, and a page of the undecided conflicts.

        Args:
            call: context of the call.
            repository_id: the repository.
            destination_ref: the ref that would take the merge.
            source_ref: the ref whose commit would be merged.
            choices: see the class.
            default_side: see the class.
            after: only conflicts at greater paths, and no counts; empty for the first page.
            page_size: most conflicts of the page, at most 1,000; 0 for 100.
        """
        request = pb.PreviewMergeRequest(
            repository_id=repository_id,
            destination_ref=destination_ref,
            source_ref=source_ref,
            choices=choices,
            default_side=default_side,
            after=after,
            page_size=page_size,
        )
        return await self._merge_service.PreviewMerge(request, call)

    async def preview_pick(
        self,
        call: Call,
        repository_id: str,
        destination_ref: str,
        ref: str,
        *,
        is_revert: bool,
        parent_number: int = 0,
        page_size: int = 0,
    ) -> pb.PreviewMergeResponse:
        """Returns what the revert or the cherry-pick of a commit would change, without making it; as `preview_merge`.

        Args:
            call: context of the call.
            repository_id: the repository.
            destination_ref: the ref that would take the new commit.
            ref: of the commit.
            is_revert: whether it would be undone; otherwise it would be applied.
            parent_number: of the parent, from 1, with which a merge commit is compared; 0 for other commits.
            page_size: most conflicts that are listed, at most 1,000; 0 for 100.
        """
        request = pb.PreviewPickRequest(
            repository_id=repository_id,
            destination_ref=destination_ref,
            ref=ref,
            is_revert=is_revert,
            parent_number=parent_number,
            page_size=page_size,
        )
        return (await self._merge_service.PreviewPick(request, call)).preview

    async def all_conflicts(
        self,
        new_call: Callable[[], Call],
        repository_id: str,
        preview: pb.PreviewMergeResponse,
        *,
        choices: Sequence[pb.ConflictChoice] = (),
        default_side: pb.MergeSide = pb.MERGE_SIDE_UNSPECIFIED,
        page_size: int = 0,
    ) -> AsyncIterator[pb.MergeConflict]:
        """Yields the conflicts of a preview and of all pages after it, in byte order of their paths.

        Later pages name the two commits that the preview read, so a branch that moves meanwhile changes nothing.

        Args:
            new_call: returns the context of one call; called once for each further page.
            repository_id: the repository of the preview.
            preview: an answer of `preview_merge`.
            choices: those of the preview.
            default_side: that of the preview.
            page_size: as for `preview_merge`.
        """
        page = preview
        while True:
            for conflict in page.conflicts:
                yield conflict
            if not page.next_after:
                return
            page = await self.preview_merge(
                new_call(),
                repository_id,
                preview.destination_commit_id,
                preview.source_commit_id,
                choices=choices,
                default_side=default_side,
                after=page.next_after,
                page_size=page_size,
            )

    async def revert(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        ref: str,
        *,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[pb.ConflictChoice] = (),
        default_side: pb.MergeSide = pb.MERGE_SIDE_UNSPECIFIED,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> commit_pb.Commit:
        """Undoes the changes of one commit by a new commit; returns the new commit.

        Args:
            call: context of the call.
            repository_id: the repository.
            branch_id: the branch that takes the new commit.
            ref: the ref of the commit to undo.
            parent_number: the parent, from 1, whose content is restored; needed for a merge commit only.
            message: empty for a default text that names the commit.
            metadata: of the new commit, which also gets `tarn.revert_of`.
            choices: see the class; the source is the commit's parent.
            default_side: see the class.
            allow_empty: commit even if the branch lacks all changes of the commit.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.

        Raises:
            TarnError: FAILED_PRECONDITION with NOTHING_TO_COMMIT or BRANCH_DIRTY; MERGE_CONFLICT; INVALID if the
                commit is a merge and `parent_number` is 0, or if it has no such parent.
        """
        request = pb.RevertRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            ref=ref,
            parent_number=parent_number,
            message=message,
            metadata=metadata,
            choices=choices,
            default_side=default_side,
            allow_empty=allow_empty,
            expected_commit_id=expected_commit_id,
        )
        answer = await self._merge_service.Revert(request, call)
        return answer.commit

    async def revert_range(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        since_ref: str,
        ref: str,
        *,
        squash: bool = False,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[pb.ConflictChoice] = (),
        default_side: pb.MergeSide = pb.MERGE_SIDE_UNSPECIFIED,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> pb.RevertResponse:
        """Undoes a range of commits, newest first; all become visible together, or none.

        The range is `ref` and its first parents, without those that are `since_ref` or its ancestors: at most 100.

        Args:
            call: context of the call.
            repository_id: the repository.
            branch_id: the branch that takes the new commits.
            since_ref: the range begins after it.
            ref: the newest commit of the range.
            squash: make one commit instead of one for each.
            parent_number: 1 if there are merge commits in the range.
            message: of each new commit; empty for a default text that names the undone commit.
            metadata: of each new commit, which also gets `tarn.revert_of`.
            choices: see the class; the source is the parent of the undone commit.
            default_side: see the class.
            allow_empty: commit even where the branch lacks all changes of a commit; otherwise it is passed over.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.

        Returns:
            `commit`, the new head, and `reverted_commit_ids`, newest first.

        Raises:
            TarnError: as `revert`; INVALID also for an empty range.
        """
        request = pb.RevertRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            ref=ref,
            since_ref=since_ref,
            squash=squash,
            parent_number=parent_number,
            message=message,
            metadata=metadata,
            choices=choices,
            default_side=default_side,
            allow_empty=allow_empty,
            expected_commit_id=expected_commit_id,
        )
        return await self._merge_service.Revert(request, call)

    async def cherry_pick(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        ref: str,
        *,
        parent_number: int = 0,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[pb.ConflictChoice] = (),
        default_side: pb.MergeSide = pb.MERGE_SIDE_UNSPECIFIED,
        allow_empty: bool = False,
        expected_commit_id: str = "",
    ) -> commit_pb.Commit:
        """Applies the changes of one commit to a branch by a new commit; returns the new commit.

        Args:
            call: context of the call.
            repository_id: the repository.
            branch_id: the branch that takes the new commit.
            ref: the ref of the commit to apply.
            parent_number: the parent, from 1, to which the commit is compared; needed for a merge commit only.
            message: empty for the message of the commit.
            metadata: of the new commit, which also gets `tarn.cherry_picked_from`.
            choices: see the class; the source is the commit.
            default_side: see the class.
            allow_empty: commit even if the branch has all changes of the commit.
            expected_commit_id: the head that the branch must have, such as that of a preview; empty: any.

        Raises:
            TarnError: as `revert`.
        """
        request = pb.CherryPickRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            ref=ref,
            parent_number=parent_number,
            message=message,
            metadata=metadata,
            choices=choices,
            default_side=default_side,
            allow_empty=allow_empty,
            expected_commit_id=expected_commit_id,
        )
        answer = await self._merge_service.CherryPick(request, call)
        return answer.commit
