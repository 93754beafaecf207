"""Client of graveler's operations on reflogs and deleted branches."""

from __future__ import annotations

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb
from tarn_proto.graveler.v1.reflog_service_rpc import ReflogServiceClient

__all__ = ["ReflogClient"]


class ReflogClient(RpcClient):
    """Reads reflogs, and restores branches. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._reflog_service = ReflogServiceClient(transport)

    async def list_reflog(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        *,
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.ListReflogResponse:
        """Returns a page of the changes of a branch's head, newest first: `entries`, `next_page_token`.

        The branch may be deleted.

        Raises:
            TarnError: NOT_FOUND, BRANCH_NOT_FOUND: it does not exist and has no entries.
        """
        request = pb.ListReflogRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._reflog_service.ListReflog(request, call)

    async def list_deleted_branches(
        self,
        call: Call,
        repository_id: str,
        *,
        prefix: str = "",
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.ListDeletedBranchesResponse:
        """Returns a page of the branches that can be restored: `branches`, `next_page_token`.

        A page may be short, or empty, although more pages follow.
        """
        request = pb.ListDeletedBranchesRequest(
            repository_id=repository_id, prefix=prefix, page_size=page_size, page_token=page_token
        )
        return await self._reflog_service.ListDeletedBranches(request, call)

    async def restore_branch(
        self, call: Call, repository_id: str, branch_id: str
    ) -> branch_pb.Branch:
        """Creates a deleted branch again, at the head that it had; returns the branch.

        Raises:
            TarnError: ALREADY_EXISTS, BRANCH_EXISTS or TAG_EXISTS: the name is taken; NOT_FOUND,
                BRANCH_NOT_FOUND: no deletion of the branch is recorded.
        """
        request = pb.RestoreBranchRequest(repository_id=repository_id, branch_id=branch_id)
        answer = await self._reflog_service.RestoreBranch(request, call)
        return answer.branch
