"""Differences of refs and uncommitted changes: the lists of CommitService, and DiffService with their counts.

The first page of a difference decides which commits are compared. The page tokens hold their ids, so a branch that
moves between two pages does not mix two differences. The tokens are signed, and each page is authorised again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, parse_branch_id, parse_path
from tarn.core.listing.diff import DiffPage
from tarn.core.listing.folders import FolderPage
from tarn.core.listing.sizes import bounded
from tarn.core.listing.tally import ChangeStats
from tarn.gate.permits import RepositoryPermit
from tarn.kv.records import Repository
from tarn.rpc.wire.pagination import PageTokens
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import paging
from tarn_graveler.records.branches import BranchName
from tarn_graveler.views.diffing import DiffSides
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import diff_service_pb2 as pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb

__all__ = ["DiffHandler", "DifferenceMethods", "counts_message"]


_DIFF_PAGE_MAX = 5_000
"""One call costs more than a thousand changes; five thousand block the event loop for 1.3 ms."""
_DELIMITER_BYTES_MAX = 1024

_SidesRequest = commit_pb.DiffRefsRequest | pb.SummarizeDiffRequest


@dataclass(frozen=True, slots=True)
class _Place:
    """The place where a page of a difference of refs begins: the commits, the path before it, and the tokens for the
    next page."""

    sides: DiffSides
    after: str
    tokens: PageTokens

    def token(self, next_after: str | None) -> str:
        if next_after is None:
            return ""
        left = "+".join([self.sides.left or "", *self.sides.bases])
        return self.tokens.encode(f"{left},{self.sides.right},{next_after}")


def counts_message(stats: ChangeStats) -> merge_pb.MergeCounts:
    """Returns counts of changes as a message."""
    return merge_pb.MergeCounts(
        added_count=stats.added,
        changed_count=stats.updated,
        removed_count=stats.removed,
        added_bytes=bounded(stats.bytes_added),
        removed_bytes=bounded(stats.bytes_removed),
    )


class _Differences:
    """The base of both services."""

    def __init__(self, graveler: Graveler) -> None:
        self._refs = graveler.refs
        self._diffing = graveler.diffing
        self._page_keys = graveler.page_keys

    async def _place(
        self,
        repository: Repository,
        request: _SidesRequest,
        tokens: PageTokens,
        *,
        after: str = "",
    ) -> _Place:
        """Returns the place where the page of a request begins; the first page decides which commits are compared.

        Raises:
            TarnError: INVALID_PAGE_TOKEN; REF_NOT_FOUND, REF_AMBIGUOUS.
        """
        if begun := tokens.decode(request.page_token):
            lefts, right, after = begun.split(",", 2)
            left, *bases = map(CommitId, lefts.split("+"))
            sides = DiffSides(left or None, CommitId(right), tuple(bases))
            return _Place(sides, after, tokens)
        sides = DiffSides(
            await self._refs.commit_of(repository, request.left_ref),
            await self._refs.commit_of(repository, request.right_ref),
        )
        if request.from_merge_base:
            sides = await self._diffing.from_merge_base(repository, sides)
        return _Place(sides, after, tokens)


class DifferenceMethods(_Differences):
    """The rpcs of CommitService that list differences."""

    async def DiffRefs(
        self, request: commit_pb.DiffRefsRequest, permit: RepositoryPermit
    ) -> commit_pb.DiffRefsResponse:
        """Returns one page of the differences between the commits of two refs."""
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "CommitService.DiffRefs",
            repository=request.repository_id,
            left=request.left_ref,
            right=request.right_ref,
            from_merge_base=request.from_merge_base,
            prefix=request.prefix,
        )
        place = await self._place(repository, request, tokens, after=request.after)
        page = await self._diffing.commits(
            repository,
            place.sides,
            prefix=request.prefix,
            after=place.after,
            limit=paging(request.page_size, maximum=_DIFF_PAGE_MAX),
        )
        answer = commit_pb.DiffRefsResponse(
            next_page_token=place.token(page.next_after),
            left_commit_id=place.sides.shown_left or "",
            merge_base_commit_ids=place.sides.bases,
            right_commit_id=place.sides.right,
        )
        _fill(answer, page, names_only=request.names_only)
        return answer

    async def DiffUncommitted(
        self, request: commit_pb.DiffUncommittedRequest, permit: RepositoryPermit
    ) -> commit_pb.DiffUncommittedResponse:
        """Returns one page of the uncommitted changes of a branch."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "CommitService.DiffUncommitted",
            repository=request.repository_id,
            branch=branch_id,
            prefix=request.prefix,
        )
        head, after = _begun(tokens.decode(request.page_token))
        page = await self._diffing.uncommitted(
            BranchName(repository, branch_id),
            prefix=request.prefix,
            after=after or request.after,
            limit=paging(request.page_size),
            head=head,
        )
        answer = commit_pb.DiffUncommittedResponse(
            next_page_token=_token(tokens, page.head, page.next_after), commit_id=page.head
        )
        _fill(answer, page, names_only=request.names_only)
        return answer


