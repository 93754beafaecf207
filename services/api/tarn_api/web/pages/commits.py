"""One commit: its changes by folder and by path, and what can be made of it: branches, tags, reverts, picks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from tarn.core.errors import Kind, TarnError
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.changes import Comparison, comparison_of
from tarn_api.web.choices import branches_offered
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import RepositoryAt, way_to
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as pb
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pull_pb

__all__ = ["CommitAt", "applied", "cherry_pick", "revert", "show", "side_of"]

_SHORT: Final = 12
"""Characters of a commit id that pages show."""
_OPEN: Final = (pull_pb.PULL_REQUEST_STATE_OPEN,)
_SIDES: Final = {
    "": pb.MERGE_SIDE_UNSPECIFIED,
    "source": pb.MERGE_SIDE_SOURCE,
    "destination": pb.MERGE_SIDE_DESTINATION,
}


class CommitAt(Struct, kw_only=True):
    """A page of the changes of a commit.

    Attributes:
        repository: the repository.
        commit: any ref.
        parent: number of the parent that it is compared with, from 1.
        prefix: only changes of the paths that begin with it.
        after: the last path of the page before.
        branch: proposed to the forms; empty: the default branch.
    """

    repository: str
    commit: str
    parent: int = 1
    prefix: str = ""
    after: str = ""
    branch: str = ""


async def show(context: Context, at: CommitAt) -> Page:
    """A commit, and its changes to one of its parents."""
    found = await context.graveler.get_commit(context.read(), at.repository, at.commit)
    compared: Comparison | None = None
    parent = ""
    if found.parent_ids:
        if not 1 <= at.parent <= len(found.parent_ids):
            text = f"the commit has {len(found.parent_ids)} parents, and none of number {at.parent}"
            raise ApiError(400, text, reason="INVALID_ARGUMENT")
        parent = found.parent_ids[at.parent - 1]
        compared = await comparison_of(
            context, at.repository, parent, found.commit_id, at.prefix, at.after
        )
    name = found.commit_id[:_SHORT]
    default = await _default_branch(context, at.repository)
    return render(
        context,
        "commit.html",
        title=f"Commit {name}",
        crumbs=[*way_to(at.repository), Crumb(f"Commit {name}")],
        at=at,
        commit=found,
        parent=parent,
        compared=compared,
        branch=at.branch or default,
        default=default,
        pull=await _pull_of(context, at.repository, at.branch),
        names=await branches_offered(context, at.repository),
    )


async def _pull_of(context: Context, repository: str, branch: str) -> str:
    """Returns the number of an open pull request of a branch that a change was just made on; empty if none is found at
    once, or if the caller may not see it."""
    if not branch:
        return ""
    try:
        page = await context.graveler.list_pull_requests(
            context.read(), repository, states=_OPEN, from_branch=branch, page_size=1
        )
    except TarnError as error:
        if error.kind not in (Kind.DENIED, Kind.INVALID):
            raise
        return ""
    return page.pull_requests[0].pull_request_id if page.pull_requests else ""


async def _default_branch(context: Context, repository: str) -> str:
    """Returns the branch that forms propose; empty if the caller may not know it."""
    try:
        found = await context.graveler.get_repository(context.read(), repository)
    except TarnError as error:
        if error.kind is not Kind.DENIED:
            raise
        return ""
    return found.default_branch_id


async def revert(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Undoes a commit by a new commit on a branch, and goes to that one."""
    return await _of_form(context, at, form, context.graveler.revert)


async def cherry_pick(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Makes the changes of a commit again by a new commit on a branch, and goes to that one."""
    return await _of_form(context, at, form, context.graveler.cherry_pick)


async def _of_form(
    context: Context,
    at: RepositoryAt,
    form: Form,
    apply: Callable[..., Awaitable[commit_pb.Commit]],
) -> Response:
    """Has graveler apply the commit of a form to its branch, and goes to the new commit."""
    branch, commit_id = form.need("branch", "the branch"), form.need("commit", "the commit")
    side = side_of(form.get("side", ""))
    return await applied(
        context, at.repository, branch, commit_id, apply, parent_number=_parent_of(form), side=side
    )


async def applied(
    context: Context,
    repository: str,
    branch: str,
    commit_id: str,
    apply: Callable[..., Awaitable[commit_pb.Commit]],
    *,
    parent_number: int,
    side: pb.MergeSide = pb.MERGE_SIDE_UNSPECIFIED,
) -> Response:
    """Has graveler revert or pick a commit on a branch, and goes to the new commit.

    Args:
        context: of the request.
        repository: the repository.
        branch: takes the new commit.
        commit_id: the commit to revert or pick.
        apply: `revert` or `cherry_pick` of the client of graveler.
        parent_number: of the parent, from 1, with which a merge commit is compared; 0 for other commits.
        side: wins conflicts.
    """
    context.trace.values = {"repository": repository, "branch": branch}
    made = await apply(
        context.change(),
        repository,
        branch,
        commit_id,
        parent_number=parent_number,
        default_side=side,
    )
    return redirect(links.to_repository(repository, "commits", made.commit_id, branch=branch))


def side_of(name: str) -> pb.MergeSide:
    """Returns the side that wins conflicts, by its name in forms.

    Raises:
        ApiError: 400.
    """
    if name not in _SIDES:
        text = "conflicts are won by the source, by the destination, or by neither"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    return _SIDES[name]


def _parent_of(form: Form) -> int:
    """Returns the number of the parent with which a merge is compared; 0 if the form has none."""
    text = form.get("parent", "")
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 3):
        raise ApiError(400, "the parent must be a number from 1", reason="INVALID_ARGUMENT")
    return int(text)
