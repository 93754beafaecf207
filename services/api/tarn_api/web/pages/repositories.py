"""The repositories: the list, which is the first page; the form for a new one; how programs reach one."""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from tarn_api.context import Context
from tarn_api.forms import Form
from tarn_api.operations.paging import filled
from tarn_api.operations.repositories import create_repository
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import PAGE_SIZE, RepositoryAt, endpoint_of, way_to
from tarn_proto.graveler.v1 import repository_service_pb2 as pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = ["ListAt", "connect", "create", "home", "open_repository"]


class ListAt(Struct, kw_only=True):
    """A page of names.

    Attributes:
        prefix: begins the names.
        after: the last name of the page before.
    """

    prefix: str = ""
    after: str = ""


async def home(context: Context, at: ListAt) -> Page:
    """The repositories that the caller may read. An empty installation gets the form for the first one instead."""
    call = context.read()

    async def fetch(size: int, token: str) -> tuple[list[pb.Repository], str]:
        page = await context.graveler.list_repositories(
            call, prefix=at.prefix, page_size=size, page_token=token, after=at.after
        )
        return list(page.repositories), page.next_page_token

    found, has_more = await filled(fetch, PAGE_SIZE, lambda each: each.repository_id, at.after)
    return render(
        context,
        "repositories.html",
        title="Repositories",
        crumbs=[Crumb("Repositories")],
        found=found,
        at=at,
        is_first=not (found or at.prefix or at.after),
        more=found[-1].repository_id if has_more else "",
    )


async def create(context: Context, at: Struct, form: Form) -> Response:
    """Creates a repository, with sample data if they are asked for, and goes to its objects."""
    del at
    body = schemas.RepositoryCreation(
        name=form.need("name", "the name of the repository"),
        storage_namespace="",
        default_branch=form.get("branch", "").strip(),
        sample_data=bool(form.get("samples")),
    )
    context.trace.values = {"repository": body.name}
    made = await create_repository(context, op.CreateRepository(), body)
    return redirect(links.to_repository(made.id, "objects", ref=made.default_branch))


async def open_repository(context: Context, at: RepositoryAt) -> Response:
    """Goes to the objects of the default branch."""
    found = await context.graveler.get_repository(context.read(), at.repository)
    return redirect(links.to_repository(at.repository, "objects", ref=found.default_branch_id))


async def connect(context: Context, at: RepositoryAt) -> Page:
    """How programs reach the repository."""
    found = await context.graveler.get_repository(context.read(), at.repository)
    return render(
        context,
        "connect.html",
        title="Connect programs",
        crumbs=[*way_to(at.repository), Crumb("Connect programs")],
        repository=at.repository,
        branch=found.default_branch_id,
        s3=endpoint_of(context),
    )
