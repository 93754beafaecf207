"""Branches and tags: lists, creation, deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct
from starlette.responses import Response

from tarn.client.ref_size import size_of_branch, size_of_ref
from tarn_api.context import Context
from tarn_api.forms import Form
from tarn_api.operations.paging import Fetch, filled
from tarn_api.web import links
from tarn_api.web.choices import refs_offered
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import PAGE_SIZE, RepositoryAt, way_to
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb
from tarn_proto.graveler.v1 import tag_service_pb2 as tag_pb

__all__ = [
    "RefsAt",
    "SizeAt",
    "branches",
    "create_branch",
    "create_tag",
    "delete_branch",
    "delete_tag",
    "size",
    "tags",
]

T = TypeVar("T")


class RefsAt(Struct, kw_only=True):
    """A page of refs.

    Attributes:
        repository: the repository.
        prefix: begins the names.
        after: the last name of the page before.
    """

    repository: str
    prefix: str = ""
    after: str = ""


async def branches(context: Context, at: RefsAt) -> Page:
    """The branches of a repository."""
    call = context.read()

    async def fetch(size: int, token: str) -> tuple[list[branch_pb.Branch], str]:
        page = await context.graveler.list_branches(
            call,
            at.repository,
            prefix=at.prefix,
            page_size=size,
            page_token=token,
            after=at.after,
        )
        return list(page.branches), page.next_page_token

    return await _page(context, at, "Branches", fetch, lambda each: each.branch_id)


async def tags(context: Context, at: RefsAt) -> Page:
    """The tags of a repository."""
    call = context.read()

    async def fetch(size: int, token: str) -> tuple[list[tag_pb.Tag], str]:
        page = await context.graveler.list_tags(
            call,
            at.repository,
            prefix=at.prefix,
            page_size=size,
            page_token=token,
            after=at.after,
        )
        return list(page.tags), page.next_page_token

    return await _page(context, at, "Tags", fetch, lambda each: each.tag_id)


async def _page(
    context: Context, at: RefsAt, title: str, fetch: Fetch[T], name: Callable[[T], str]
) -> Page:
    """Returns the page of a list of refs, whose template is named after its title."""
    repository = await context.graveler.get_repository(context.read(), at.repository)
    found, has_more = await filled(fetch, PAGE_SIZE, name, at.after)
    return render(
        context,
        f"{title.lower()}.html",
        title=title,
        crumbs=[*way_to(at.repository), Crumb(title)],
        repository=at.repository,
        default=repository.default_branch_id,
        at=at,
        found=found,
        more=name(found[-1]) if has_more else "",
        names=await refs_offered(context, at.repository),
    )


class SizeAt(Struct, kw_only=True):
    """A page of the size of a ref.

    Attributes:
        repository: the repository.
        branch: whose commit and uncommitted changes are counted; or
        ref: whose commit is.
    """

    repository: str
    branch: str = ""
    ref: str = ""


async def size(context: Context, at: SizeAt) -> Page:
    """How many objects a ref has, and their bytes. It is counted when it is asked for."""
    call, graveler = context.read(), context.graveler
    if not (name := at.branch or at.ref):
        name = (await graveler.get_repository(call, at.repository)).default_branch_id
    if at.ref and not at.branch:
        found = await size_of_ref(graveler, call, at.repository, name)
    else:
        found = await size_of_branch(graveler, call, at.repository, name)
    return render(
        context,
        "size.html",
        title=f"Size of {name}",
        crumbs=[*way_to(at.repository), Crumb("Size")],
        repository=at.repository,
        name=name,
        is_branch=not at.ref or bool(at.branch),
        found=found,
    )


async def create_branch(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Creates a branch, and goes to its objects."""
    name, source = form.need("name", "the name of the branch"), form.need("source", "the source")
    context.trace.values = {"repository": at.repository, "branch": name}
    await context.graveler.create_branch(context.change(), at.repository, name, source)
    return redirect(links.to_repository(at.repository, "objects", ref=name))


async def delete_branch(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Deletes a branch with its uncommitted changes."""
    name = form.need("name", "the name of the branch")
    context.trace.values = {"repository": at.repository, "branch": name}
    await context.graveler.delete_branch(context.change(), at.repository, name)
    return redirect(links.to_repository(at.repository, "branches"))


async def create_tag(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Creates a tag."""
    name, source = form.need("name", "the name of the tag"), form.need("source", "the source")
    context.trace.values = {"repository": at.repository, "tag": name}
    await context.graveler.create_tag(context.change(), at.repository, name, source)
    return redirect(links.to_repository(at.repository, "tags"))


async def delete_tag(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Deletes a tag; its commit stays."""
    name = form.need("name", "the name of the tag")
    context.trace.values = {"repository": at.repository, "tag": name}
    await context.graveler.delete_tag(context.change(), at.repository, name)
    return redirect(links.to_repository(at.repository, "tags"))
