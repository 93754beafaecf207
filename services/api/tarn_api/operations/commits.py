"""Commits and their history."""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.core.errors import Kind, Reason, TarnError
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_api.operations.paging import AMOUNT_MAX, amount_of, pagination
from tarn_proto.graveler.v1 import commit_service_pb2 as pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = ["commit", "get_commit", "log_commits"]

_COMMIT_ID: Final = re.compile("[0-9a-f]{64}")
_DATE_MAX: Final = 253_402_300_799


async def commit(context: Context, at: op.Commit, body: schemas.CommitCreation) -> schemas.Commit:
    """Commits the changes of a branch. `date`, in seconds since the epoch, is the time of its author."""
    if at.source_metarange:
        text = "Tarn commits the changes of a branch, no metarange; leave out source_metarange"
        raise ApiError(501, text, reason="NOT_IMPLEMENTED")
    if body.date is not None and not 0 <= body.date <= _DATE_MAX:
        text = f"date: {body.date} is no time in seconds since the epoch of the years 1970 to 9999"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    made = await context.graveler.create_commit(
        context.change(),
        at.repository,
        at.branch,
        body.message,
        metadata=body.metadata,
        allow_empty=bool(body.allow_empty),
        author_time=None if body.date is None else Timestamp(seconds=body.date),
    )
    return shapes.commit(made.commit)


async def get_commit(context: Context, at: op.GetCommit) -> schemas.Commit:
    """Returns the commit of a ref."""
    try:
        found = await context.graveler.get_commit(context.read(), at.repository, at.commit_id)
    except TarnError as error:
        if error.reason is not Reason.REF_NOT_FOUND:
            raise
        raise TarnError(error.kind, Reason.COMMIT_NOT_FOUND, error.message) from error
    return shapes.commit(found)


async def log_commits(context: Context, at: op.LogCommits) -> schemas.CommitList:
    """Returns a page of history. `next_offset` is the token of the next page; `after` may also be a commit id."""
    call, amount = context.read(), amount_of(at.amount)
    stop_id = ""
    if at.stop_at:
        stop_id = (await context.graveler.get_commit(call, at.repository, at.stop_at)).commit_id

    async def fetch(size: int, token: str) -> pb.ListCommitsResponse:
        return await context.graveler.list_commits(
            call,
            at.repository,
            at.ref,
            page_size=size,
            page_token=token,
            first_parent=bool(at.first_parent),
            since=None if at.since is None else Timestamp(seconds=int(at.since.timestamp())),
            paths=at.objects or (),
            prefixes=at.prefixes or (),
        )

    after = at.after or ""
    # The place of a commit in this history is known only by going there.
    is_skipping = _COMMIT_ID.fullmatch(after) is not None
    token = "" if is_skipping else after
    found: list[pb.Commit] = []
    while True:
        page = await fetch(AMOUNT_MAX if is_skipping else amount - len(found), token)
        token, commits = page.next_page_token, list(page.commits)
        if is_skipping:
            place = next((n for n, each in enumerate(commits, 1) if each.commit_id == after), 0)
            is_skipping, commits = not place, commits[place:] if place else []
        found += commits
        ends = [n for n, each in enumerate(found, 1) if each.commit_id == stop_id]
        if ends:
            found, token = found[: ends[0]], ""
        if not token or len(found) >= amount:
            break
    if is_skipping:
        text = f"commit {after} is not in the history that was asked for"
        raise TarnError(Kind.NOT_FOUND, Reason.COMMIT_NOT_FOUND, text)
    next_offset = token
    if len(found) > amount:
        found = found[:amount]
        next_offset = found[-1].commit_id
    names = [each.commit_id for each in found]
    has_more = bool(next_offset) and not at.limit
    return schemas.CommitList(
        pagination=pagination(names, has_more=has_more, next_offset=next_offset),
        results=[shapes.commit(each) for each in found],
    )
