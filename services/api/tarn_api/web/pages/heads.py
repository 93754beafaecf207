"""Heads of branches: how they changed, what a move would lose, the move, and branches that were deleted."""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from tarn.client.commits import ChangesPage
from tarn_api.context import Context
from tarn_api.feed.events import HEAD_KINDS
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.changes import changes_of, counts_of
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import PAGE_SIZE, RepositoryAt, way_to
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb

__all__ = ["DeletedAt", "MoveAt", "ReflogAt", "deleted", "move", "preview", "reflog", "restore"]


class ReflogAt(Struct, kw_only=True):
    """A page of the changes of a branch's head."""

    repository: str
    branch: str
    token: str = ""


class MoveAt(Struct, kw_only=True):
    """A move of a branch to the commit of a ref."""

    repository: str
    branch: str
    ref: str


class DeletedAt(Struct, kw_only=True):
    """A page of deleted branches whose names begin with a prefix."""

    repository: str
    prefix: str = ""
    token: str = ""


async def reflog(context: Context, at: ReflogAt) -> Page:
    """How the head of a branch changed, newest first. The branch may be deleted."""
    page = await context.graveler.list_reflog(
        context.read(), at.repository, at.branch, page_size=PAGE_SIZE, page_token=at.token
    )
    newest = page.entries[0] if page.entries and not at.token else None
    is_deleted = newest is not None and newest.operation == pb.HEAD_OPERATION_DELETE
    return render(
        context,
        "reflog.html",
        title=f"Reflog of {at.branch}",
        crumbs=[*way_to(at.repository, "" if is_deleted else at.branch), Crumb("Reflog")],
        at=at,
        entries=[(each, HEAD_KINDS.get(each.operation, "other")) for each in page.entries],
        head="" if newest is None else newest.new_commit_id,
        is_deleted=is_deleted,
        more=page.next_page_token,
    )


async def preview(context: Context, at: MoveAt) -> Page:
    """What a move of a branch would lose and change, and the form that moves it from the head that is shown."""
    call, graveler = context.read(), context.graveler
    head = (await graveler.get_branch(call, at.repository, at.branch)).commit_id
    target = await graveler.get_commit(call, at.repository, at.ref)
    to = target.commit_id
    lost = await graveler.list_commits(
        call, at.repository, head, exclude_ref=to, page_size=PAGE_SIZE
    )
    gained = await graveler.list_commits(
        call, at.repository, to, exclude_ref=head, page_size=PAGE_SIZE
    )

    async def fetch(size: int, token: str) -> ChangesPage:
        return await graveler.diff_uncommitted(
            call, at.repository, at.branch, page_size=size, page_token=token
        )

    uncommitted, more = await changes_of(fetch, "")
    return render(
        context,
        "move.html",
        title=f"Move {at.branch}",
        crumbs=[*way_to(at.repository, at.branch), Crumb("Move")],
        at=at,
        head=head,
        target=target,
        lost=lost,
        gained=gained,
        counts=await counts_of(context, at.repository, head, to),
        uncommitted=uncommitted,
        has_more_uncommitted=bool(more),
    )


async def move(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Moves a branch from the head that the preview showed, and goes to its history."""
    branch, target = form.need("branch", "the branch"), form.need("target", "the commit")
    context.trace.values = {"repository": at.repository, "branch": branch}
    await context.graveler.move_branch(
        context.change(),
        at.repository,
        branch,
        target,
        expected_commit_id=form.need("expected", "the head that you saw"),
        force=bool(form.get("force")),
    )
    return redirect(links.to_repository(at.repository, "commits", ref=branch))


async def deleted(context: Context, at: DeletedAt) -> Page:
    """The deleted branches that can be restored."""
    page = await context.graveler.list_deleted_branches(
        context.read(),
        at.repository,
        prefix=at.prefix,
        page_size=PAGE_SIZE,
        page_token=at.token,
    )
    return render(
        context,
        "deleted.html",
        title="Deleted branches",
        crumbs=[
            *way_to(at.repository),
            Crumb("Branches", links.to_repository(at.repository, "branches")),
            Crumb("Deleted"),
        ],
        at=at,
        found=page.branches,
        more=page.next_page_token,
    )


async def restore(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Creates a deleted branch again at the head that it had, and goes to its objects."""
    name = form.need("name", "the name of the branch")
    context.trace.values = {"repository": at.repository, "branch": name}
    await context.graveler.restore_branch(context.change(), at.repository, name)
    return redirect(links.to_repository(at.repository, "objects", ref=name))
