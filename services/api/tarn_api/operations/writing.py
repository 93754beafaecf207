"""Objects whose bytes pass the endpoint: uploads and copies. `tarn.objects` stores and stages them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, parse_branch_id, parse_path
from tarn.objects.checksums import parse_digest
from tarn.objects.copying import copied, find_source
from tarn.objects.forms import is_form
from tarn.objects.headers import LAKECTL_STORED, StoredHeaders, stored_headers, stored_metadata
from tarn.objects.incoming import BodyTooLargeError, StreamedBody
from tarn.objects.rewriting import set_metadata
from tarn.objects.writing import check_branch, stage, store_object
from tarn_api.bodies import file_of_form, received
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_api.requests import announced_size
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "copy_object",
    "update_object_user_metadata",
    "upload_object",
    "upload_object_preflight",
    "write_condition",
]

_METADATA = "x-lakefs-meta-"
_STORED = _METADATA.encode(), LAKECTL_STORED.encode()
"""Begin the headers whose values are stored as user metadata."""
_MD5_BYTES = 16


async def upload_object(context: Context, at: op.UploadObject) -> schemas.ObjectStats:
    """Stores the body of the request, or the field `content` of its form, as an object."""
    condition = write_condition(at.if_none_match, at.if_match)
    branch = _place(context, at.repository, at.branch, at.path, condition)
    repository = await context.objects.repository(context, at.repository)
    try:
        headers, body = await _body(context)
        entry = await store_object(
            context.objects,
            context,
            repository,
            branch,
            at.path,
            body,
            headers,
            condition=condition,
            operation=context.objects.ids.uuid7().hex() if condition else "",
        )
    except BodyTooLargeError as error:
        raise ApiError(413, error.message, reason="TOO_LARGE") from error
    except TarnError as error:
        if not condition.if_match or error.reason is not Reason.ENTRY_NOT_FOUND:
            raise
        text = f"{at.path} does not exist, so it has no such ETag"
        raise ApiError(412, text, reason="PRECONDITION_FAILED") from error
    return shapes.object_stats(at.path, entry, repository.namespace, with_metadata=True)


async def upload_object_preflight(context: Context, at: op.UploadObjectPreflight) -> None:
    """Says whether the caller may write an object, before the bytes are sent."""
    branch = _place(context, at.repository, at.branch, at.path)
    await check_branch(context.objects, at.repository, branch, context.read())


async def copy_object(
    context: Context, at: op.CopyObject, body: schemas.ObjectCopyCreation
) -> schemas.ObjectStats:
    """Copies an object of the repository, without its bytes where that is safe."""
    branch = _place(context, at.repository, at.branch, at.dest_path)
    objects = context.objects
    opening = objects.opening_call(context)
    repository = await objects.repositories.get(opening, at.repository)  # before the source
    source = await find_source(
        objects, opening, at.repository, body.src_ref or branch, body.src_path, into=at.repository
    )
    entry, block = await copied(objects, context, source, repository, branch)
    await stage(objects, context, repository, branch, at.dest_path, entry, block=block)
    return shapes.object_stats(at.dest_path, entry, repository.namespace, with_metadata=True)


async def update_object_user_metadata(
    context: Context, at: op.UpdateObjectUserMetadata, body: schemas.UpdateObjectUserMetadata
) -> Response:
    """Replaces the user metadata of an object; its bytes stay."""
    branch = _place(context, at.repository, at.branch, at.path)
    metadata = stored_metadata(body.set)
    await set_metadata(context.objects, context, at.repository, branch, at.path, metadata)
    return Response(
        status_code=204
    )  # not the 201 of the document: lakeFS answers so, and lakectl insists


def write_condition(if_none_match: str | None, if_match: str | None) -> WriteCondition:
    """Returns the condition of a write.

    Raises:
        ApiError: 400: a form that a write cannot have. A condition that is not understood is never ignored.
    """
    if if_none_match is None and if_match is None:
        return UNCONDITIONAL
    if if_none_match is not None:
        if if_match is not None or if_none_match.strip() != "*":
            text = "If-None-Match of a write is *, without an If-Match"
            raise ApiError(400, text, reason="INVALID_ARGUMENT")
        return WriteCondition(if_none_match=True)
    tag = (if_match or "").strip().removeprefix("W/").strip('"')
    if not tag or "," in tag or ":" in tag:
        raise ApiError(400, "If-Match of a write is one ETag, or *", reason="INVALID_ARGUMENT")
    return WriteCondition(if_match=tag)


def _place(
    context: Context,
    repository: str,
    branch: str,
    path: str,
    condition: WriteCondition = UNCONDITIONAL,
) -> BranchId:
    """Returns the branch of a path to be written, if the caller may do that. No byte of the body was read."""
    found = parse_branch_id(branch)
    parse_path(path)
    context.require_write(repository, branch, path, reads=bool(condition.if_match))
    return found


async def _body(context: Context) -> tuple[StoredHeaders, StreamedBody]:
    """Returns what the headers say about an object, and its bytes.

    Raises:
        ApiError: 400, 408.
        TarnError: INVALID for headers that cannot be stored, and for a form that is none; BodyTooLargeError.
    """
    request, bounds = context.request, context.backend.bodies
    small = context.objects.bounds.small_body_bytes
    kind = request.headers.get("content-type", "")
    metadata = _metadata(request)
    md5 = _claimed_md5(request)
    if is_form(kind):
        stored_headers(metadata=metadata)  # refuses before the body is read
        file = await file_of_form(kind, received(request, bounds))
        about, pieces = stored_headers(file.content_type, metadata), file.pieces
        size = None
    else:
        about = stored_headers(kind, metadata)
        if (whole := request.rest()) is not None:
            return about, StreamedBody.held(whole, bytes_max=bounds.bytes_max, md5=md5)
        pieces, size = received(request, bounds), announced_size(request)
    if size is not None:
        return about, StreamedBody(pieces, bytes_max=bounds.bytes_max, size=size, md5=md5)
    body = await StreamedBody.begun(pieces, bytes_max=bounds.bytes_max, small=small, md5=md5)
    return about, body


def _metadata(request: Request) -> dict[str, str]:
    stored = [each for each in request.headers.raw if each[0].startswith(_STORED)]
    return {name.decode("latin-1").removeprefix(_METADATA): _text(value) for name, value in stored}


def _text(value: bytes) -> str:
    """Returns the value of a header, which clients send in UTF-8 or Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _claimed_md5(request: Request) -> bytes | None:
    claimed = request.headers.get("content-md5")
    if claimed is None:
        return None
    md5 = parse_digest(claimed, _MD5_BYTES)
    if md5 is None:
        raise ApiError(400, "Content-MD5 is no MD5 in base64", reason="INVALID_ARGUMENT")
    return md5
