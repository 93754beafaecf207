"""One pull request: what it asks for, what was said about it, what its merge still needs; and its forms.

A review and a merge are of the commits that the page showed: the forms carry them. If a branch has moved since, the
page is shown again with what changed, and nothing is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from tarn.core.access.actions import Action, branches_resource, repository_resource
from tarn.core.errors import Kind, Reason, TarnError
from tarn_api.context import Context
from tarn_api.errors import ApiError, from_tarn_error
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.changes import Folders, folders_of
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.pages.pulls import STATE_NAMES
from tarn_api.web.place import PAGE_SIZE, way_to
from tarn_api.web.starting import ended_or_started
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pb

__all__ = [
    "PullAt",
    "PullChangesAt",
    "changes",
    "close",
    "comment",
    "dismiss",
    "edit",
    "merge",
    "reopen",
    "review",
    "show",
]

_VERDICTS: Final = {
    "approve": pb.REVIEW_VERDICT_APPROVE,
    "changes": pb.REVIEW_VERDICT_REQUEST_CHANGES,
}
_VERDICT_NAMES: Final[dict[int, str]] = {
    pb.REVIEW_VERDICT_APPROVE: "approves",
    pb.REVIEW_VERDICT_REQUEST_CHANGES: "requests changes",
}
_EVENT_NAMES: Final[dict[int, str]] = {
    pb.PULL_REQUEST_EVENT_KIND_COMMENT: "commented",
    pb.PULL_REQUEST_EVENT_KIND_APPROVE: "approved",
    pb.PULL_REQUEST_EVENT_KIND_REQUEST_CHANGES: "requested changes of",
    pb.PULL_REQUEST_EVENT_KIND_DISMISS: "dismissed the review of",
    pb.PULL_REQUEST_EVENT_KIND_UPDATE: "changed title or description; the title was",
    pb.PULL_REQUEST_EVENT_KIND_CLOSE: "closed the request",
    pb.PULL_REQUEST_EVENT_KIND_REOPEN: "opened the request again",
    pb.PULL_REQUEST_EVENT_KIND_MERGE: "merged the request:",
}
_INLINE: Final = (pb.PULL_REQUEST_EVENT_KIND_DISMISS, pb.PULL_REQUEST_EVENT_KIND_UPDATE)
"""Events whose body is a short text of the sentence."""
_SHOWN_AGAIN: Final = frozenset(
    {
        Reason.REF_MOVED,
        Reason.MERGE_CONFLICT,
        Reason.PULL_REQUEST_BLOCKED,
        Reason.PULL_REQUEST_EXISTS,
        Reason.PULL_REQUEST_NOT_OPEN,
    }
)
"""Refusals after which the person looks at the request again."""
_NOT_READABLE: Final = frozenset(
    {Kind.NOT_FOUND, Kind.DENIED, Kind.INVALID, Kind.FAILED_PRECONDITION, Kind.DEADLINE}
)
"""Errors of the commits of a request, whose page is shown all the same: a commit has expired, may not be read, or has
changes that take too long to count."""
_MOVE_COMMITS: Final = 20


class PullAt(Struct, kw_only=True):
    """The page of a request.

    Attributes:
        repository: the repository.
        pull: the id of the request.
        about: the path or folder for which the form of a comment is filled in.
        token: of the page of the conversation.
    """

    repository: str
    pull: str
    about: str = ""
    token: str = ""


class PullChangesAt(Struct, kw_only=True):
    """A page of the changes of a request.

    Attributes:
        repository: the repository.
        pull: the id of the request.
        prefix: only those below it.
        token: of the page.
    """

    repository: str
    pull: str
    prefix: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class _Sides:
    """What a request merges, or has merged.

    Attributes:
        left: the commit of the destination.
        right: the commit with the changes.
        source: the commit of the source; that of a squash is not known but as the last one that was seen.
        from_merge_base: whether the changes are those since the merge base.
        parents: of the merge commit, its number of parents; 0: it is not merged.
    """

    left: str
    right: str
    source: str
    from_merge_base: bool = True
    parents: int = 0


@dataclass(frozen=True, slots=True)
class _Content:
    """The changes and commits of a request, or why they cannot be read."""

    folders: Folders | None = None
    commits: Sequence[commit_pb.Commit] = ()
    has_more_commits: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Move:
    """A branch that has moved since the page was opened.

    Attributes:
        before, now: its commits.
        commits: the newest of those that came.
    """

    branch: str
    before: str
    now: str
    commits: Sequence[commit_pb.Commit]


@dataclass(frozen=True, slots=True)
class _May:
    """Which forms are shown. Graveler decides what is allowed.

    Attributes:
        write: comment, review, close and open again.
        edit: title and description.
        dismiss: reviews of others.
        merge: changes of the destination.
    """

    write: bool
    edit: bool
    dismiss: bool
    merge: bool


async def show(context: Context, at: PullAt) -> Page:
    """A pull request."""
    return await _page(context, at)


async def _page(
    context: Context,
    at: PullAt,
    *,
    status: int = 200,
    problem: str = "",
    sent: Mapping[str, str] = MappingProxyType({}),
) -> Page:
    """Returns the page of a request.

    Args:
        context: of the request of HTTP.
        at: which.
        status: of HTTP.
        problem: why a form was refused; empty: nothing was.
        sent: the fields of that form.
    """
    call = context.read()
    found = await context.graveler.get_pull_request(call, at.repository, at.pull)
    pull = found.pull_request
    events = await context.graveler.list_pull_request_events(
        call, at.repository, at.pull, page_size=PAGE_SIZE, page_token=at.token
    )
    sides = _asked(pull)
    try:
        sides = await _sides(context, at.repository, pull)
        content = await _content(context, at.repository, sides)
    except TarnError as error:
        if error.kind not in _NOT_READABLE:
            raise
        content = _Content(problem=error.message)
    return render(
        context,
        "pull.html",
        title=pull.title,
        crumbs=[
            *way_to(at.repository),
            Crumb("Pull requests", links.to_repository(at.repository, "pulls")),
            Crumb(f"Pull request {pull.pull_request_id}"),
        ],
        status=status,
        at=at,
        pull=pull,
        state=STATE_NAMES.get(pull.state, "unknown"),
        blockers=list(found.blockers),
        events=events.events,
        more_events=events.next_page_token,
        sides=sides,
        content=content,
        may=_may(context, at.repository, pull),
        problem=problem,
        moves=await _moves(context, at.repository, pull, sent),
        sent=sent,
        verdict_names=_VERDICT_NAMES,
        event_names=_EVENT_NAMES,
        inline=_INLINE,
    )


def _asked(pull: pb.PullRequest) -> _Sides:
    return _Sides(pull.destination_commit_id, pull.source_commit_id, pull.source_commit_id)


async def _sides(context: Context, repository: str, pull: pb.PullRequest) -> _Sides:
    if not pull.merge_commit_id:
        return _asked(pull)
    made = await context.graveler.get_commit(context.read(), repository, pull.merge_commit_id)
    source = made.parent_ids[1] if len(made.parent_ids) > 1 else pull.source_commit_id
    return _Sides(
        made.parent_ids[0],
        made.commit_id,
        source,
        from_merge_base=False,
        parents=len(made.parent_ids),
    )


async def _content(context: Context, repository: str, sides: _Sides) -> _Content:
    folders = await folders_of(
        context, repository, sides.left, sides.right, from_merge_base=sides.from_merge_base
    )
    page = await context.graveler.list_commits(
        context.read(), repository, sides.source, exclude_ref=sides.left, page_size=PAGE_SIZE
    )
    return _Content(folders, page.commits, bool(page.next_page_token))


async def _moves(
    context: Context, repository: str, pull: pb.PullRequest, sent: Mapping[str, str]
) -> list[_Move]:
    """Returns the branches that are not at the commits of a form any more."""
    moves = []
    for branch, before, now in (
        (pull.source_branch_id, sent.get("source", ""), pull.source_commit_id),
        (pull.destination_branch_id, sent.get("destination", ""), pull.destination_commit_id),
    ):
        if before in ("", now):
            continue
        commits: Sequence[commit_pb.Commit] = ()
        try:
            page = await context.graveler.list_commits(
                context.read(), repository, now, exclude_ref=before, page_size=_MOVE_COMMITS
            )
            commits = page.commits
        except TarnError as error:
            if error.kind not in _NOT_READABLE:
                raise
        moves.append(_Move(branch, before, now, commits))
    return moves


def _may(context: Context, repository: str, pull: pb.PullRequest) -> _May:
    grant = context.grant
    assert grant is not None, "pages of a repository have a caller"
    place = repository_resource(repository)
    destination = branches_resource(repository) + pull.destination_branch_id
    writes = grant.allows(Action.WRITE_REPO, place)
    rules = grant.allows(Action.WRITE_RULES, place)
    return _May(
        write=writes,
        edit=writes and (rules or pull.author == grant.user_id),
        dismiss=rules,
        merge=grant.allows(Action.WRITE_REPO, destination),
    )


async def changes(context: Context, at: PullChangesAt) -> Page:
    """The changes of a request below a folder."""
    found = await context.graveler.get_pull_request(context.read(), at.repository, at.pull)
    pull = found.pull_request
    sides = await _sides(context, at.repository, pull)
    folders = await folders_of(
        context,
        at.repository,
        sides.left,
        sides.right,
        from_merge_base=sides.from_merge_base,
        prefix=at.prefix,
        token=at.token,
    )
    name = f"Pull request {pull.pull_request_id}"
    return render(
        context,
        "pull_changes.html",
        title=f"Changes of pull request {pull.pull_request_id}",
        crumbs=[
            *way_to(at.repository),
            Crumb("Pull requests", links.to_repository(at.repository, "pulls")),
            Crumb(name, links.to_repository(at.repository, "pulls", pull.pull_request_id)),
            Crumb("Changes"),
        ],
        at=at,
        pull=pull,
        folders=folders,
    )


async def comment(context: Context, at: PullAt, form: Form) -> Response:
    """Adds a comment on the request, or on a path of it."""
    await context.graveler.comment_pull_request(
        context.change(),
        at.repository,
        at.pull,
        form.need("body", "the comment"),
        path=form.get("path", ""),
    )
    return _back(at)


async def review(context: Context, at: PullAt, form: Form) -> Response:
    """Approves the commits that the page showed, or requests changes."""
    verdict = _VERDICTS.get(form.get("verdict", ""))
    if verdict is None:
        text = "a review approves, or requests changes"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    source, destination = _heads(form)
    async with _shown_again(context, at, form):
        await context.graveler.review_pull_request(
            context.change(),
            at.repository,
            at.pull,
            verdict,
            source,
            destination_commit_id=destination,
            body=form.get("body", ""),
        )
    return _back(at)


async def merge(context: Context, at: PullAt, form: Form) -> Response:
    """Merges the commits that the page showed; goes to the task if that takes long."""
    source, destination = _heads(form)
    async with _shown_again(context, at, form):
        wanted = pb.MergePullRequestRequest(
            repository_id=at.repository,
            pull_request_id=at.pull,
            message=form.get("message", "").strip().replace("\r\n", "\n"),
            squash=bool(form.get("squash")),
            expected_source_commit_id=source,
            expected_destination_commit_id=destination,
        )
        task = await ended_or_started(context, context.graveler.start_pull_request_merge, wanted)
    if not task.commit.commit_id:
        return redirect(links.to_repository(at.repository, "task", task=task.task_id))
    return _back(at)


def _heads(form: Form) -> tuple[str, str]:
    """Returns the commits of source and destination that the page showed."""
    source = form.need("source", "the commit of the source")
    return source, form.need("destination", "the commit of the destination")


@asynccontextmanager
async def _shown_again(context: Context, at: PullAt, form: Form) -> AsyncIterator[None]:
    """Answers a refusal after which the person has to look again: with the page of the request, with what has changed,
    and with what they wrote.

    Raises:
        ApiError: that answer.
    """
    try:
        yield
    except TarnError as error:
        if error.reason not in _SHOWN_AGAIN:
            raise
        refusal = from_tarn_error(error, write=True)
        refusal.page = await _page(
            context, at, status=refusal.status, problem=error.message, sent=form
        )
        raise refusal from error


async def dismiss(context: Context, at: PullAt, form: Form) -> Response:
    """Dismisses the review of a user."""
    reviewer = form.need("reviewer", "the reviewer")
    async with _shown_again(context, at, form):
        await context.graveler.dismiss_pull_request_review(
            context.change(), at.repository, at.pull, reviewer
        )
    return _back(at)


async def edit(context: Context, at: PullAt, form: Form) -> Response:
    """Changes title and description."""
    await context.graveler.update_pull_request(
        context.change(),
        at.repository,
        at.pull,
        title=form.need("title", "the title"),
        description=form.get("description", ""),
    )
    return _back(at)


async def close(context: Context, at: PullAt, form: Form) -> Response:
    """Closes the request without merging it."""
    async with _shown_again(context, at, form):
        await context.graveler.close_pull_request(context.change(), at.repository, at.pull)
    return _back(at)


async def reopen(context: Context, at: PullAt, form: Form) -> Response:
    """Opens the request again."""
    async with _shown_again(context, at, form):
        await context.graveler.reopen_pull_request(context.change(), at.repository, at.pull)
    return _back(at)


def _back(at: PullAt) -> Response:
    return redirect(links.to_repository(at.repository, "pulls", at.pull))
