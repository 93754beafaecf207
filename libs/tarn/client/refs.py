"""Client of graveler's operations on branches and tags."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb
from tarn_proto.graveler.v1 import tag_service_pb2 as tag_pb
from tarn_proto.graveler.v1.branch_service_rpc import BranchServiceClient
from tarn_proto.graveler.v1.tag_service_rpc import TagServiceClient

__all__ = ["RefClient"]


def _seconds(count: int | None) -> Duration | None:
    return None if count is None else Duration(seconds=count)


class RefClient(RpcClient):
    """Creates, reads, moves and deletes branches and tags. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._branch_service = BranchServiceClient(transport)
        self._tag_service = TagServiceClient(transport)

    async def create_branch(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        time_to_live_s: int | None = None,
    ) -> branch_pb.Branch:
        """Creates a branch at the commit of any ref. Uncommitted changes of that ref are not copied.

        It expires after `time_to_live_s` seconds; None: never.
        """
        request = branch_pb.CreateBranchRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            source_ref=source_ref,
            time_to_live=_seconds(time_to_live_s),
        )
        answer = await self._branch_service.CreateBranch(request, call)
        return answer.branch

    async def set_branch_expiry(
        self, call: Call, repository_id: str, branch_id: str, time_to_live_s: int | None
    ) -> branch_pb.Branch:
        """Lets a branch expire `time_to_live_s` seconds after now, or never (None); returns the branch.

        Raises:
            TarnError: BRANCH_NOT_FOUND; BRANCH_PROTECTED; INVALID_ARGUMENT: it is the default branch.
        """
        request = branch_pb.SetBranchExpiryRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            time_to_live=_seconds(time_to_live_s),
        )
        answer = await self._branch_service.SetBranchExpiry(request, call)
        return answer.branch

    async def get_branch(self, call: Call, repository_id: str, branch_id: str) -> branch_pb.Branch:
        """Returns one branch."""
        request = branch_pb.GetBranchRequest(repository_id=repository_id, branch_id=branch_id)
        answer = await self._branch_service.GetBranch(request, call)
        return answer.branch

    async def list_branches(
        self,
        call: Call,
        repository_id: str,
        *,
        prefix: str = "",
        page_size: int = 0,
        page_token: str = "",
        include_hidden: bool = False,
        after: str = "",
    ) -> branch_pb.ListBranchesResponse:
        """Returns a page of branches in byte order of their ids, greater than `after`: `branches`, `next_page_token`.

        The first page begins behind the name `after`, which need not exist.
        Branches that the repository's rules hide are left out, unless `include_hidden`.
        """
        request = branch_pb.ListBranchesRequest(
            repository_id=repository_id,
            prefix=prefix,
            page_size=page_size,
            page_token=page_token,
            include_hidden=include_hidden,
            after=after,
        )
        return await self._branch_service.ListBranches(request, call)

    async def delete_branch(self, call: Call, repository_id: str, branch_id: str) -> None:
        """Deletes a branch and its uncommitted changes."""
        request = branch_pb.DeleteBranchRequest(repository_id=repository_id, branch_id=branch_id)
        await self._branch_service.DeleteBranch(request, call)

    async def reset_branch(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        *,
        prefix: str | None = None,
        path: str | None = None,
    ) -> None:
        """Discards uncommitted changes of a branch: those acknowledged before the call, and perhaps some that are
        under way. An answer that is lost (OUTCOME_UNKNOWN) may have discarded them.

        Args:
            call: context of the call.
            repository_id: the repository.
            branch_id: the branch.
            prefix: discard only changes of the paths that start with it; must not be empty.
            path: discard only the change of this path; not together with `prefix`.

        Raises:
            ValueError: both a prefix and a path are given.
        """
        if prefix is not None and path is not None:
            raise ValueError("a reset takes a prefix or a path, not both")
        request = branch_pb.ResetBranchRequest(
            repository_id=repository_id, branch_id=branch_id, prefix=prefix, path=path
        )
        await self._branch_service.ResetBranch(request, call)

    async def move_branch(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        target_ref: str,
        *,
        expected_commit_id: str,
        force: bool = False,
    ) -> branch_pb.Branch:
        """Moves the head of a branch to the commit of a ref (a hard reset); returns the branch.

        Args:
            call: context of the call.
            repository_id: the repository.
            branch_id: the branch.
            target_ref: the ref whose commit becomes the head.
            expected_commit_id: the head that the caller knows, a whole commit id.
            force: discard uncommitted changes; otherwise they refuse the move.

        Raises:
            TarnError: CONFLICT, REF_MOVED: the head is not the expected one; FAILED_PRECONDITION, BRANCH_DIRTY.
        """
        request = branch_pb.MoveBranchRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            target_ref=target_ref,
            expected_commit_id=expected_commit_id,
            force=force,
        )
        answer = await self._branch_service.MoveBranch(request, call)
        return answer.branch

    async def create_tag(
        self, call: Call, repository_id: str, tag_id: str, source_ref: str
    ) -> tag_pb.Tag:
        """Creates a tag on the commit of any ref."""
        request = tag_pb.CreateTagRequest(
            repository_id=repository_id, tag_id=tag_id, source_ref=source_ref
        )
        answer = await self._tag_service.CreateTag(request, call)
        return answer.tag

    async def get_tag(self, call: Call, repository_id: str, tag_id: str) -> tag_pb.Tag:
        """Returns one tag."""
        request = tag_pb.GetTagRequest(repository_id=repository_id, tag_id=tag_id)
        answer = await self._tag_service.GetTag(request, call)
        return answer.tag

    async def list_tags(
        self,
        call: Call,
        repository_id: str,
        *,
        prefix: str = "",
        page_size: int = 0,
        page_token: str = "",
        after: str = "",
    ) -> tag_pb.ListTagsResponse:
        """Returns a page of tags in byte order of their ids, greater than `after`: `tags`, `next_page_token`."""
        request = tag_pb.ListTagsRequest(
            repository_id=repository_id,
            prefix=prefix,
            page_size=page_size,
            page_token=page_token,
            after=after,
        )
        return await self._tag_service.ListTags(request, call)

    async def delete_tag(self, call: Call, repository_id: str, tag_id: str) -> None:
        """Deletes a tag; its commit stays."""
        request = tag_pb.DeleteTagRequest(repository_id=repository_id, tag_id=tag_id)
        await self._tag_service.DeleteTag(request, call)
