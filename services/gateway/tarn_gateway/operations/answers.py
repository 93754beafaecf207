"""Parts of answers that several operations share."""

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
    """Returns a 200 answer with an XML document."""
    return Response(200, [("Content-Type", "application/xml"), *headers], body)


def quoted(etag: str) -> str:
    """Returns an ETag in quotes, as in headers."""
    return f'"{etag}"'


def checksum_headers(checksums: Iterable[Checksum]) -> list[tuple[str, str]]:
    """Returns `x-amz-checksum-*` and their type; nothing without checksums."""
    headers = [(checksum_header(each.algorithm), each.value) for each in checksums]
    if headers:
        composite = any(each.composite for each in checksums)
        headers.append(("x-amz-checksum-type", "COMPOSITE" if composite else "FULL_OBJECT"))
    return headers


def url_encoding(query: Query) -> bool:
    """Returns whether keys in a listing must be URL-encoded.

    Raises:
        S3Error: InvalidArgument for an unknown `encoding-type`.
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
