"""Objects, without their bytes: stat, lists and deletes."""

from __future__ import annotations

from typing import Final

from tarn.block.port import PresignsReads
from tarn.core.entry import unpack
from tarn_api.context import Context
from tarn_api.errors import ApiError, from_tarn_error
from tarn_api.operations import shapes
from tarn_api.operations.paging import amount_of, filled, pagination
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "delete_object",
    "delete_objects",
    "get_underlying_properties",
    "list_objects",
    "stat_object",
]

_DELETES_MAX: Final = 1000


async def stat_object(context: Context, at: op.StatObject) -> schemas.ObjectStats:
    """Returns what is known about an object; with `presign`, its address is a link to its bytes."""
    blocks = _presigning(context, at.presign)
    found = await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
    namespace = found.storage_namespace
    entry = unpack(found.entry)
    stats = shapes.object_stats(at.path, entry, namespace, with_metadata=at.user_metadata)
    if blocks is not None:
        linked = await shapes.link(context, blocks, namespace, entry)
        stats.physical_address, stats.physical_address_expiry = linked
    return stats


async def get_underlying_properties(
    context: Context, at: op.GetUnderlyingProperties
) -> schemas.UnderlyingObjectProperties:
    """Says nothing of the storage class, which Tarn leaves to the block store, of an object that there is."""
    await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
    return schemas.UnderlyingObjectProperties()


async def list_objects(context: Context, at: op.ListObjects) -> schemas.ObjectStatsList:
    """Lists objects and common prefixes in byte order; with `presign`, addresses are links to bytes."""
    blocks = _presigning(context, at.presign)
    call = context.read()
    namespace = ""

    async def fetch(size: int, token: str) -> tuple[list[tuple[str, bytes]], str]:
        nonlocal namespace
        page = await context.graveler.list_entries(
            call,
            at.repository,
            at.ref,
            prefix=at.prefix or "",
            delimiter=at.delimiter or "",
            after=at.after or "",
            page_size=size,
            page_token=token,
        )
        namespace = page.storage_namespace
        return list(zip(page.paths, page.entries, strict=True)), page.next_page_token

    found, has_more = await filled(fetch, amount_of(at.amount), lambda each: each[0], at.after)
    paths, entries = zip(*found, strict=True) if found else ((), ())
    results = shapes.stats_of_page(paths, entries, namespace, with_metadata=at.user_metadata)
    if blocks is not None:
        for path, packed, stats in zip(paths, entries, results, strict=True):
            # Whoever may list may not always read, and a link needs no permission any more.
            if packed and context.may_read(at.repository, at.ref, path):
                linked = await shapes.link(context, blocks, namespace, unpack(packed))
                stats.physical_address, stats.physical_address_expiry = linked
    return schemas.ObjectStatsList(pagination=pagination(paths, has_more=has_more), results=results)


async def delete_object(context: Context, at: op.DeleteObject) -> None:
    """Deletes an object; one that does not exist is no error."""
    await context.graveler.unstage(context.change(), at.repository, at.branch, at.path)


async def delete_objects(
    context: Context, at: op.DeleteObjects, body: schemas.PathList
) -> schemas.ObjectErrorList:
    """Deletes up to 1,000 objects; the answer lists those that were not deleted."""
    if len(body.paths) > _DELETES_MAX:
        text = f"paths: at most {_DELETES_MAX} in one request, not {len(body.paths)}"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    if not body.paths:
        return schemas.ObjectErrorList(errors=[])
    outcomes = await context.graveler.unstage_many(
        context.change(), at.repository, at.branch, body.paths
    )
    failed = [
        (path, from_tarn_error(error, write=True))
        for path, error in zip(body.paths, outcomes, strict=True)
        if error is not None
    ]
    return schemas.ObjectErrorList(
        errors=[
            schemas.ObjectError(status_code=error.status, message=error.message, path=path)
            for path, error in failed
        ]
    )


def _presigning(context: Context, presign: bool | None) -> PresignsReads | None:
    """Returns the store that makes links, if they are asked for.

    Raises:
        ApiError: 501: it makes none (`getConfig` says so): an address that is none would look like one.
    """
    if not presign:
        return None
    if (blocks := context.linking_blocks) is not None:
        return blocks
    text = "this installation has no presigned links; ask with presign=false"
    raise ApiError(501, text, reason="NOT_IMPLEMENTED")
