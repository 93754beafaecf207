"""Repositories. Tarn makes the namespace of each, and shows the one that the client named (see rest-api.md)."""

from __future__ import annotations

from tarn.core.access.actions import Action, repository_resource
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId, parse_repository_id
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_api.operations.paging import amount_of, filled, pagination
from tarn_api.operations.samples import SAMPLES, add_samples
from tarn_proto.graveler.v1 import repository_service_pb2 as pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "create_repository",
    "delete_repository",
    "get_repository",
    "list_repositories",
]


async def list_repositories(context: Context, at: op.ListRepositories) -> schemas.RepositoryList:
    """Lists the repositories that the caller may read. `search` finds names that contain it."""
    call, after = context.read(), at.after or ""

    async def fetch(size: int, token: str) -> tuple[list[pb.Repository], str]:
        page = await context.graveler.list_repositories(
            call, prefix=at.prefix or "", page_size=size, page_token=token, after=after
        )
        found = [each for each in page.repositories if (at.search or "") in each.repository_id]
        return found, page.next_page_token

    found, has_more = await filled(
        fetch, amount_of(at.amount), lambda each: each.repository_id, after
    )
    names = [each.repository_id for each in found]
    return schemas.RepositoryList(
        pagination=pagination(names, has_more=has_more),
        results=[shapes.repository(each) for each in found],
    )


async def create_repository(
    context: Context, at: op.CreateRepository, body: schemas.RepositoryCreation
) -> schemas.Repository:
    """Creates a repository."""
    if at.bare:
        text = "Tarn has no bare repositories; restore a dump with `tarn repo restore`"
        raise ApiError(501, text, reason="NOT_IMPLEMENTED")
    name = parse_repository_id(body.name)
    # What follows the creation is asked for before: otherwise half of it would be done.
    if body.read_only:
        context.require(Action.WRITE_RULES, repository_resource(name))
    if body.sample_data:
        for path in SAMPLES:
            context.require_write(name, body.default_branch or "main", path)
    call = context.change()
    made = await context.graveler.create_repository(
        call,
        name,
        default_branch_id=body.default_branch or "",
        client_namespace=body.storage_namespace,
    )
    shown = shapes.repository(made)
    shown.read_only = bool(body.read_only)
    try:
        if body.sample_data:
            await add_samples(context, name, BranchId(made.default_branch_id))
        if body.read_only:
            await context.graveler.set_read_only(call, name, True)
    except TarnError as error:
        text = f"repository {name} was created, but not all that was asked for is done: {error.message}"
        raise TarnError(Kind.UNKNOWN_OUTCOME, error.reason, text) from error
    return shown


async def get_repository(context: Context, at: op.GetRepository) -> schemas.Repository:
    """Returns a repository."""
    call = context.read()
    found = shapes.repository(await context.graveler.get_repository(call, at.repository))
    settings = await context.graveler.get_settings(call, at.repository)
    found.read_only = settings.read_only
    return found


async def delete_repository(context: Context, at: op.DeleteRepository) -> None:
    """Deletes a repository; its objects stay in the block store. `force` does not open one that is read-only."""
    await context.graveler.delete_repository(context.change(), at.repository)
