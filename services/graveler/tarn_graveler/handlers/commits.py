"""CommitService: commits, history and differences."""

from __future__ import annotations

from tarn.core.ids import parse_branch_id
from tarn.core.listing.diff import DiffPage
from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.pagination import PageTokens
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.branch.records import BranchName
from tarn_graveler.handlers.log import LogHandler, commit_message
from tarn_graveler.handlers.requests import AccessGuard, checked_metadata, paging
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["CommitHandler", "commit_message"]

_RULES = rules_of(pb.DESCRIPTOR.services_by_name["CommitService"])

_DIFF_PAGE_MAX = 5_000
"""One call costs more than a thousand changes; five thousand block the event loop for 1.3 ms."""


def _token(page: DiffPage, tokens: PageTokens) -> str:
    return "" if page.next_after is None else tokens.encode(page.next_after)


class CommitHandler:
    """Answers `tarn.graveler.v1.CommitService`."""

    def __init__(self, guard: AccessGuard, graveler: Graveler) -> None:
        self._guard = guard
        self._commits = graveler.commits
        self._committing = graveler.committing
        self._refs = graveler.refs
        self._log = LogHandler(guard, graveler)
        self._diffing = graveler.diffing
        self._page_keys = graveler.page_keys

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
        """Returns one page of history."""
        return await self._log.page(request, call)

    async def AnnotatePaths(
        self, request: pb.AnnotatePathsRequest, call: Call
    ) -> pb.AnnotatePathsResponse:
        """Tells which commit gave each path its content."""
        return await self._log.annotate(request, call)

    async def DiffRefs(self, request: pb.DiffRefsRequest, call: Call) -> pb.DiffRefsResponse:
        """Returns one page of the differences between the commits of two refs."""
        rule = _RULES["DiffRefs"]
        repository, grant = await self._guard.enter_repository(call, rule, request, also="right")
        tokens = await self._page_keys.tokens(
            grant.user_id,
            rule.name,
            repository=request.repository_id,
            left=request.left_ref,
            right=request.right_ref,
            prefix=request.prefix,
        )
        after = tokens.decode(request.page_token) or request.after
        page = await self._diffing.commits(
            repository,
            await self._refs.commit_of(repository, request.left_ref),
            await self._refs.commit_of(repository, request.right_ref),
            prefix=request.prefix,
            after=after,
            limit=paging(request.page_size, maximum=_DIFF_PAGE_MAX),
        )
        return pb.DiffRefsResponse(
            paths=page.paths,
            left_entries=page.lefts,
            right_entries=page.rights,
            next_page_token=_token(page, tokens),
        )

    async def DiffUncommitted(
        self, request: pb.DiffUncommittedRequest, call: Call
    ) -> pb.DiffUncommittedResponse:
        """Returns one page of the uncommitted changes of a branch."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = await self._guard.enter_repository(
            call, _RULES["DiffUncommitted"], request
        )
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "CommitService.DiffUncommitted",
            repository=request.repository_id,
            branch=branch_id,
            prefix=request.prefix,
        )
        after = tokens.decode(request.page_token) or request.after
        page = await self._diffing.uncommitted(
            BranchName(repository, branch_id),
            prefix=request.prefix,
            after=after,
            limit=paging(request.page_size),
        )
        return pb.DiffUncommittedResponse(
            paths=page.paths,
            left_entries=page.lefts,
            right_entries=page.rights,
            next_page_token=_token(page, tokens),
        )
