"""Objects, without their bytes: stat, head, lists and deletes."""

from __future__ import annotations

from email.utils import formatdate
from typing import Final

from starlette.responses import Response

from tarn.core.entry import unpack
from tarn_api.context import Context
from tarn_api.errors import ApiError, from_tarn_error
from tarn_api.operations import shapes
from tarn_api.operations.paging import amount_of, filled, pagination
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = ["delete_object", "delete_objects", "head_object", "list_objects", "stat_object"]

_DELETES_MAX: Final = 1000


async def stat_object(context: Context, at: op.StatObject) -> schemas.ObjectStats:
    """Returns what is known about an object."""
    _refuse_presign(at.presign)
    found = await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
    return shapes.object_stats(
        at.path, found.entry, found.storage_namespace, with_metadata=at.user_metadata
    )


async def head_object(context: Context, at: op.HeadObject) -> Response:
    """Tells by headers whether there is an object. A range is not answered as one, as HTTP allows."""
    found = await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
    entry = unpack(found.entry)
    return Response(
        headers={
            "Content-Length": str(entry.size),
            "Content-Type": entry.content_type or shapes.DEFAULT_CONTENT_TYPE,
            "ETag": f'"{entry.etag}"',
            "Last-Modified": formatdate(shapes.seconds(entry.mtime_us), usegmt=True),
        }
    )


async def list_objects(context: Context, at: op.ListObjects) -> schemas.ObjectStatsList:
    """Lists objects and common prefixes in byte order."""
    _refuse_presign(at.presign)
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
    return schemas.ObjectStatsList(
        pagination=pagination([path for path, _ in found], has_more=has_more),
        results=[
            shapes.object_stats(path, packed, namespace, with_metadata=at.user_metadata)
            if packed
            else shapes.prefix_stats(path)
            for path, packed in found
        ],
    )


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


def _refuse_presign(presign: bool | None) -> None:
    """Presigned links are not offered (`getConfig`): an address that is none would look like one."""
    if presign:
        text = "presigned links are not built yet; ask with presign=false"
        raise ApiError(501, text, reason="NOT_IMPLEMENTED")
