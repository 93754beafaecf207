"""GetObject and HeadObject."""

from __future__ import annotations

from typing import Final

from tarn.core.entry import Checksum, Entry, unpack
from tarn.objects.bodies import LostBlockError, block_key, open_body
from tarn.objects.byterange import ByteRange
from tarn.objects.checksums import EMPTY_MD5, known_checksums
from tarn.objects.conditions import ReadAnswer, answer_to, http_date, quoted
from tarn.objects.erased import lost_error
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.checksums import checksum_headers
from tarn_gateway.http import Headers, Response
from tarn_gateway.operations.object_parts import part_of, requested_part
from tarn_gateway.requests.object_headers import override_headers, response_headers
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["read_object", "root_marker"]

DIRECTORY: Final = "application/x-directory"
_SANDBOX: Final = ("Content-Security-Policy", "sandbox")
"""A browser that opens an object runs no script of it with the rights of this origin. `http` forbids all guesses of
the type (`X-Content-Type-Options`)."""
_RANGES: Final = ("Accept-Ranges", "bytes")
_OF_304: Final = frozenset({"Cache-Control", "Expires", "Vary"})
"""Headers of the full answer that RFC 9110 §15.4.5 wants, besides the validators: caches keep what they say."""


async def read_object(backend: Backend, request: S3Request) -> Response:
    """GetObject: looks up the entry of a path on a ref, then sends its bytes from the block store. HeadObject: the same
    without the bytes, including Range."""
    query, request_headers = request.query, request.headers
    number = requested_part(request) if query.values else None
    target = request.target
    if not target.path:
        return await root_marker(backend, request)
    found = await backend.graveler.lookup(
        backend.call(request), request.repository, target.ref, target.path
    )
    entry = unpack(found.entry)
    etag = entry.etag
    validators = ("ETag", quoted(etag)), ("Last-Modified", http_date(entry.mtime_us))
    told = answer_to(request_headers, etag, entry.mtime_us, entry.size)
    if told.status == 412:
        raise S3Error("PreconditionFailed")
    if told.status == 304:
        stored = override_headers(response_headers(entry), query)
        kept = [pair for pair in stored if pair[0] in _OF_304]
        return Response(304, [*validators, *kept, _SANDBOX])
    headers = response_headers(entry)
    if query.values:
        headers = override_headers(headers, query)
    headers += (*validators, _RANGES, _SANDBOX)
    if entry.tags and not request.is_anonymous:  # who may not read tags does not learn of any
        headers.append(("x-amz-tagging-count", str(len(entry.tags))))
    if number is None:
        status, start, length, about = _whole_or_range(request_headers, entry, told)
    else:
        status, start, length, about = _one_part(request_headers, entry, number)
    headers += about
    if request.http.method == "HEAD":
        return Response(status, headers, b"", length)
    small = backend.bounds.small_body_bytes
    key = block_key(found.storage_namespace, entry)
    try:
        body = await open_body(backend.blocks, key, start, length, small)
    except LostBlockError as lost:
        error = await lost_error(
            lost, backend, request, request.repository, target.ref, target.path
        )
        raise error from lost.__cause__ if error is lost else lost
    return Response(status, headers, body, length)


_Piece = tuple[int, int, int, list[tuple[str, str]]]
"""What of an object is answered: status, first byte, number of bytes, and the headers about it."""


def _whole_or_range(request_headers: Headers, entry: Entry, told: ReadAnswer) -> _Piece:
    if told.status == 200:
        return 200, 0, entry.size, _checksums(request_headers, entry.checksums)
    if told.status == 416:
        raise S3Error(
            "InvalidRange",
            headers={"Content-Range": told.content_range},
            RangeRequested=request_headers.text("range")[:80],
            ActualObjectSize=str(entry.size),
        )
    return 206, told.start, told.length, [("Content-Range", told.content_range)]


def _one_part(request_headers: Headers, entry: Entry, number: int) -> _Piece:
    part = part_of(entry, number)
    about = _checksums(request_headers, part.checksums)
    if part.count is not None:
        about.append(("x-amz-mp-parts-count", str(part.count)))
    if part.size:  # no range names the bytes of an empty part
        span = ByteRange(part.start, part.size, entry.size)
        about.append(("Content-Range", span.content_range))
    return (206 if entry.size else 200), part.start, part.size, about


def _checksums(request_headers: Headers, checksums: tuple[Checksum, ...]) -> list[tuple[str, str]]:
    mode = request_headers.get("x-amz-checksum-mode")
    if mode is None or mode.upper() != "ENABLED":
        return []
    return checksum_headers(known_checksums(checksums))


async def root_marker(backend: Backend, request: S3Request) -> Response:
    """Answers a GET or HEAD of the root of a ref: `main/` is a directory as soon as `main` exists. Clients that create
    directories before they write (S3A, pyarrow) find the marker. `main` itself is not a key."""
    target = request.target
    if not target.slash:
        # If the name belongs to a view by now, the key is a path.
        await backend.repositories.fresh(backend.call(request), request.repository)
        raise S3Error("NoSuchKey", f"{target.ref!r} names a branch, tag or commit, not an object.")
    await backend.graveler.list_entries(
        backend.call(request), request.repository, target.ref, page_size=1
    )
    headers = [("Content-Type", DIRECTORY), ("ETag", quoted(EMPTY_MD5.hex())), _SANDBOX]
    return Response(200, headers, length=0)