class DiffHandler(_Differences):
    """Answers `tarn.graveler.v1.DiffService`."""

    async def SummarizeDiff(
        self, request: pb.SummarizeDiffRequest, permit: RepositoryPermit
    ) -> pb.SummarizeDiffResponse:
        """Returns one page of the counts of the differences between the commits of two refs."""
        repository, grant = permit.repository, permit.grant
        _check_folders(request)
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "DiffService.SummarizeDiff",
            repository=request.repository_id,
            left=request.left_ref,
            right=request.right_ref,
            from_merge_base=request.from_merge_base,
            prefix=request.prefix,
            delimiter=request.delimiter,
        )
        place = await self._place(repository, request, tokens)
        page = await self._diffing.folders(
            repository,
            place.sides,
            prefix=request.prefix,
            delimiter=request.delimiter,
            after=place.after,
            limit=paging(request.page_size),
        )
        return pb.SummarizeDiffResponse(
            folders=_folders(page),
            next_page_token=place.token(page.next_after),
            counts=counts_message(page.total),
            left_commit_id=place.sides.shown_left or "",
            merge_base_commit_ids=place.sides.bases,
            right_commit_id=place.sides.right,
        )

    async def SummarizeUncommitted(
        self, request: pb.SummarizeUncommittedRequest, permit: RepositoryPermit
    ) -> pb.SummarizeUncommittedResponse:
        """Returns one page of the counts of the uncommitted changes of a branch."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        _check_folders(request)
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "DiffService.SummarizeUncommitted",
            repository=request.repository_id,
            branch=branch_id,
            prefix=request.prefix,
            delimiter=request.delimiter,
        )
        head, after = _begun(tokens.decode(request.page_token))
        found, page = await self._diffing.uncommitted_folders(
            BranchName(repository, branch_id),
            prefix=request.prefix,
            delimiter=request.delimiter,
            after=after,
            limit=paging(request.page_size),
            head=head,
        )
        return pb.SummarizeUncommittedResponse(
            folders=_folders(page),
            next_page_token=_token(tokens, found, page.next_after),
            counts=counts_message(page.total),
            commit_id=found,
        )


def _begun(last_key: str) -> tuple[CommitId | None, str]:
    """The head of the first page of uncommitted changes and the path after which to go on; None for the first."""
    head, _, after = last_key.partition(",")
    return CommitId(head) or None, after


def _token(tokens: PageTokens, head: CommitId, next_after: str | None) -> str:
    return "" if next_after is None else tokens.encode(f"{head},{next_after}")


def _fill(
    answer: commit_pb.DiffRefsResponse | commit_pb.DiffUncommittedResponse,
    page: DiffPage,
    *,
    names_only: bool,
) -> None:
    """Puts the changes of a page into an answer."""
    answer.paths.extend(page.paths)
    if names_only:
        answer.kinds.extend(
            commit_pb.DIFF_KIND_ADDED
            if not left
            else commit_pb.DIFF_KIND_CHANGED
            if right
            else commit_pb.DIFF_KIND_REMOVED
            for left, right in zip(page.lefts, page.rights, strict=True)
        )
        return
    answer.left_entries.extend(page.lefts)
    answer.right_entries.extend(page.rights)


def _check_folders(request: pb.SummarizeDiffRequest | pb.SummarizeUncommittedRequest) -> None:
    """Checks prefix and delimiter.

    Raises:
        TarnError: KEY_TOO_LONG; INVALID_ARGUMENT for a delimiter that is too long.
    """
    if request.prefix:
        parse_path(request.prefix)
    if len(request.delimiter.encode()) > _DELIMITER_BYTES_MAX:
        text = f"the delimiter is longer than {_DELIMITER_BYTES_MAX} bytes"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)


def _folders(page: FolderPage) -> list[pb.FolderCounts]:
    return [
        pb.FolderCounts(
            path=folder.path, is_prefix=folder.is_prefix, counts=counts_message(folder.stats)
        )
        for folder in page.folders
    ]
