"""The headers that are stored with an object: user metadata and six headers that HTTP defines."""

from __future__ import annotations

import base64
import re
from email.errors import HeaderParseError
from email.header import decode_header
from typing import Final

from tarn.core.entry import METADATA_BYTES_MAX, Entry
from tarn.core.entry_check import HEADER_BYTES_MAX
from tarn.core.value import hot_value
from tarn_gateway.http import Headers
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error

__all__ = [
    "SYSTEM",
    "ObjectHeaders",
    "override_headers",
    "parse_object_headers",
    "response_headers",
]

PREFIX: Final = "x-amz-meta-"
DEFAULT_CONTENT_TYPE: Final = "binary/octet-stream"

_ENCODED: Final = re.compile(r"=\?[^?\s]+\?[bBqQ]\?[^?\s]*\?=", re.ASCII)
_PRINTABLE: Final = re.compile(r"[\x20-\x7e\t]*", re.ASCII)
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@hot_value
class ObjectHeaders:
    """The headers of a PUT, a copy with REPLACE or a multipart upload that are stored with the object.

    Names and forms of the attributes are those of `tarn.core.entry.Entry`.
    """

    content_type: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    content_encoding: str = ""
    cache_control: str = ""
    content_disposition: str = ""
    content_language: str = ""
    expires: str = ""


def stored_content_encoding(value: str) -> str:
    """Removes `aws-chunked`, which concerns only the transfer, from Content-Encoding: `aws-chunked,gzip` → `gzip`."""
    if "aws-chunked" not in value.lower():
        return value
    kept = [item.strip() for item in value.split(",")]
    return ",".join(item for item in kept if item and item.lower() != "aws-chunked")


def _metadata_text(value: str) -> str:
    """Decodes user metadata: RFC 2047 words, otherwise UTF-8, otherwise Latin-1.

    `value` is Latin-1 as in `Headers`. S3 keeps Unicode metadata and returns it as RFC 2047.
    """
    if _ENCODED.search(value):
        try:
            words = decode_header(value)
            text = "".join(
                word if isinstance(word, str) else word.decode(charset or "ascii")
                for word, charset in words
            )
            text.encode()  # UTF-7 and others can spell lone surrogates
            return text
        except (HeaderParseError, LookupError, ValueError):
            return value
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _metadata(headers: Headers) -> tuple[tuple[str, str], ...]:
    pairs = []
    total = 0
    for name, value in headers.with_prefix(PREFIX):
        text = _metadata_text(value)
        short = name[len(PREFIX) :]
        total += len(short.encode()) + len(text.encode())
        if total > METADATA_BYTES_MAX:
            raise S3Error("MetadataTooLarge", MaxSizeAllowed=str(METADATA_BYTES_MAX))
        pairs.append((short, text))
    return tuple(sorted(pairs))


def parse_object_headers(headers: Headers) -> ObjectHeaders:
    """Reads the headers to store.

    Raises:
        S3Error: MetadataTooLarge above 2 KiB of user metadata; InvalidArgument for a system header
            above 8 KiB.
    """
    stored = {}
    for name in SYSTEM:
        value = headers.get(name)
        if value is None:
            continue
        if len(value) > HEADER_BYTES_MAX:
            text = f"The header {name} is longer than {HEADER_BYTES_MAX} bytes."
            raise S3Error("InvalidArgument", text, ArgumentName=name)
        stored[name.replace("-", "_")] = value
    if "content_encoding" in stored:
        stored["content_encoding"] = stored_content_encoding(stored["content_encoding"])
    return ObjectHeaders(metadata=_metadata(headers), **stored)


SYSTEM: Final = (
    "content-type",
    "content-encoding",
    "cache-control",
    "content-disposition",
    "content-language",
    "expires",
)
_RESPONSE: Final = (
    ("Content-Encoding", "content_encoding"),
    ("Cache-Control", "cache_control"),
    ("Content-Disposition", "content_disposition"),
    ("Content-Language", "content_language"),
    ("Expires", "expires"),
)


def _mail_safe(text: str) -> str:
    """Encodes a metadata value as a header: RFC 2047 (base64, UTF-8) unless it is printable ASCII."""
    if _PRINTABLE.fullmatch(text) and not _ENCODED.search(text):
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode()).decode('ascii')}?="


def response_headers(entry: Entry) -> list[tuple[str, str]]:
    """Returns the stored headers of a GET or HEAD answer: Content-Type, the other five if set, and
    user metadata. The operation adds ETag, Last-Modified, length and checksums."""
    headers = [("Content-Type", entry.content_type or DEFAULT_CONTENT_TYPE)]
    headers += [(name, value) for name, field in _RESPONSE if (value := getattr(entry, field))]
    headers += [(PREFIX + name, _mail_safe(value)) for name, value in entry.metadata]
    return headers


_OVERRIDES: Final = {
    "response-content-type": "Content-Type",
    "response-content-language": "Content-Language",
    "response-expires": "Expires",
    "response-cache-control": "Cache-Control",
    "response-content-disposition": "Content-Disposition",
    "response-content-encoding": "Content-Encoding",
}


def override_headers(headers: list[tuple[str, str]], query: Query) -> list[tuple[str, str]]:
    """Returns the headers of a GET after replacing those that `response-*` parameters name.

    Raises:
        S3Error: InvalidArgument for a value that cannot be a header.
    """
    if not query:
        return headers
    changed = {}
    for parameter, name in _OVERRIDES.items():
        value = query.get(parameter)
        if value is None:
            continue
        if _UNSAFE.search(value) or len(value) > HEADER_BYTES_MAX:
            text = f"{parameter} is not a valid header value."
            raise S3Error("InvalidArgument", text, ArgumentName=parameter)
        # UTF-8 bytes on the wire, because headers are Latin-1 text here.
        changed[name] = value.encode().decode("latin-1")
    if not changed:
        return headers
    return [pair for pair in headers if pair[0] not in changed] + list(changed.items())
