"""Pull requests of a repository: the list, and the form for a new one with what it would merge."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from starlette.responses import Response

from tarn.core.errors import TarnError
from tarn.core.printable import printable
from tarn.core.pull_request import TITLE_BYTES_MAX
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.changes import Folders, folders_of
from tarn_api.web.choices import Missing, branches_offered, missing_of
from tarn_api.web.page import Crumb, Page, first_line, redirect, render
from tarn_api.web.place import PAGE_SIZE, RepositoryAt, way_to
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pb

__all__ = [
    "STATE_NAMES",
    "NewPullAt",
    "PullsAt",
    "create",
    "new",
    "show",
]

STATE_NAMES: Final[dict[int, str]] = {
    pb.PULL_REQUEST_STATE_OPEN: "open",
    pb.PULL_REQUEST_STATE_CLOSED: "closed",
    pb.PULL_REQUEST_STATE_MERGED: "merged",
}
_STATES: Final[dict[str, list[pb.PullRequestState]]] = {
    "open": [pb.PULL_REQUEST_STATE_OPEN],
    "closed": [pb.PULL_REQUEST_STATE_CLOSED],
    "merged": [pb.PULL_REQUEST_STATE_MERGED],
    "all": [],
}
_CALLS_MAX: Final = 10
"""Calls for one page: a filter may pass over many requests."""


class PullsAt(Struct, kw_only=True):
    """A page of the list.

    Attributes:
        repository: the repository.
        state: `open`, `closed`, `merged` or `all`.
        author, source, destination: only those of this user, from this branch, into this branch; empty: all.
        token: of the page.
    """

    repository: str
    state: str = "open"
    author: str = ""
    source: str = ""
    destination: str = ""
    token: str = ""


class NewPullAt(Struct, kw_only=True):
    """The form for a new request; without a source, the form that asks for the branches.

    Attributes:
        repository: the repository.
        source, destination: the branches; without a destination, the default branch.
        prefix: only the changes below it are shown.
        token: of the page of changes.
    """

    repository: str
    source: str = ""
    destination: str = ""
    prefix: str = ""
    token: str = ""


async def show(context: Context, at: PullsAt) -> Page:
    """The pull requests that meet all filters, newest first."""
    if at.state not in _STATES:
        text = "the state of a pull request is open, closed, merged, or all of them"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    call, token = context.read(), at.token
    repository = await context.graveler.get_repository(call, at.repository)
    found: list[pb.PullRequest] = []
    for _ in range(_CALLS_MAX):
        page = await context.graveler.list_pull_requests(
            call,
            at.repository,
            states=_STATES[at.state],
            author=at.author.strip(),
            from_branch=at.source.strip(),
            into_branch=at.destination.strip(),
            page_size=PAGE_SIZE - len(found),
            page_token=token,
        )
        found += page.pull_requests
        token = page.next_page_token
        if not token or len(found) >= PAGE_SIZE:
            break
    return render(
        context,
        "pulls.html",
        title="Pull requests",
        crumbs=[*way_to(at.repository), Crumb("Pull requests")],
        at=at,
        default=repository.default_branch_id,
        found=found,
        states=list(_STATES),
        state_names=STATE_NAMES,
        more=token,
        names=await branches_offered(context, at.repository),
    )


async def new(context: Context, at: NewPullAt) -> Page:
    """The form for a new request, with the changes and commits that its merge would bring."""
    call = context.read()
    destination = at.destination.strip()
    if not destination:
        destination = (await context.graveler.get_repository(call, at.repository)).default_branch_id
    source = at.source.strip()
    folders: Folders | None = None
    commits: list[commit_pb.Commit] = []
    has_more = False
    missing: Missing | None = None
    if source:
        try:
            folders = await folders_of(
                context,
                at.repository,
                destination,
                source,
                from_merge_base=True,
                prefix=at.prefix,
                token=at.token,
            )
            page = await context.graveler.list_commits(
                call, at.repository, source, exclude_ref=destination, page_size=PAGE_SIZE
            )
            commits, has_more = list(page.commits), bool(page.next_page_token)
        except TarnError as error:
            fields = [("source", source), ("destination", destination)]
            missing = await missing_of(context, at.repository, fields, error)
    return render(
        context,
        "pull_new.html",
        title="New pull request",
        crumbs=[
            *way_to(at.repository),
            Crumb("Pull requests", links.to_repository(at.repository, "pulls")),
            Crumb("New"),
        ],
        at=at,
        source=source,
        destination=destination,
        folders=folders,
        commits=commits,
        has_more_commits=has_more,
        proposal=_title_of(commits),
        missing=missing,
        status=404 if missing else 200,
        names=await branches_offered(context, at.repository),
    )


def _title_of(commits: list[commit_pb.Commit]) -> str:
    """Returns the first line of the only commit, if it can be a title."""
    if len(commits) != 1:
        return ""
    line = first_line(commits[0].message)
    is_title = len(line.encode()) <= TITLE_BYTES_MAX and printable(line) == line
    return line if is_title else ""


async def create(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Opens a request, and goes to its page."""
    source, destination = form.need("source", "the source"), form.need("destination", "the branch")
    context.trace.values = {"repository": at.repository, "branch": source}
    made = await context.graveler.create_pull_request(
        context.change(),
        at.repository,
        source,
        destination,
        form.need("title", "the title"),
        form.get("description", ""),
    )
    return redirect(links.to_repository(at.repository, "pulls", made.pull_request_id))
