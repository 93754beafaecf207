"""The headers that are stored with an object: user metadata and six headers that HTTP defines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from tarn.core.entry import Checksum, Entry, pack
from tarn.core.entry_check import check_template
from tarn.core.object_tags import Tags
from tarn.core.value import hot_value

__all__ = [
    "LAKECTL_SHOWN",
    "LAKECTL_STORED",
    "NOTHING",
    "NO_HEADERS",
    "StoredHeaders",
    "entry_of",
    "stored_headers",
    "stored_metadata",
    "with_headers",
]

LAKECTL_STORED: Final = "x-lakefs-internal-"
"""Begins the headers by which lakectl sends metadata of its own, such as the time of a local file; also the names by
which they are stored, because S3 clients can be told only of names that a header can have."""
LAKECTL_SHOWN: Final = "::lakefs::"
"""Begins the same names in JSON, and in lakeFS."""

NOTHING: Final = Entry(0, 0, bytes(16), bytes(16))
"""An entry that has no object yet: what templates of uploads are made of."""


@hot_value
class StoredHeaders:
    """The headers of a write that are stored with the object.

    Names and forms of the attributes are those of `tarn.core.entry.Entry`.
    """

    content_type: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    content_encoding: str = ""
    cache_control: str = ""
    content_disposition: str = ""
    content_language: str = ""
    expires: str = ""


NO_HEADERS: Final = StoredHeaders()


def stored_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Returns user metadata, as lakeFS has them, with the names by which they are stored."""
    return {
        LAKECTL_STORED + name.removeprefix(LAKECTL_SHOWN)
        if name.startswith(LAKECTL_SHOWN)
        else name: value
        for name, value in (metadata or {}).items()
    }


def stored_headers(
    content_type: str = "", metadata: Mapping[str, str] | None = None
) -> StoredHeaders:
    """Returns headers that graveler will take: names of metadata in lower case.

    Raises:
        TarnError: METADATA_TOO_LARGE above 2 KiB of user metadata; INVALID_ARGUMENT for a content type above 8 KiB or
            with characters that no header can have, and for a name that is no token of RFC 9110, or has two values.
    """
    if not metadata:
        return _of_type(content_type)
    pairs = sorted((name.lower(), value) for name, value in metadata.items())
    return _checked(StoredHeaders(content_type, tuple(pairs)))


@lru_cache(maxsize=64)  # most objects have one of a few types, and no metadata
def _of_type(content_type: str) -> StoredHeaders:
    return _checked(StoredHeaders(content_type))


def _checked(headers: StoredHeaders) -> StoredHeaders:
    check_template(pack(with_headers(NOTHING, headers)))
    return headers


def with_headers(entry: Entry, headers: StoredHeaders, lineage: str = "") -> Entry:
    """Returns the entry with other stored headers and another lineage instead of its own."""
    return entry_of(
        headers,
        entry.size,
        entry.mtime_us,
        entry.address,
        entry.md5,
        lineage,
        entry.operation_id,
        entry.checksums,
        entry.tags,
        etag_parts=entry.etag_parts,
        external_address=entry.external_address,
    )


def entry_of(
    headers: StoredHeaders,
    size: int,
    mtime_us: int,
    address: bytes,
    md5: bytes,
    lineage: str,
    operation_id: str,
    checksums: tuple[Checksum, ...],
    tags: Tags,
    *,
    etag_parts: int = 0,
    external_address: str = "",
) -> Entry:
    """Returns an entry with stored headers; its other fields are named as those of `Entry`."""
    return Entry(
        size,
        mtime_us,
        address,
        md5,
        etag_parts=etag_parts,
        content_type=headers.content_type,
        metadata=headers.metadata,
        content_encoding=headers.content_encoding,
        cache_control=headers.cache_control,
        content_disposition=headers.content_disposition,
        content_language=headers.content_language,
        expires=headers.expires,
        lineage=lineage,
        operation_id=operation_id,
        external_address=external_address,
        checksums=checksums,
        tags=tags,
    )
