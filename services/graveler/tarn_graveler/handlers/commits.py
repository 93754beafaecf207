"""CommitService: commits and history; its differences are in `handlers.differences`."""

from __future__ import annotations

from tarn.core.ids import parse_branch_id
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.handlers.differences import DifferenceMethods
from tarn_graveler.handlers.log import LogHandler, commit_message
from tarn_graveler.handlers.requests import AccessGuard, checked_metadata
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["CommitHandler", "commit_message"]

_RULES = rules_of(pb.DESCRIPTOR.services_by_name["CommitService"])


class CommitHandler(DifferenceMethods):
    """Answers `tarn.graveler.v1.CommitService`."""

    def __init__(self, guard: AccessGuard, graveler: Graveler) -> None:
        super().__init__(guard, graveler)
        self._commits = graveler.commits
        self._committing = graveler.committing
        self._refs = graveler.refs
        self._expired = graveler.expired
        self._log = LogHandler(guard, graveler)

    async def CreateCommit(
        self, request: pb.CreateCommitRequest, call: Call
    ) -> pb.CreateCommitResponse:
        """Commits the uncommitted changes of a branch."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = await self._guard.enter_repository(
            call, _RULES["CreateCommit"], request
        )
        metadata = checked_metadata(request)
        wish = CommitRequest(grant.user_id, request.message, metadata, request.allow_empty)
        made = await self._committing.commit(BranchName(repository, branch_id), wish)
        return pb.CreateCommitResponse(
            commit=commit_message(made.commit_id, made.commit),
            added_count=made.built.added,
            changed_count=made.built.updated,
            removed_count=made.built.removed,
        )

    async def GetCommit(self, request: pb.GetCommitRequest, call: Call) -> pb.GetCommitResponse:
        """Returns the commit that a ref names."""
        repository, _ = await self._guard.enter_repository(call, _RULES["GetCommit"], request)
        commit_id = await self._refs.commit_of(repository, request.ref)
        commit = await self._commits.get(repository, commit_id)
        shadowed = await self._refs.shadowed_by(repository, request.ref)
        found = commit_message(commit_id, commit)
        for expiry in (await self._expired.find(repository, [commit_id])).values():
            found.expired_by = expiry.rule
        return pb.GetCommitResponse(commit=found, shadowed_commit_id=shadowed)

    async def ListCommits(
        self, request: pb.ListCommitsRequest, call: Call
    ) -> pb.ListCommitsResponse:
        """Returns one page of history."""
        return await self._log.page(request, call)

    async def AnnotatePaths(
        self, request: pb.AnnotatePathsRequest, call: Call
    ) -> pb.AnnotatePathsResponse:
        """Tells which commit gave each path its content."""
        return await self._log.annotate(request, call)
