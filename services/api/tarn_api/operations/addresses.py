"""Objects that clients write to the bucket themselves (docs/design/links.md).

Clients of lakeFS send back the address alone, so it carries the token of graveler that proves that it was issued to
them, for this path: `s3://bucket/…/data/<hour>/<id>?link=<token>`. Graveler stages no other address.

Parts are completed and aborted in the bucket before graveler is asked, by whoever may write the path, and knows the
address and the id of the upload. Both were told to one client only, and cannot be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.responses import Response

from tarn.block.port import (
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    PresignsParts,
    PresignsWrites,
)
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import TIME_US_MAX, pack, unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import address_time_us, parse_path, physical_path
from tarn.objects.bodies import LostBlockError, refuse_external
from tarn.objects.copying import COPY_BYTES_MAX, find_source
from tarn.objects.erased import told_if_erased
from tarn.objects.headers import NOTHING, stored_headers, stored_metadata, with_headers
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_api.operations.writing import write_condition
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "abort_presign_multipart_upload",
    "complete_presign_multipart_upload",
    "create_presign_multipart_upload",
    "get_physical_address",
    "link_physical_address",
    "stage_object",
    "upload_part",
    "upload_part_copy",
]

_LINK: Final = "?link="
_ADDRESS_S: Final = 3600
"""Life of an issued address: graveler's."""
_RANGE: Final = re.compile(r"bytes=(\d{1,19})-(\d{1,19})", re.ASCII)
_RANGE_SOURCE_BYTES: Final = 5 * 1024**2
"""S3 copies a range only of a larger source (API UploadPartCopy, `x-amz-copy-source-range`)."""


class _Bucket(BlockStore, PresignsWrites, PresignsParts, Protocol):
    """A block store to which clients can write."""


async def get_physical_address(
    context: Context, at: op.GetPhysicalAddress
) -> schemas.StagingLocation:
    """Issues an address for an object; with `presign`, with a URL for one PUT of all of it."""
    bucket = _signer(context) if at.presign else _bucket(context)
    issued = await context.graveler.get_physical_address(
        context.change(), at.repository, at.branch, at.path, rewritable=bool(at.presign)
    )
    place = schemas.StagingLocation(physical_address=issued.physical_address + _LINK + issued.token)
    if at.presign:
        # Clients of lakeFS send no signed headers, so this URL is not bound to be the first write: it is `rewritable`.
        key = _key(issued.physical_address)
        expiry = context.backend.clock.now_us() // 1_000_000 + shapes.LINK_S
        written = await bucket.presign_write(key, shapes.LINK_S, 0, once=False)
        place.presigned_url, place.presigned_url_expiry = written.put_url, expiry
    return place


async def link_physical_address(
    context: Context, at: op.LinkPhysicalAddress, body: schemas.StagingMetadata
) -> schemas.ObjectStats:
    """Stages the object that was written to an issued address."""
    named = _named(body.staging.physical_address or "")
    return await _link(
        context,
        at,
        named,
        (body.size_bytes, body.checksum),
        (body.content_type, body.user_metadata),
        write_condition(at.if_none_match, at.if_match),
        mtime_s=body.mtime,
    )


async def stage_object(
    context: Context, at: op.StageObject, body: schemas.ObjectStageCreation
) -> schemas.ObjectStats:
    """The same for clients that link by stageObject. Other addresses are refused, also of the bucket."""
    return await _link(
        context,
        at,
        _named(body.physical_address),
        (body.size_bytes, body.checksum),
        (body.content_type, body.metadata),
        mtime_s=body.mtime,
    )


async def create_presign_multipart_upload(
    context: Context, at: op.CreatePresignMultipartUpload
) -> schemas.PresignMultipartUpload:
    """Issues an address whose object is written in parts, with URLs for the first of them."""
    _signer(context)
    count = at.parts or 0
    if count < 0:
        raise ApiError(400, "parts: at least 0", reason="INVALID_ARGUMENT")
    issued = await context.graveler.get_physical_address(
        context.change(), at.repository, at.branch, at.path, part_count=max(1, count)
    )
    return schemas.PresignMultipartUpload(
        upload_id=issued.bucket_upload_id,
        physical_address=issued.physical_address + _LINK + issued.token,
        presigned_urls=list(issued.part_urls[:count]) or None,
    )


