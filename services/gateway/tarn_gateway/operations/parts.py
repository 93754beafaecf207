"""UploadPart and UploadPartCopy. `tarn.objects.uploads` stores and records the parts."""

from __future__ import annotations

from typing import Final

from tarn.objects.checksums import Algorithm, BodySums
from tarn.objects.conditions import quoted
from tarn.objects.uploads import algorithms_of, copy_part, store_part
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.checksums import checksum_header, checksum_headers
from tarn_gateway.documents import xml_out
from tarn_gateway.http import Response
from tarn_gateway.operations.copying import requested_source
from tarn_gateway.operations.uploads import find_upload
from tarn_gateway.requests.copy_range import parse_copy_range
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
    payload = backend.payload(request, wanted=algorithms_of(upload))
    _check_algorithm(upload, payload.algorithm)
    sums = await store_part(backend, request, request.repository, upload, number, payload)
    return Response(200, [("ETag", quoted(sums.md5.hex())), *_part_checksums(sums)])


async def upload_part_copy(backend: Backend, request: S3Request) -> Response:
    """UploadPartCopy: always copies the bytes, because a part is a piece of a new block."""
    number = part_number(request.query)
    upload = await find_upload(backend, request, backend.opening_call(request))
    source = await requested_source(backend, request)
    span = parse_copy_range(request.headers.get("x-amz-copy-source-range"), source.entry.size)
    if span and source.entry.size <= _RANGE_SOURCE_BYTES:
        text = "A range is copied only of a source that is larger than 5 MiB; copy it whole."
        raise S3Error("InvalidRequest", text)
    start, length = (span.start, span.length) if span else (0, source.entry.size)
    if length > backend.bounds.payload.object_bytes_max:
        most = backend.bounds.payload.object_bytes_max
        raise S3Error("InvalidRequest", f"A part may have at most {most} bytes; copy a range.")
    part, sums = await copy_part(
        backend, request, request.repository, upload, number, source, start, length
    )
    mtime_us = part.create_time.ToMicroseconds()
    return xml_out.answer(xml_out.copy_part_result(sums.md5.hex(), mtime_us, sums.checksums))


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


def _part_checksums(sums: BodySums) -> list[tuple[str, str]]:
    """Returns a part's checksums; S3 returns them without a type."""
    return [pair for pair in checksum_headers(sums.checksums) if pair[0] != "x-amz-checksum-type"]
