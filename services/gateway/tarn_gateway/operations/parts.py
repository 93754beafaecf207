"""UploadPart and UploadPartCopy: the bytes of a part become durable, then the part is recorded.

Each attempt at a part has its own name, so that concurrent attempts do not mix their bytes. The attempt
that is recorded last counts, as in S3.
"""

from __future__ import annotations

from typing import Final

from tarn.block.port import BlockNotFoundError, BlockWriter, PartWriter
from tarn.core.errors import Reason, TarnError
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.blocks import copy_block
from tarn_gateway.bodies.checksums import Algorithm, BodySums, checksum_header, checksum_headers
from tarn_gateway.documents import xml_out
from tarn_gateway.http import Response
from tarn_gateway.operations.copying import find_source
from tarn_gateway.operations.erased import told_if_erased
from tarn_gateway.operations.uploads import (
    discard_parts,
    find_upload,
    upload_block,
)
from tarn_gateway.requests.byterange import parse_copy_range
from tarn_gateway.requests.conditions import quoted
from tarn_gateway.requests.query import part_number
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

__all__ = ["upload_part", "upload_part_copy"]

_RANGE_SOURCE_BYTES: Final = 5 * 1024**2
"""S3 copies a range only of a larger source (API UploadPartCopy, `x-amz-copy-source-range`)."""


async def upload_part(backend: Backend, request: S3Request) -> Response:
    """UploadPart."""
    number = part_number(request.query)
    upload = await find_upload(backend, request, backend.opening_call(request))
    payload = backend.payload(request, wanted=_wanted(upload))
    _check_algorithm(upload, payload.algorithm)
    attempt = backend.ids.nonce().hex()
    async with await _open(backend, upload, number, attempt) as writer:
        sums = await payload.pump(writer.write)
        await _close(writer)
    await _record(backend, request, upload, _part(backend, upload, number, writer.receipt, sums))
    return Response(200, [("ETag", quoted(sums.md5.hex())), *_part_checksums(sums)])


async def upload_part_copy(backend: Backend, request: S3Request) -> Response:
    """UploadPartCopy: always copies the bytes, because a part is a piece of a new block."""
    number = part_number(request.query)
    upload = await find_upload(backend, request, backend.opening_call(request))
    source = await find_source(backend, request)
    span = parse_copy_range(request.headers.get("x-amz-copy-source-range"), source.entry.size)
    if span and source.entry.size <= _RANGE_SOURCE_BYTES:
        text = "A range is copied only of a source that is larger than 5 MiB; copy it whole."
        raise S3Error("InvalidRequest", text)
    start, length = (span.start, span.length) if span else (0, source.entry.size)
    if length > backend.bounds.payload.object_bytes_max:
        most = backend.bounds.payload.object_bytes_max
        raise S3Error("InvalidRequest", f"A part may have at most {most} bytes; copy a range.")
    attempt = backend.ids.nonce().hex()
    async with await _open(backend, upload, number, attempt) as writer:
        async with told_if_erased(backend, request, source.repository, source.target):
            sums = await copy_block(
                backend.blocks, source.block, start, length, writer, _wanted(upload)
            )
        await _close(writer)
    part = _part(backend, upload, number, writer.receipt, sums)
    await _record(backend, request, upload, part)
    mtime_us = part.create_time.ToMicroseconds()
    return xml_out.answer(xml_out.copy_part_result(sums.md5.hex(), mtime_us, sums.checksums))


def _wanted(upload: pb.Upload) -> frozenset[Algorithm]:
    """Returns the checksum that every part of the upload needs, even if the client does not send it."""
    if not upload.checksum_algorithm:
        return frozenset()
    return frozenset({Algorithm(upload.checksum_algorithm)})


def _check_algorithm(upload: pb.Upload, sent: Algorithm | None) -> None:
    """Checks the algorithm of a part's checksum.

    The client says which one the parts of an upload have when it begins it. A COMPOSITE checksum is made of those that
    the client sends and lists; for a FULL_OBJECT one Tarn computes what is not sent. If the upload has none, those of
    its parts are verified and that is all: current SDKs send a CRC32 with every body.

    Raises:
        S3Error: InvalidRequest, with S3's sentence.
    """
    expected = upload.checksum_algorithm
    if not expected or sent == expected or (sent is None and upload.is_full_object_checksum):
        return
    mismatch = f"expected checksum Type: {expected.lower()}, actual checksum Type: {(sent or 'null').lower()}"
    advice = f"Send {checksum_header(expected)} with each part, or begin the upload without an algorithm."
    raise S3Error("InvalidRequest", f"Checksum Type mismatch occurred, {mismatch}. {advice}")


async def _open(backend: Backend, upload: pb.Upload, number: int, attempt: str) -> PartWriter:
    key = upload_block(upload)
    return await backend.blocks.uploads.open_part(key, upload.upload_id, number, attempt)


async def _close(writer: BlockWriter) -> None:
    """Makes a part durable; raises NoSuchUpload if the upload's parts were discarded in the meantime."""
    try:
        await writer.finish()
    except BlockNotFoundError:
        raise S3Error("NoSuchUpload") from None


def _part(
    backend: Backend, upload: pb.Upload, number: int, receipt: str, sums: BodySums
) -> pb.UploadPart:
    checksums = {each.algorithm: each.value for each in sums.checksums}
    part = pb.UploadPart(
        part_number=number,
        attempt=receipt,
        size_bytes=sums.size,
        md5=sums.md5,
        checksum=checksums.get(upload.checksum_algorithm, ""),
    )
    part.create_time.FromMicroseconds(backend.clock.now_us())
    return part


def _part_checksums(sums: BodySums) -> list[tuple[str, str]]:
    """Returns a part's checksums; S3 returns them without a type."""
    return [pair for pair in checksum_headers(sums.checksums) if pair[0] != "x-amz-checksum-type"]


async def _record(
    backend: Backend, request: S3Request, upload: pb.Upload, part: pb.UploadPart
) -> None:
    """Records the part, so that it counts.

    Raises:
        TarnError: UPLOAD_NOT_FOUND if the upload has ended. The process that ended it may have discarded
            the parts before this part was written, so the parts are discarded again.
    """
    try:
        await backend.graveler.record_upload_part(
            await backend.proven_call(request), request.repository, upload.upload_id, part
        )
    except TarnError as error:
        if error.reason is Reason.UPLOAD_NOT_FOUND:
            await discard_parts(backend, upload)
        raise
