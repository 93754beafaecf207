"""The headers that are stored with an object: user metadata and six headers that HTTP defines."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Final

from tarn.core.entry import METADATA_BYTES_MAX, Entry
from tarn.core.entry_check import HEADER_BYTES_MAX
from tarn.objects.headers import NO_HEADERS, StoredHeaders
from tarn_gateway.http import Headers
from tarn_gateway.requests.encoded_words import decode_words, encode_words
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error

__all__ = [
    "SYSTEM",
    "override_headers",
    "parse_object_headers",
    "response_headers",
]

PREFIX: Final = "x-amz-meta-"
DEFAULT_CONTENT_TYPE: Final = "binary/octet-stream"

UNSAFE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
"""A token (RFC 9110 §5.6.2)."""


def stored_content_encoding(value: str) -> str:
    """Removes `aws-chunked`, which concerns only the transfer, from Content-Encoding: `aws-chunked,gzip` → `gzip`."""
    if "aws-chunked" not in value.lower():
        return value
    kept = [item.strip() for item in value.split(",")]
    return ",".join(item for item in kept if item and item.lower() != "aws-chunked")


def _metadata_text(value: str) -> str:
    """Decodes user metadata: UTF-8, otherwise Latin-1, and in either RFC 2047 words.

    `value` is Latin-1 as in `Headers`. S3 keeps Unicode metadata and returns it as RFC 2047.
    """
    if value.isascii():
        return decode_words(value)
    try:
        return decode_words(value.encode("latin-1").decode())
    except UnicodeDecodeError:
        return decode_words(value)


def _metadata(headers: Headers) -> tuple[tuple[str, str], ...]:
    sent = headers.with_prefix(PREFIX)
    if not sent:
        return ()
    pairs = []
    total = 0
    for name, value in sent:
        text = _metadata_text(value)
        short = name[len(PREFIX) :]
        total += len(short.encode()) + len(text.encode())
        if total > METADATA_BYTES_MAX:
            raise S3Error("MetadataTooLarge", MaxSizeAllowed=str(METADATA_BYTES_MAX))
        pairs.append((short, text))
    return tuple(sorted(pairs))


def parse_object_headers(headers: Headers) -> StoredHeaders:
    """Reads the headers to store.

    Raises:
        S3Error: MetadataTooLarge above 2 KiB of user metadata; InvalidArgument for a system header
            above 8 KiB.
    """
    metadata = _metadata(headers)
    found = _SYSTEM_NAMES & headers.keys()
    if not found and not metadata:
        return NO_HEADERS
    stored = {}
    for name in filter(found.__contains__, SYSTEM):
        value = headers[name]
        if len(value) > HEADER_BYTES_MAX:
            text = f"The header {name} is longer than {HEADER_BYTES_MAX} bytes."
            raise S3Error("InvalidArgument", text, ArgumentName=name)
        stored[name.replace("-", "_")] = value
    if "content_encoding" in stored:
        stored["content_encoding"] = stored_content_encoding(stored["content_encoding"])
    return StoredHeaders(metadata=metadata, **stored)


SYSTEM: Final = (
    "content-type",
    "content-encoding",
    "cache-control",
    "content-disposition",
    "content-language",
    "expires",
)
_SYSTEM_NAMES: Final = frozenset(SYSTEM)
_OPTIONAL: Final = (
    "Content-Encoding",
    "Cache-Control",
    "Content-Disposition",
    "Content-Language",
    "Expires",
)
_optional_of: Final = attrgetter(*(name.lower().replace("-", "_") for name in _OPTIONAL))


def _sendable(value: str) -> str:
    """Returns a stored value as a header can have it; empty if it cannot.

    Graveler takes entries from other clients, too, and keeps those of earlier releases. A control character would
    end the header, so the value is left out. Text beyond Latin-1 becomes UTF-8.
    """
    if value.isascii() and value.isprintable():
        return value
    if UNSAFE.search(value):
        return ""
    return value if max(value) <= "\xff" else value.encode().decode("latin-1")


def response_headers(entry: Entry) -> list[tuple[str, str]]:
    """Returns the stored headers of a GET or HEAD answer: Content-Type, the other five if set, and
    user metadata. The operation adds ETag, Last-Modified, length and checksums.

    What no header can have is left out; S3 counts such metadata in `x-amz-missing-meta`.
    """
    headers = [("Content-Type", _sendable(entry.content_type) or DEFAULT_CONTENT_TYPE)]
    if any(optional := _optional_of(entry)):
        sent = zip(_OPTIONAL, map(_sendable, optional), strict=True)
        headers += [(name, value) for name, value in sent if value]
    if entry.metadata:
        shown = [pair for pair in entry.metadata if NAME.fullmatch(pair[0])]
        headers += [(PREFIX + name, encode_words(value)) for name, value in shown]
        if len(shown) < len(entry.metadata):
            headers.append(("x-amz-missing-meta", str(len(entry.metadata) - len(shown))))
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
        if UNSAFE.search(value) or len(value) > HEADER_BYTES_MAX:
            text = f"{parameter} is not a valid header value."
            raise S3Error("InvalidArgument", text, ArgumentName=parameter)
        # UTF-8 bytes on the wire, because headers are Latin-1 text here.
        changed[name] = value.encode().decode("latin-1")
    if not changed:
        return headers
    return [pair for pair in headers if pair[0] not in changed] + list(changed.items())
