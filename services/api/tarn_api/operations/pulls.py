"""Pull requests, as lakeFS has them: a title, a description, a state and a merge. Reviews and comments are rpcs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.core.errors import Reason, TarnError
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations.paging import amount_of, pagination
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "create_pull_request",
    "get_pull_request",
    "list_pull_requests",
    "merge_pull_request",
    "update_pull_request",
]

_STATES: Final = {
    "open": [pb.PULL_REQUEST_STATE_OPEN],
    "closed": [pb.PULL_REQUEST_STATE_CLOSED, pb.PULL_REQUEST_STATE_MERGED],
    "all": [],
}


_STATUSES: Final[dict[int, Literal["open", "closed", "merged"]]] = {
    pb.PULL_REQUEST_STATE_OPEN: "open",
    pb.PULL_REQUEST_STATE_CLOSED: "closed",
    pb.PULL_REQUEST_STATE_MERGED: "merged",
}


async def list_pull_requests(context: Context, at: op.ListPullRequests) -> schemas.PullRequestsList:
    """Lists pull requests, newest first; `after` is the id of the last one that the client has."""
    call, prefix, amount = context.read(), at.prefix or "", amount_of(at.amount)
    found: list[pb.PullRequest] = []
    token = ""
    while len(found) < amount:
        page = await context.graveler.list_pull_requests(
            call,
            at.repository,
            states=_STATES[at.status],
            page_size=amount - len(found),
            page_token=token,
            after=at.after or "",
        )
        found += [each for each in page.pull_requests if each.pull_request_id.startswith(prefix)]
        token = page.next_page_token
        if not token:
            break
    ids = [each.pull_request_id for each in found]
    return schemas.PullRequestsList(
        pagination=pagination(ids, has_more=bool(token)), results=[_shape(each) for each in found]
    )


async def create_pull_request(
    context: Context, at: op.CreatePullRequest, body: schemas.PullRequestCreation
) -> schemas.PullRequestCreationResponse:
    """Opens a pull request."""
    made = await context.graveler.create_pull_request(
        context.change(),
        at.repository,
        body.source_branch,
        body.destination_branch,
        body.title,
        body.description or "",
    )
    return schemas.PullRequestCreationResponse(id=made.pull_request_id)


async def get_pull_request(context: Context, at: op.GetPullRequest) -> schemas.PullRequest:
    """Returns a pull request."""
    found = await context.graveler.get_pull_request(context.read(), at.repository, at.pull_request)
    return _shape(found.pull_request)


async def update_pull_request(
    context: Context, at: op.UpdatePullRequest, body: schemas.PullRequestBasic
) -> None:
    """Changes title and description, and closes or opens the request."""
    place = at.repository, at.pull_request
    if body.status == "merged":
        text = "a pull request becomes merged by being merged: PUT …/pulls/{id}/merge"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    if body.title is not None or body.description is not None:
        await context.graveler.update_pull_request(
            context.change(), *place, title=body.title, description=body.description
        )
    if body.status == "closed":
        await context.graveler.close_pull_request(context.change(), *place)
    elif body.status == "open":
        await context.graveler.reopen_pull_request(context.change(), *place)


async def merge_pull_request(context: Context, at: op.MergePullRequest) -> schemas.MergeResult:
    """Merges a pull request. A conflict is 409 with an empty reference. One that is merged stays so."""
    try:
        made = await context.graveler.merge_pull_request(
            context.change(), at.repository, at.pull_request
        )
    except TarnError as error:
        if error.reason is not Reason.MERGE_CONFLICT:
            raise
        answer = {"reference": "", "message": error.message}
        raise ApiError(409, error.message, reason=error.reason.value, body=answer) from error
    return schemas.MergeResult(reference=made.commit.commit_id)


def _date(time: Timestamp) -> datetime:
    return datetime.fromtimestamp(time.seconds, UTC)


def _shape(found: pb.PullRequest) -> schemas.PullRequest:
    return schemas.PullRequest(
        status=_STATUSES[found.state],
        title=found.title,
        description=found.description,
        id=found.pull_request_id,
        creation_date=_date(found.create_time),
        author=found.author,
        source_branch=found.source_branch_id,
        destination_branch=found.destination_branch_id,
        merged_commit_id=found.merge_commit_id or None,
        closed_date=_date(found.end_time) if found.HasField("end_time") else None,
    )
