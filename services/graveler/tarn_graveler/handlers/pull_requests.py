"""PullRequestService: opens, reviews and merges pull requests."""

from __future__ import annotations

from dataclasses import replace

from tarn.core.access.policy import Grant
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_branch_id, parse_path
from tarn.core.levels import Feature
from tarn.core.pull_request import (
    EventKind,
    Heads,
    PullBranch,
    PullEvent,
    PullRequest,
    PullState,
    Review,
    Verdict,
    checked_text,
    checked_title,
    dismissed,
    not_open,
    parse_pull_id,
    reviewed,
)
from tarn.gate.permits import RepositoryPermit
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.commits import commit_message
from tarn_graveler.handlers.requests import checked_metadata, paging, timestamp
from tarn_graveler.records.branches import BranchName
from tarn_graveler.versioning.pull_merges import LOOK_MAX, Wish, moved
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pb

__all__ = ["PullRequestHandler", "wish_of"]

_STATES = {
    PullState.OPEN: pb.PULL_REQUEST_STATE_OPEN,
    PullState.CLOSED: pb.PULL_REQUEST_STATE_CLOSED,
    PullState.MERGED: pb.PULL_REQUEST_STATE_MERGED,
}
_SHOWN = frozenset(_STATES)
_OF_STATES = {number: state for state, number in _STATES.items()}
_VERDICTS = {
    pb.REVIEW_VERDICT_APPROVE: Verdict.APPROVE,
    pb.REVIEW_VERDICT_REQUEST_CHANGES: Verdict.REQUEST_CHANGES,
}
_VERDICT_NUMBERS = {verdict: number for number, verdict in _VERDICTS.items()}
_EVENTS = {
    EventKind.COMMENT: pb.PULL_REQUEST_EVENT_KIND_COMMENT,
    EventKind.APPROVE: pb.PULL_REQUEST_EVENT_KIND_APPROVE,
    EventKind.REQUEST_CHANGES: pb.PULL_REQUEST_EVENT_KIND_REQUEST_CHANGES,
    EventKind.DISMISS: pb.PULL_REQUEST_EVENT_KIND_DISMISS,
    EventKind.UPDATE: pb.PULL_REQUEST_EVENT_KIND_UPDATE,
    EventKind.CLOSE: pb.PULL_REQUEST_EVENT_KIND_CLOSE,
    EventKind.REOPEN: pb.PULL_REQUEST_EVENT_KIND_REOPEN,
    EventKind.MERGE: pb.PULL_REQUEST_EVENT_KIND_MERGE,
}


