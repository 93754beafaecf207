"""ReflogService: how heads changed, and restoring deleted branches."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadChange, HeadOperation
from tarn.core.ids import parse_branch_id
from tarn.gate.permits import RepositoryPermit
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import paging, timestamp
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb

__all__ = ["ReflogHandler"]


_OPERATIONS = {
    HeadOperation.CREATE: pb.HEAD_OPERATION_CREATE,
    HeadOperation.COMMIT: pb.HEAD_OPERATION_COMMIT,
    HeadOperation.MERGE: pb.HEAD_OPERATION_MERGE,
    HeadOperation.REVERT: pb.HEAD_OPERATION_REVERT,
    HeadOperation.CHERRY_PICK: pb.HEAD_OPERATION_CHERRY_PICK,
    HeadOperation.MOVE: pb.HEAD_OPERATION_MOVE,
    HeadOperation.DELETE: pb.HEAD_OPERATION_DELETE,
    HeadOperation.RESTORE: pb.HEAD_OPERATION_RESTORE,
    HeadOperation.OTHER: pb.HEAD_OPERATION_UNSPECIFIED,
}


def _message(entry: HeadChange) -> pb.HeadChange:
    return pb.HeadChange(
        time=timestamp(entry.time_us),
        operation=_OPERATIONS[entry.operation],
        user_id=entry.user_id,
        old_commit_id=entry.old_commit_id or "",
        new_commit_id=entry.new_commit_id or "",
        incarnation=entry.incarnation,
    )


class ReflogHandler:
    """Answers `tarn.graveler.v1.ReflogService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._branches = graveler.branches
        self._reflog = graveler.reflog
        self._admission = graveler.admission
        self._page_keys = graveler.page_keys

    async def ListReflog(
        self, request: pb.ListReflogRequest, permit: RepositoryPermit
    ) -> pb.ListReflogResponse:
        """Returns one page of the changes of a branch's head."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "ReflogService.ListReflog",
            repository=request.repository_id,
            branch=branch_id,
        )
        cursor = tokens.decode(request.page_token)
        limit = paging(request.page_size)
        page = await self._reflog.page(repository, branch_id, cursor, limit)
        if not page.entries and not cursor:
            # An old branch may have none; a name that never was a branch is an error.
            await self._branches.fresh(BranchName(repository, branch_id))
        return pb.ListReflogResponse(
            entries=map(_message, page.entries),
            next_page_token=tokens.encode(page.cursor) if page.cursor else "",
        )

    async def ListDeletedBranches(
        self, request: pb.ListDeletedBranchesRequest, permit: RepositoryPermit
    ) -> pb.ListDeletedBranchesResponse:
        """Returns one page of the branches that can be restored."""
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "ReflogService.ListDeletedBranches",
            repository=request.repository_id,
            prefix=request.prefix,
        )
        after = tokens.decode(request.page_token)
        limit = paging(request.page_size)
        found, last = await self._reflog.deleted(repository, request.prefix, after, limit)
        lines = [
            pb.DeletedBranch(
                branch_id=each.branch_id,
                commit_id=each.deletion.old_commit_id or "",
                delete_time=timestamp(each.deletion.time_us),
                user_id=each.deletion.user_id,
            )
            for each in found
        ]
        next_token = tokens.encode(last) if last else ""
        return pb.ListDeletedBranchesResponse(branches=lines, next_page_token=next_token)

    async def RestoreBranch(
        self, request: pb.RestoreBranchRequest, permit: RepositoryPermit
    ) -> pb.RestoreBranchResponse:
        """Creates a deleted branch again, at the head that it had."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        name = BranchName(repository, branch_id)
        deletion = await self._reflog.deletion(repository, branch_id)
        if deletion is None or deletion.old_commit_id is None:
            await self._branches.fresh(
                name
            )  # BRANCH_NOT_FOUND: never existed, or its reflog is expired
            text = f"branch {branch_id} exists in {request.repository_id}, so it cannot be restored"
            raise TarnError(Kind.ALREADY_EXISTS, Reason.BRANCH_EXISTS, text, branch=branch_id)
        cause = Cause(HeadOperation.RESTORE, grant.user_id)
        await self._admission.branch(repository)
        branch = await self._branches.create(name, deletion.old_commit_id, cause, undone=deletion)
        shown = branch_pb.Branch(
            branch_id=branch_id,
            commit_id=branch.commit_id,
            create_time=timestamp(branch.create_time_us),
        )
        return pb.RestoreBranchResponse(branch=shown)