async def upload_part(
    context: Context, at: op.UploadPart, body: schemas.UploadPartFrom
) -> schemas.UploadTo:
    """Issues the URL of one more part."""
    bucket = _signer(context)
    named = await _own(context, at, body.physical_address)
    seconds = _seconds_left(context, named)
    (url,) = await bucket.presign_parts(
        named.key, at.upload_id, [at.part_number], min(seconds, _ADDRESS_S)
    )
    return schemas.UploadTo(presigned_url=url)


async def upload_part_copy(
    context: Context, at: op.UploadPartCopy, body: schemas.UploadPartCopyFrom
) -> Response:
    """Copies bytes of an object, which the caller may read, to a part, inside the bucket's server."""
    bucket = _bucket(context)
    named = await _own(context, at, body.physical_address)
    _seconds_left(context, named)
    objects, of = context.objects, body.copy_source
    source = await find_source(
        objects, objects.opening_call(context), of.repository, of.ref, of.path
    )
    refuse_external(source.entry)
    span = _span(of.range, source.entry.size)
    async with told_if_erased(objects, context, of.repository, of.ref, of.path):
        try:
            etag = await bucket.copy_part(
                source.block, named.key, at.upload_id, at.part_number, span
            )
        except BlockNotFoundError as error:
            if error.metadata["path"] == source.block.path:
                raise LostBlockError(source.block) from error
            raise _no_upload() from None
    return Response(status_code=204, headers={"ETag": f'"{etag}"'})


async def complete_presign_multipart_upload(
    context: Context,
    at: op.CompletePresignMultipartUpload,
    body: schemas.CompletePresignMultipartUpload | None,
) -> schemas.ObjectStats:
    """Joins the parts in the bucket, and stages the object."""
    bucket = _bucket(context)
    if body is None:
        raise _no_address()
    named = await _own(context, at, body.physical_address)
    template = _template(
        body.content_type, body.user_metadata
    )  # refuses before the parts are joined
    parts = sorted((each.part_number, each.etag.strip('"')) for each in body.parts)
    try:
        info = await bucket.complete_parts(named.key, at.upload_id, parts)
    except BlockNotFoundError:
        raise _no_upload() from None
    return await _linked(context, at, named, (info.size, info.etag), template)


async def abort_presign_multipart_upload(
    context: Context,
    at: op.AbortPresignMultipartUpload,
    body: schemas.AbortPresignMultipartUpload | None,
) -> None:
    """Ends an upload in the bucket, so that its parts cost nothing. Its address cannot be linked then."""
    if body is None:
        raise _no_address()
    named = await _own(context, at, body.physical_address)
    await _bucket(context).abort_writes(named.key)


class _Place(Protocol):
    """Parameters that name the path of an object."""

    repository: str
    branch: str
    path: str


@dataclass(frozen=True, slots=True)
class _Named:
    """An address that a client sends back.

    Attributes:
        key: of the block.
        address: 16 bytes.
        token: of graveler.
    """

    key: BlockKey
    address: bytes
    token: str


def _bucket(context: Context) -> _Bucket:
    blocks = context.blocks
    if isinstance(blocks, PresignsWrites) and isinstance(blocks, PresignsParts):
        return blocks
    text = (
        "the block store of this installation is no bucket to which clients can write; "
        "send the object with uploadObject"
    )
    raise ApiError(501, text, reason="NOT_IMPLEMENTED")


def _signer(context: Context) -> _Bucket:
    """Returns the bucket if clients get URLs of it."""
    bucket = _bucket(context)
    if context.linking_blocks is not None:
        return bucket
    text = "this installation has no presigned links; send the object with uploadObject"
    raise ApiError(501, text, reason="NOT_IMPLEMENTED")


def _key(physical_address: str) -> BlockKey:
    namespace, hour, name = physical_address.rsplit("/", 2)
    return BlockKey(namespace.removesuffix("/data"), f"data/{hour}/{name}")


def _named(physical_address: str) -> _Named:
    """Reads an address that a client sends back.

    Raises:
        ApiError: 400: Tarn issued no such address.
    """
    place, _, token = physical_address.partition(_LINK)
    try:
        key = _key(place)
        address = bytes.fromhex(key.path.rpartition("/")[2])
    except ValueError:
        raise _not_issued() from None
    if not token or len(address) != 16 or physical_path(address) != key.path:
        raise _not_issued()
    return _Named(key, address, token)


