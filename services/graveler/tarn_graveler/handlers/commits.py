"""CommitService: commits and history; its differences are in `handlers.differences`."""

from __future__ import annotations

from tarn.core.commit import Commit
from tarn.core.ids import CommitId, parse_branch_id
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.records import BranchName
from tarn_graveler.handlers.differences import DifferenceMethods
from tarn_graveler.handlers.requests import AccessGuard, checked_metadata, paging, timestamp
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["CommitHandler", "commit_message"]

_RULES = rules_of(pb.DESCRIPTOR.services_by_name["CommitService"])


def commit_message(commit_id: CommitId, commit: Commit) -> pb.Commit:
    """Returns a commit as a message."""
    return pb.Commit(
        commit_id=commit_id,
        parent_ids=commit.parents,
        metarange_id=commit.metarange_id,
        committer=commit.committer,
        message=commit.message,
        create_time=timestamp(commit.create_time_us),
        generation=commit.generation,
        metadata=dict(commit.metadata),
    )


class CommitHandler(DifferenceMethods):
    """Answers `tarn.graveler.v1.CommitService`."""

    def __init__(self, guard: AccessGuard, graveler: Graveler) -> None:
        super().__init__(guard, graveler)
        self._commits = graveler.commits
        self._committing = graveler.committing
        self._refs = graveler.refs
        self._history = graveler.history

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
        return pb.GetCommitResponse(commit=commit_message(commit_id, commit))

    async def ListCommits(
        self, request: pb.ListCommitsRequest, call: Call
    ) -> pb.ListCommitsResponse:
        """Returns one page of history; the page token holds the next commits, so a moving branch does not
        affect paging.
        """
        repository, grant = await self._guard.enter_repository(call, _RULES["ListCommits"], request)
        first_parent = request.first_parent
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "CommitService.ListCommits",
            repository=request.repository_id,
            ref=request.ref,
            first_parent=first_parent,
        )
        if frontier := tokens.decode(request.page_token):
            # The token is signed, so an earlier page of this listing led to these commits.
            start = tuple(CommitId(commit_id) for commit_id in frontier.split(","))
        else:
            start = (await self._refs.commit_of(repository, request.ref),)
        page = await self._history.page(
            repository, start, paging(request.page_size), first_parent=first_parent
        )
        next_token = ""
        if page.frontier:
            next_token = tokens.encode(",".join(page.frontier))
        lines = [commit_message(commit_id, commit) for commit_id, commit in page.commits]
        return pb.ListCommitsResponse(commits=lines, next_page_token=next_token)
