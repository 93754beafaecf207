"""CommitService: commits and history; its differences are in `handlers.diffs`."""

from __future__ import annotations

from tarn.core.commit import with_author_time
from tarn.core.ids import parse_branch_id
from tarn.core.listing.sizes import bounded
from tarn.gate.permits import RepositoryPermit
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.handlers.diffs import DifferenceMethods
from tarn_graveler.handlers.log import LogHandler, commit_message
from tarn_graveler.handlers.requests import checked_metadata, microseconds
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["CommitHandler", "commit_message", "commit_request"]


class CommitHandler(DifferenceMethods):
    """Answers `tarn.graveler.v1.CommitService`."""

    def __init__(self, graveler: Graveler) -> None:
        super().__init__(graveler)
        self._commits = graveler.commits
        self._committed = graveler.committed
        self._committing = graveler.committing
        self._refs = graveler.refs
        self._expired = graveler.expired
        self._log = LogHandler(graveler)

    async def CreateCommit(
        self, request: pb.CreateCommitRequest, permit: RepositoryPermit
    ) -> pb.CreateCommitResponse:
        """Commits the uncommitted changes of a branch."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        wish = commit_request(request, grant.user_id)
        made = await self._committing.commit(BranchName(repository, branch_id), wish)
        return pb.CreateCommitResponse(
            commit=commit_message(made.commit_id, made.commit),
            added_count=made.built.added,
            changed_count=made.built.updated,
            removed_count=made.built.removed,
        )

    async def GetCommit(
        self, request: pb.GetCommitRequest, permit: RepositoryPermit
    ) -> pb.GetCommitResponse:
        """Returns the commit that a ref names."""
        repository = permit.repository
        commit_id = await self._refs.commit_of(repository, request.ref)
        commit = await self._commits.get(repository, commit_id)
        shadowed = await self._refs.shadowed_by(repository, request.ref)
        found = commit_message(commit_id, commit)
        for expiry in (await self._expired.find(repository, [commit_id])).values():
            found.expired_by = expiry.rule
        return pb.GetCommitResponse(commit=found, shadowed_commit_id=shadowed)

    async def MeasureRef(
        self, request: pb.MeasureRefRequest, permit: RepositoryPermit
    ) -> pb.MeasureRefResponse:
        """Adds up what the list of a commit's ranges says about each of them."""
        repository = permit.repository
        commit_id = await self._refs.commit_of(repository, request.ref)
        commit = await self._commits.get(repository, commit_id)
        namespace = repository.storage_namespace
        listing = await self._committed.metarange(namespace, commit.metarange_id)
        return pb.MeasureRefResponse(
            commit_id=commit_id,
            object_count=listing.count,
            object_bytes=bounded(listing.object_bytes),
        )

    async def ListCommits(
        self, request: pb.ListCommitsRequest, permit: RepositoryPermit
    ) -> pb.ListCommitsResponse:
        """Returns one page of history."""
        return await self._log.page(request, permit)

    async def AnnotatePaths(
        self, request: pb.AnnotatePathsRequest, permit: RepositoryPermit
    ) -> pb.AnnotatePathsResponse:
        """Tells which commit gave each path its content."""
        return await self._log.annotate(request, permit)


def commit_request(request: pb.CreateCommitRequest, user_id: str) -> CommitRequest:
    """Returns the commit that a user asks for.

    Raises:
        TarnError: INVALID_ARGUMENT for metadata or a time that cannot be stored.
    """
    metadata = checked_metadata(request)
    if request.HasField("author_time"):
        metadata = with_author_time(metadata, microseconds("author_time", request.author_time))
    return CommitRequest(user_id, request.message, metadata, request.allow_empty)