def _not_issued() -> ApiError:
    text = (
        "Tarn stages only addresses that it issued, as getPhysicalAddress or createPresignMultipartUpload answered "
        "them; to bring objects of a bucket in, write them"
    )
    return ApiError(400, text, reason=Reason.ADDRESS_NOT_ISSUED.value)


def _no_upload() -> ApiError:
    return ApiError(404, "there is no such upload; begin a new one", reason="NO_UPLOAD")


def _seconds_left(context: Context, named: _Named) -> int:
    """Returns the seconds until an address ends.

    Raises:
        ApiError: 400: it has ended.
    """
    ends_us = address_time_us(named.address) + _ADDRESS_S * 1_000_000
    seconds = (ends_us - context.backend.clock.now_us()) // 1_000_000
    if seconds <= 0:
        text = "the address was issued an hour ago and has ended; begin a new upload"
        raise ApiError(400, text, reason="LINK_EXPIRED")
    return seconds


def _span(asked: str | None, size: int) -> tuple[int, int] | None:
    """Returns offset and length of the bytes that are copied; None: all of them.

    Raises:
        ApiError: 400: what no bucket copies.
    """
    start, last = 0, size - 1
    if asked is not None:
        found = _RANGE.fullmatch(asked)
        start, last = map(int, found.groups()) if found else (1, 0)
        if not start <= last < size:
            text = f"range {asked[:80]!r}: bytes=FIRST-LAST, inside the {size} bytes of the source"
            raise ApiError(400, text, reason="INVALID_ARGUMENT")
    length = last - start + 1
    if length > COPY_BYTES_MAX:
        text = f"one part takes at most {COPY_BYTES_MAX} bytes; copy a range of the source"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    if length == size:
        return None
    if size <= _RANGE_SOURCE_BYTES:
        text = f"a bucket copies a range only of more than {_RANGE_SOURCE_BYTES} bytes; copy the source whole"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    return start, length


def _no_address() -> ApiError:
    return ApiError(400, "the body is missing; it names the address", reason="INVALID_ARGUMENT")


async def _own(context: Context, at: _Place, physical_address: str) -> _Named:
    """Reads the address of an upload that the caller may go on with.

    Raises:
        ApiError: 400: it is not of this repository.
        TarnError: DENIED.
    """
    parse_path(at.path)
    context.require_write(at.repository, at.branch, at.path)
    objects = context.objects
    repository = await objects.repositories.get(objects.opening_call(context), at.repository)
    named = _named(physical_address)
    if named.key.namespace.rstrip("/") != repository.namespace.rstrip("/"):
        raise _not_issued()
    return named


def _template(content_type: str | None, metadata: Mapping[str, str] | None) -> bytes:
    return pack(
        with_headers(NOTHING, stored_headers(content_type or "", stored_metadata(metadata)))
    )


async def _link(
    context: Context,
    at: _Place,
    named: _Named,
    claim: tuple[int, str],
    about: tuple[str | None, Mapping[str, str] | None],
    condition: WriteCondition = UNCONDITIONAL,
    *,
    mtime_s: int | None,
) -> schemas.ObjectStats:
    """Stages an object of which the client says size and checksum, content type, metadata and time."""
    size, checksum = claim
    time = None
    if mtime_s is not None:
        if not 0 <= mtime_s <= TIME_US_MAX // 1_000_000:
            text = (
                f"mtime: {mtime_s} is no time in seconds since the epoch of the years 1970 to 9999"
            )
            raise ApiError(400, text, reason="INVALID_ARGUMENT")
        time = Timestamp(seconds=mtime_s)
    return await _linked(
        context, at, named, (size, checksum.strip('"')), _template(*about), condition, time
    )


async def _linked(
    context: Context,
    at: _Place,
    named: _Named,
    claim: tuple[int, str],
    template: bytes,
    condition: WriteCondition = UNCONDITIONAL,
    time: Timestamp | None = None,
) -> schemas.ObjectStats:
    size, etag = claim
    try:
        packed = await context.graveler.link_physical_address(
            context.change(),
            at.repository,
            at.branch,
            at.path,
            token=named.token,
            size_bytes=size,
            etag=etag,
            condition=condition,
            template=template,
            modify_time=time,
        )
    except TarnError as error:
        if error.reason is Reason.BLOCK_NOT_FOUND:
            raise ApiError(400, error.message, reason=error.reason.value) from error
        raise
    return shapes.object_stats(at.path, unpack(packed), named.key.namespace, with_metadata=True)
