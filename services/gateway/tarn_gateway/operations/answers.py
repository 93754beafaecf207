"""Pieces of answers that several operations give."""

from __future__ import annotations

from collections.abc import Iterable

from tarn.core.entry import Checksum
from tarn_gateway.bodies.checksums import checksum_header
from tarn_gateway.http import Response
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error

__all__ = ["checksum_headers", "quoted", "url_encoding", "xml"]

EMPTY_MD5 = bytes.fromhex("d41d8cd98f00b204e9800998ecf8427e")


def xml(body: bytes, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """200 with a document."""
    return Response(200, [("Content-Type", "application/xml"), *headers], body)


def quoted(etag: str) -> str:
    """An ETag as headers have it."""
    return f'"{etag}"'


def checksum_headers(checksums: Iterable[Checksum]) -> list[tuple[str, str]]:
    """`x-amz-checksum-*` and their type; nothing for no checksum."""
    headers = [(checksum_header(each.algorithm), each.value) for each in checksums]
    if headers:
        composite = any(each.composite for each in checksums)
        headers.append(("x-amz-checksum-type", "COMPOSITE" if composite else "FULL_OBJECT"))
    return headers


def url_encoding(query: Query) -> bool:
    """Whether keys are to be URL-encoded in a listing.

    Raises:
        S3Error: InvalidArgument for another `encoding-type`.
    """
    value = query.get("encoding-type")
    if value not in (None, "", "url"):
        raise S3Error(
            "InvalidArgument",
            "encoding-type must be url.",
            ArgumentName="encoding-type",
            ArgumentValue=str(value)[:80],
        )
    return value == "url"