class PullRequestHandler:
    """Answers `tarn.graveler.v1.PullRequestService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._clock = graveler.clock
        self._features = graveler.features
        self._branches = graveler.branches
        self._commits = graveler.commits
        self._pulls = graveler.pulls
        self._merges = graveler.pull_merges
        self._page_keys = graveler.page_keys

    async def CreatePullRequest(
        self, request: pb.CreatePullRequestRequest, permit: RepositoryPermit
    ) -> pb.CreatePullRequestResponse:
        """Opens a pull request. Called again after a lost answer, it is refused with the id of the first one."""
        self._features.require(Feature.PULL_REQUESTS)
        source, destination = (
            parse_branch_id(each)
            for each in (request.source_branch_id, request.destination_branch_id)
        )
        if source == destination:
            text = f"source and destination are both branch {source}; there is nothing to merge"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="source_branch_id")
        repository, grant = permit.repository, permit.grant
        new = PullRequest(
            number=0,
            state=PullState.OPEN,
            author_id=grant.user_id,
            author_uid=_uid(grant),
            source=await self._side(BranchName(repository, source)),
            destination=await self._side(BranchName(repository, destination)),
            title=checked_title(request.title),
            description=checked_text("description", request.description),
            create_time_us=0,
            update_time_us=0,
            create_id=b"",
        )
        made = await self._pulls.create(repository, new)
        return pb.CreatePullRequestResponse(pull_request=_message(made))

    async def _side(self, name: BranchName) -> PullBranch:
        branch = (await self._branches.fresh(name)).branch
        return PullBranch(name.branch_id, branch.incarnation, branch.commit_id)

    async def GetPullRequest(
        self, request: pb.GetPullRequestRequest, permit: RepositoryPermit
    ) -> pb.GetPullRequestResponse:
        """Returns a pull request, and what its merge still needs. One that was merged is told as merged, even if its
        record does not say so yet."""
        repository = permit.repository
        pull = await self._pulls.get(repository, parse_pull_id(request.pull_request_id))
        if (commit_id := await self._merges.landed(repository, pull, LOOK_MAX)) is not None:
            pull = replace(pull, state=PullState.MERGED, merge_commit=commit_id)
        if pull.state is not PullState.OPEN:
            return pb.GetPullRequestResponse(pull_request=_message(pull))
        try:
            heads = await self._merges.heads(repository, pull)
        except TarnError as error:
            if error.reason is not Reason.BRANCH_NOT_FOUND:
                raise
            return pb.GetPullRequestResponse(pull_request=_message(pull), blockers=[error.message])
        try:
            blockers = await self._merges.blockers(repository, pull, heads, permit.grant)
        except TarnError as error:
            if error.kind is not Kind.DENIED:
                raise
            blockers = [error.message]
        return pb.GetPullRequestResponse(pull_request=_message(pull, heads), blockers=blockers)

    async def ListPullRequests(
        self, request: pb.ListPullRequestsRequest, permit: RepositoryPermit
    ) -> pb.ListPullRequestsResponse:
        """Returns one page of pull requests, newest first."""
        repository = permit.repository
        states = frozenset(map(_state, request.states)) or _SHOWN
        after = parse_pull_id(request.after) if request.after else 0
        tokens = await self._page_keys.tokens(
            permit.grant.user_id,
            "PullRequestService.ListPullRequests",
            repository=request.repository_id,
            states=",".join(sorted(states)),
            author=request.author,
            from_branch=request.from_branch,
            into_branch=request.into_branch,
            after=after,
        )

        def wanted(pull: PullRequest) -> bool:
            return (
                pull.state in states
                and request.author in ("", pull.author_id)
                and request.from_branch in ("", pull.source.branch_id)
                and request.into_branch in ("", pull.destination.branch_id)
            )

        limit = paging(request.page_size)
        before = int(tokens.decode(request.page_token) or after)
        page = await self._pulls.page(
            repository, wanted, before, limit, open_only=states == {PullState.OPEN}
        )
        return pb.ListPullRequestsResponse(
            pull_requests=map(_message, page.pulls),
            next_page_token=tokens.encode(str(page.before)) if page.before else "",
        )

    async def UpdatePullRequest(
        self, request: pb.UpdatePullRequestRequest, permit: RepositoryPermit
    ) -> pb.UpdatePullRequestResponse:
        """Changes title or description."""
        new: dict[str, str] = {}
        if request.HasField("title"):
            new["title"] = checked_title(request.title)
        if request.HasField("description"):
            new["description"] = checked_text("description", request.description)
        repository, grant = permit.repository, permit.grant
        number = parse_pull_id(request.pull_request_id)
        former = await self._pulls.get(repository, number)
        if former.author_uid != _uid(grant):
            permit.require_further("others")

        def decide(now: PullRequest) -> PullRequest:
            return replace(now, **new)  # type: ignore[arg-type]

        event = self._event(EventKind.UPDATE, grant, body=former.title)
        changed, _ = await self._pulls.change(repository, number, decide, event)
        return pb.UpdatePullRequestResponse(pull_request=_message(changed))

    async def CommentPullRequest(
        self, request: pb.CommentPullRequestRequest, permit: RepositoryPermit
    ) -> pb.CommentPullRequestResponse:
        """Adds a comment."""
        repository = permit.repository
        number = parse_pull_id(request.pull_request_id)
        body = checked_text("body", request.body)
        if not body.strip():
            text = "a comment has a text: say something in `body`"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="body")
        path = parse_path(request.path) if request.path else ""
        event = self._event(EventKind.COMMENT, permit.grant, body=body, path=path)
        _, sequence = await self._pulls.change(repository, number, lambda now: now, event)
        return pb.CommentPullRequestResponse(event=_event_message(sequence, event))

    async def ListPullRequestEvents(
        self, request: pb.ListPullRequestEventsRequest, permit: RepositoryPermit
    ) -> pb.ListPullRequestEventsResponse:
        """Returns one page of what happened to a pull request."""
        repository = permit.repository
        number = parse_pull_id(request.pull_request_id)
        tokens = await self._page_keys.tokens(
            permit.grant.user_id,
            "PullRequestService.ListPullRequestEvents",
            repository=request.repository_id,
            number=number,
        )
        await self._pulls.get(repository, number)
        after = int(tokens.decode(request.page_token) or 0)
        limit = paging(request.page_size)
        found, has_more = await self._pulls.events(repository, number, after, limit)
        return pb.ListPullRequestEventsResponse(
            events=[_event_message(sequence, each) for sequence, each in found],
            next_page_token=tokens.encode(str(found[-1][0])) if has_more else "",
        )

    async def ReviewPullRequest(
        self, request: pb.ReviewPullRequestRequest, permit: RepositoryPermit
    ) -> pb.ReviewPullRequestResponse:
        """Records what the caller thinks of two commits."""
        verdict = _VERDICTS.get(request.verdict)
        if verdict is None:
            text = f"{request.verdict} is not a verdict of a review"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="verdict")
        if not request.expected_source_commit_id:
            text = "expected_source_commit_id is missing: name the commit that you have reviewed"
            raise TarnError(
                Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="expected_source_commit_id"
            )
        repository, grant = permit.repository, permit.grant
        number = parse_pull_id(request.pull_request_id)
        body = checked_text("body", request.body)
        pull = await self._open(repository, number)
        heads = await self._merges.heads(repository, pull)
        for side, head, expected in (
            (pull.source, heads.source, request.expected_source_commit_id),
            (pull.destination, heads.destination, request.expected_destination_commit_id),
        ):
            if expected not in ("", head):
                raise moved(side.branch_id, head, expected)
        now_us = self._clock.now_us()
        review = Review(grant.user_id, _uid(grant), verdict, heads, now_us)
        kind = EventKind(verdict.value)
        event = self._event(kind, grant, body=body, heads=heads)
        changed, _ = await self._pulls.change(
            repository, number, lambda now: reviewed(_seen(now, heads), review), event
        )
        return pb.ReviewPullRequestResponse(pull_request=_message(changed, heads))

    async def DismissPullRequestReview(
        self, request: pb.DismissPullRequestReviewRequest, permit: RepositoryPermit
    ) -> pb.DismissPullRequestReviewResponse:
        """Dismisses the review of a user."""
        repository, grant = permit.repository, permit.grant
        number = parse_pull_id(request.pull_request_id)
        event = self._event(EventKind.DISMISS, grant, body=request.reviewer[:64])
        changed, _ = await self._pulls.change(
            repository,
            number,
            lambda now: dismissed(now, request.reviewer, grant.user_id),
            event,
            always=True,
        )
        return pb.DismissPullRequestReviewResponse(pull_request=_message(changed))

    async def ClosePullRequest(
        self, request: pb.ClosePullRequestRequest, permit: RepositoryPermit
    ) -> pb.ClosePullRequestResponse:
        """Closes a pull request without merging it."""
        repository = permit.repository
        number = parse_pull_id(request.pull_request_id)
        await self._merges.settle(repository, await self._pulls.get(repository, number))
        now_us = self._clock.now_us()

        def decide(now: PullRequest) -> PullRequest:
            if now.state is PullState.MERGED:
                raise not_open(now)
            if now.state is PullState.CLOSED:
                return now
            return replace(now, state=PullState.CLOSED, end_time_us=now_us)

        event = self._event(EventKind.CLOSE, permit.grant)
        changed, _ = await self._pulls.change(repository, number, decide, event, always=True)
        await self._pulls.leave(repository, changed)
        return pb.ClosePullRequestResponse(pull_request=_message(changed))

    async def ReopenPullRequest(
        self, request: pb.ReopenPullRequestRequest, permit: RepositoryPermit
    ) -> pb.ReopenPullRequestResponse:
        """Opens a closed pull request again."""
        repository = permit.repository
        number = parse_pull_id(request.pull_request_id)
        pull = await self._pulls.get(repository, number)
        pull = await self._merges.settle(repository, pull)
        await self._merges.heads(repository, pull)

        def decide(now: PullRequest) -> PullRequest:
            if now.state is PullState.MERGED:
                raise not_open(now)
            return replace(now, state=PullState.OPEN, end_time_us=0)

        if pull.state is PullState.MERGED:
            raise not_open(pull)
        event = self._event(EventKind.REOPEN, permit.grant)
        changed = await self._pulls.reopen(repository, number, decide, event)
        return pb.ReopenPullRequestResponse(pull_request=_message(changed))

    async def MergePullRequest(
        self, request: pb.MergePullRequestRequest, permit: RepositoryPermit
    ) -> pb.MergePullRequestResponse:
        """Merges the source into the destination, once."""
        repository = permit.repository
        number = parse_pull_id(request.pull_request_id)
        pull = await self._pulls.get(repository, number)
        permit.require_further("destination", destination=pull.destination)
        permit.require_further("source", source=pull.source)
        merged = await self._merges.merge(repository, pull, permit.grant, wish_of(request))
        assert merged.merge_commit is not None, "it is merged"
        commit = await self._commits.get(repository, merged.merge_commit)
        return pb.MergePullRequestResponse(
            pull_request=_message(merged), commit=commit_message(merged.merge_commit, commit)
        )

    async def _open(self, repository: Repository, number: int) -> PullRequest:
        pull = await self._pulls.get(repository, number)
        if pull.state is not PullState.OPEN:
            raise not_open(pull)
        return pull

    def _event(
        self,
        kind: EventKind,
        grant: Grant,
        *,
        body: str = "",
        path: str = "",
        heads: Heads | None = None,
    ) -> PullEvent:
        commits = ("", "") if heads is None else (heads.source, heads.destination)
        return PullEvent(kind, grant.user_id, self._clock.now_us(), body, path, *commits)


def wish_of(request: pb.MergePullRequestRequest) -> Wish:
    """Returns the merge that a caller asks for.

    Raises:
        TarnError: INVALID_ARGUMENT for metadata that cannot be stored.
    """
    return Wish(
        request.message,
        checked_metadata(request),
        request.squash,
        request.expected_source_commit_id,
        request.expected_destination_commit_id,
    )


def _uid(grant: Grant) -> bytes:
    """Returns the life of a caller, who is told from a later user of the same name by it.

    Raises:
        TarnError: DENIED: an auth of an earlier release did not tell it.
    """
    if not grant.user_uid:
        text = "auth does not tell users from later ones of the same name; update it"
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text)
    return grant.user_uid


def _seen(pull: PullRequest, heads: Heads) -> PullRequest:
    return replace(
        pull,
        source=replace(pull.source, commit_id=heads.source),
        destination=replace(pull.destination, commit_id=heads.destination),
    )


def _state(number: pb.PullRequestState) -> PullState:
    found = _OF_STATES.get(number)
    if found is None:
        text = f"{number} is not a state of a pull request"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="states")
    return found


def _message(pull: PullRequest, heads: Heads | None = None) -> pb.PullRequest:
    message = pb.PullRequest(
        pull_request_id=pull.pull_id,
        state=_STATES[pull.state],
        source_branch_id=pull.source.branch_id,
        destination_branch_id=pull.destination.branch_id,
        title=pull.title,
        description=pull.description,
        author=pull.author_id,
        create_time=timestamp(pull.create_time_us),
        update_time=timestamp(pull.update_time_us),
        merge_commit_id=pull.merge_commit or "",
        source_commit_id=pull.source.commit_id if heads is None else heads.source,
        destination_commit_id=pull.destination.commit_id if heads is None else heads.destination,
        reviews=map(_review_message, pull.reviews),
        event_count=pull.event_count,
    )
    if pull.end_time_us:
        message.end_time.CopyFrom(timestamp(pull.end_time_us))
    return message


def _review_message(review: Review) -> pb.PullRequestReview:
    return pb.PullRequestReview(
        user_id=review.user_id,
        verdict=_VERDICT_NUMBERS[review.verdict],
        source_commit_id=review.heads.source,
        destination_commit_id=review.heads.destination,
        time=timestamp(review.time_us),
        dismissed_by=review.dismissed_by,
    )


def _event_message(sequence: int, event: PullEvent) -> pb.PullRequestEvent:
    return pb.PullRequestEvent(
        sequence=sequence,
        kind=_EVENTS[event.kind],
        user_id=event.user_id,
        time=timestamp(event.time_us),
        body=event.body,
        path=event.path,
        source_commit_id=event.source,
        destination_commit_id=event.destination,
    )
