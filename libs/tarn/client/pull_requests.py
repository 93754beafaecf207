"""Client of graveler's pull requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pb
from tarn_proto.graveler.v1.pull_request_service_rpc import PullRequestServiceClient

__all__ = ["PullRequestClient"]


class PullRequestClient(RpcClient):
    """Opens, reviews and merges pull requests. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._pull_request_service = PullRequestServiceClient(transport)

    async def create_pull_request(
        self,
        call: Call,
        repository_id: str,
        source_branch_id: str,
        destination_branch_id: str,
        title: str,
        description: str = "",
    ) -> pb.PullRequest:
        """Opens a pull request: to merge one branch into another one."""
        request = pb.CreatePullRequestRequest(
            repository_id=repository_id,
            source_branch_id=source_branch_id,
            destination_branch_id=destination_branch_id,
            title=title,
            description=description,
        )
        answer = await self._pull_request_service.CreatePullRequest(request, call)
        return answer.pull_request

    async def get_pull_request(
        self, call: Call, repository_id: str, pull_request_id: str
    ) -> pb.GetPullRequestResponse:
        """Returns `pull_request`, and `blockers`: what keeps the caller from merging it now."""
        request = pb.GetPullRequestRequest(
            repository_id=repository_id, pull_request_id=pull_request_id
        )
        return await self._pull_request_service.GetPullRequest(request, call)

    async def list_pull_requests(
        self,
        call: Call,
        repository_id: str,
        *,
        states: Sequence[pb.PullRequestState] = (),
        author: str = "",
        from_branch: str = "",
        into_branch: str = "",
        page_size: int = 0,
        page_token: str = "",
        after: str = "",
    ) -> pb.ListPullRequestsResponse:
        """Returns a page of the requests that meet all filters, newest first: `pull_requests`, `next_page_token`.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository.
            states: only these; empty for all.
            author: only those of one user.
            from_branch: only those with this source.
            into_branch: only those with this destination.
            page_size: most requests; 0 for the default.
            page_token: of the page; empty for the first one.
            after: only older ones than the request with this id.
        """
        request = pb.ListPullRequestsRequest(
            repository_id=repository_id,
            states=states,
            author=author,
            from_branch=from_branch,
            into_branch=into_branch,
            page_size=page_size,
            page_token=page_token,
            after=after,
        )
        return await self._pull_request_service.ListPullRequests(request, call)

    async def update_pull_request(
        self,
        call: Call,
        repository_id: str,
        pull_request_id: str,
        *,
        title: str | None = None,
        description: str | None = None,
    ) -> pb.PullRequest:
        """Changes title or description; None: it stays."""
        request = pb.UpdatePullRequestRequest(
            repository_id=repository_id, pull_request_id=pull_request_id
        )
        if title is not None:
            request.title = title
        if description is not None:
            request.description = description
        answer = await self._pull_request_service.UpdatePullRequest(request, call)
        return answer.pull_request

    async def comment_pull_request(
        self, call: Call, repository_id: str, pull_request_id: str, body: str, *, path: str = ""
    ) -> pb.PullRequestEvent:
        """Adds a comment on the request, or on an object or a folder (`/` at its end) of it."""
        request = pb.CommentPullRequestRequest(
            repository_id=repository_id, pull_request_id=pull_request_id, body=body, path=path
        )
        answer = await self._pull_request_service.CommentPullRequest(request, call)
        return answer.event

    async def list_pull_request_events(
        self,
        call: Call,
        repository_id: str,
        pull_request_id: str,
        *,
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.ListPullRequestEventsResponse:
        """Returns a page of what happened to a request, oldest first: `events`, `next_page_token`."""
        request = pb.ListPullRequestEventsRequest(
            repository_id=repository_id,
            pull_request_id=pull_request_id,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._pull_request_service.ListPullRequestEvents(request, call)

    async def review_pull_request(
        self,
        call: Call,
        repository_id: str,
        pull_request_id: str,
        verdict: pb.ReviewVerdict,
        source_commit_id: str,
        *,
        destination_commit_id: str = "",
        body: str = "",
    ) -> pb.PullRequest:
        """Approves a request, or requests changes.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository.
            pull_request_id: the request.
            verdict: what the caller thinks of it.
            source_commit_id: the commit that was reviewed; refused if it is not the head of the source any more.
            destination_commit_id: likewise of the destination; empty: any.
            body: a text.
        """
        request = pb.ReviewPullRequestRequest(
            repository_id=repository_id,
            pull_request_id=pull_request_id,
            verdict=verdict,
            expected_source_commit_id=source_commit_id,
            expected_destination_commit_id=destination_commit_id,
            body=body,
        )
        answer = await self._pull_request_service.ReviewPullRequest(request, call)
        return answer.pull_request

    async def dismiss_pull_request_review(
        self, call: Call, repository_id: str, pull_request_id: str, reviewer: str
    ) -> pb.PullRequest:
        """Dismisses the review of a user: it counts no more."""
        request = pb.DismissPullRequestReviewRequest(
            repository_id=repository_id, pull_request_id=pull_request_id, reviewer=reviewer
        )
        answer = await self._pull_request_service.DismissPullRequestReview(request, call)
        return answer.pull_request

    async def close_pull_request(
        self, call: Call, repository_id: str, pull_request_id: str
    ) -> pb.PullRequest:
        """Closes a request without merging it."""
        request = pb.ClosePullRequestRequest(
            repository_id=repository_id, pull_request_id=pull_request_id
        )
        answer = await self._pull_request_service.ClosePullRequest(request, call)
        return answer.pull_request

    async def reopen_pull_request(
        self, call: Call, repository_id: str, pull_request_id: str
    ) -> pb.PullRequest:
        """Opens a closed request again."""
        request = pb.ReopenPullRequestRequest(
            repository_id=repository_id, pull_request_id=pull_request_id
        )
        answer = await self._pull_request_service.ReopenPullRequest(request, call)
        return answer.pull_request

    async def merge_pull_request(
        self,
        call: Call,
        repository_id: str,
        pull_request_id: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        squash: bool = False,
        source_commit_id: str = "",
        destination_commit_id: str = "",
    ) -> pb.MergePullRequestResponse:
        """Merges a request; returns `pull_request` and `commit`. One that is merged already is not merged again.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository.
            pull_request_id: the request.
            message: of the merge commit; empty for a default text.
            metadata: of the merge commit.
            squash: the merge commit has one parent only.
            source_commit_id: the head of the source that is to be merged; empty: the present one.
            destination_commit_id: the head of the destination that takes it; empty: any.
        """
        request = pb.MergePullRequestRequest(
            repository_id=repository_id,
            pull_request_id=pull_request_id,
            message=message,
            metadata=metadata or {},
            squash=squash,
            expected_source_commit_id=source_commit_id,
            expected_destination_commit_id=destination_commit_id,
        )
        return await self._pull_request_service.MergePullRequest(request, call)
