"""History: the form of a commit, the log of a ref, one commit with its changes."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from starlette.responses import Response

from tarn.client.commits import ChangesPage
from tarn_api.context import Context
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.changes import Change, changes_of
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import PAGE_SIZE, RepositoryAt, way_to

__all__ = ["CommitAt", "LogAt", "UncommittedAt", "commit", "log", "show", "uncommitted"]

_SHORT: Final = 12
"""Characters of a commit id that pages show."""


class UncommittedAt(Struct, kw_only=True):
    """A page of the uncommitted changes of a branch."""

    repository: str
    branch: str
    after: str = ""


class LogAt(Struct, kw_only=True):
    """A page of a history.

    Attributes:
        repository: the repository.
        ref: where it begins.
        path: only commits that change this path.
        token: of the page.
    """

    repository: str
    ref: str
    path: str = ""
    token: str = ""


class CommitAt(Struct, kw_only=True):
    """A page of the changes of a commit."""

    repository: str
    commit: str
    after: str = ""


async def uncommitted(context: Context, at: UncommittedAt) -> Page:
    """The uncommitted changes of a branch, and the form that commits them."""
    call = context.read()

    async def fetch(size: int, token: str) -> ChangesPage:
        return await context.graveler.diff_uncommitted(
            call, at.repository, at.branch, after=at.after, page_size=size, page_token=token
        )

    found, more = await changes_of(fetch, at.after)
    return render(
        context,
        "uncommitted.html",
        title="Commit",
        crumbs=[*way_to(at.repository, at.branch), Crumb("Commit")],
        at=at,
        changes=found,
        more=more,
    )


async def commit(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Commits the changes of a branch, and goes to the commit."""
    branch = form.need("branch", "the branch")
    message = form.need("message", "the message").replace("\r\n", "\n")
    context.trace.values = {"repository": at.repository, "branch": branch}
    made = await context.graveler.create_commit(context.change(), at.repository, branch, message)
    return redirect(links.to_repository(at.repository, "commits", made.commit.commit_id))


async def log(context: Context, at: LogAt) -> Page:
    """The commits of a ref, newest first."""
    page = await context.graveler.list_commits(
        context.read(),
        at.repository,
        at.ref,
        page_size=PAGE_SIZE,
        page_token=at.token,
        paths=[at.path] if at.path else (),
    )
    return render(
        context,
        "log.html",
        title=f"History of {at.path or at.ref}",
        crumbs=[*way_to(at.repository, at.ref), Crumb("History")],
        at=at,
        commits=page.commits,
        more=page.next_page_token,
        short=_SHORT,
    )


async def show(context: Context, at: CommitAt) -> Page:
    """A commit, and its changes to its first parent."""
    call = context.read()
    found = await context.graveler.get_commit(call, at.repository, at.commit)
    changes: list[Change] = []
    more = ""
    if found.parent_ids:

        async def fetch(size: int, token: str) -> ChangesPage:
            return await context.graveler.diff_refs(
                call,
                at.repository,
                found.parent_ids[0],
                found.commit_id,
                after=at.after,
                page_size=size,
                page_token=token,
            )

        changes, more = await changes_of(fetch, at.after)
    name = found.commit_id[:_SHORT]
    return render(
        context,
        "commit.html",
        title=f"Commit {name}",
        crumbs=[*way_to(at.repository), Crumb(f"Commit {name}")],
        at=at,
        commit=found,
        changes=changes,
        more=more,
        short=_SHORT,
    )
