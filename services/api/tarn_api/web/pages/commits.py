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
from tarn_api.web.conflicts import CONFLICTS_MAX, choices_of, conflict_rows, side_of
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import RepositoryAt, require_head, way_to
from tarn_api.web.starting import ended_or_started
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pull_pb
from tarn_proto.graveler.v1 import task_service_pb2 as task_pb

__all__ = [
    "CommitAt",
    "PickAt",
    "cherry_pick",
    "preview_cherry_pick",
    "preview_revert",
    "revert",
    "show",
]

_SHORT: Final = 12
"""Characters of a commit id that pages show."""
_OPEN: Final = (pull_pb.PULL_REQUEST_STATE_OPEN,)


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


class PickAt(Struct, kw_only=True):
    """A revert or a cherry-pick of a commit on a branch.

    Attributes:
        repository: the repository.
        branch: would take the new commit.
        commit: any ref.
        parent: number of the parent, from 1, with which a merge commit is compared; 0 for other commits.
    """

    repository: str
    branch: str
    commit: str
    parent: int = 0


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


async def preview_revert(context: Context, at: PickAt) -> Page:
    """What a revert of a commit would change on a branch, its conflicts, and the form that makes it."""
    return await _preview(context, at, is_revert=True)


async def preview_cherry_pick(context: Context, at: PickAt) -> Page:
    """What a cherry-pick of a commit would change on a branch, its conflicts, and the form that makes it."""
    return await _preview(context, at, is_revert=False)


async def _preview(context: Context, at: PickAt, *, is_revert: bool) -> Page:
    call = context.read()
    commit = await context.graveler.get_commit(call, at.repository, at.commit)
    head = await context.graveler.get_branch(call, at.repository, at.branch)
    found = await context.graveler.preview_pick(
        call,
        at.repository,
        head.commit_id,
        commit.commit_id,
        is_revert=is_revert,
        parent_number=at.parent,
        page_size=CONFLICTS_MAX,
    )
    compared: Comparison | None = None
    if found.base_commit_id and found.source_commit_id:
        compared = await comparison_of(
            context, at.repository, found.base_commit_id, found.source_commit_id, "", ""
        )
    what = "Revert" if is_revert else "Cherry-pick"
    name = commit.commit_id[:_SHORT]
    return render(
        context,
        "pick.html",
        title=f"{what} {name}",
        crumbs=[*way_to(at.repository, at.branch), Crumb(what)],
        at=at,
        commit=commit,
        head=head.commit_id,
        found=found,
        conflicts=conflict_rows(found.conflicts),
        compared=compared,
        is_revert=is_revert,
    )


async def revert(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Undoes a commit by a new commit on the head that the preview showed, and goes to that one; or to the task, if
    that takes long."""
    return await _apply(context, at, form, merge_pb.RevertRequest, context.graveler.start_revert)


async def cherry_pick(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Makes the changes of a commit again by a new commit on the head that the preview showed, and goes to that one; or
    to the task, if that takes long."""
    start = context.graveler.start_cherry_pick
    return await _apply(context, at, form, merge_pb.CherryPickRequest, start)


async def _apply(
    context: Context,
    at: RepositoryAt,
    form: Form,
    request: type[merge_pb.RevertRequest | merge_pb.CherryPickRequest],
    start: Callable[..., Awaitable[task_pb.Task]],
) -> Response:
    """Has graveler revert or pick the commit of a form on its branch, and goes to the new commit, or to the task."""
    branch, commit_id = form.need("branch", "the branch"), form.need("commit", "the commit")
    head = form.need("head", "the head of the branch that you saw")
    context.trace.values = {"repository": at.repository, "branch": branch}
    wanted = request(
        repository_id=at.repository,
        branch_id=branch,
        ref=commit_id,
        parent_number=_parent_of(form),
        choices=choices_of(form),
        default_side=side_of(form.get("side", "")),
        expected_commit_id=head,
    )
    await require_head(context, at.repository, branch, head)
    task = await ended_or_started(context, start, wanted)
    if not (made := task.commit.commit_id):
        return redirect(links.to_repository(at.repository, "task", task=task.task_id))
    return redirect(links.to_repository(at.repository, "commits", made, branch=branch))


def _parent_of(form: Form) -> int:
    """Returns the number of the parent with which a merge is compared; 0 if the form has none."""
    text = form.get("parent", "")
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 3):
        raise ApiError(400, "the parent must be a number from 1", reason="INVALID_ARGUMENT")
    return int(text)
