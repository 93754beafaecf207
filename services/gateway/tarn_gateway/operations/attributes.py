"""GetObjectAttributes: facts about an object, with its parts, without its bytes."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Final

from tarn.core.entry import Entry, unpack
from tarn.core.entry_check import PARTS_MAX
from tarn.core.part_list import parts_of
from tarn.objects.checksums import EMPTY_MD5, known_checksums
from tarn.objects.conditions import http_date
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.http import Headers, Response
from tarn_gateway.operations.reading import root_marker
from tarn_gateway.requests.query import parse_integer
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["get_object_attributes"]

_HEADER: Final = "x-amz-object-attributes"
_NAMES: Final = ("ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize")
_PAGE_MAX: Final = 1000
_MARKER: Final = Entry(0, 0, bytes(16), EMPTY_MD5)
"""What the root of a ref is to readers, see `root_marker`."""


async def get_object_attributes(backend: Backend, request: S3Request) -> Response:
    """GetObjectAttributes."""
    asked = _asked(request.headers)
    target, about = request.target, []
    if target.path:
        found = await backend.graveler.lookup(
            backend.call(request), request.repository, target.ref, target.path
        )
        entry = unpack(found.entry)
        about = [("Last-Modified", http_date(entry.mtime_us))]
    else:
        await root_marker(backend, request)
        entry = _MARKER
    return xml_out.answer(_document(entry, *asked), about)


def _asked(headers: Headers) -> tuple[frozenset[str], int, int]:
    """Returns the attributes that a request names, after which part the page of parts begins, and its size at most.

    Raises:
        S3Error: InvalidArgument.
    """
    wanted = _wanted(headers)
    name = "x-amz-max-parts"
    most = parse_integer(name, headers.text(name), _PAGE_MAX, least=0, most=_PAGE_MAX)
    name = "x-amz-part-number-marker"
    return wanted, parse_integer(name, headers.text(name), 0, least=0, most=PARTS_MAX), most


def _document(entry: Entry, wanted: frozenset[str], marker: int, most: int) -> bytes:
    attributes = xml_out.ObjectAttributes(
        etag=entry.etag if "ETag" in wanted else None,
        # Without the number of parts, which ObjectParts tells.
        checksums=tuple(
            dataclasses.replace(each, value=each.value.partition("-")[0])
            for each in known_checksums(entry.checksums)
            if "Checksum" in wanted
        ),
        parts=_parts(entry, marker, most) if "ObjectParts" in wanted else None,
        has_storage_class="StorageClass" in wanted,
        size=entry.size if "ObjectSize" in wanted else None,
    )
    return xml_out.object_attributes(attributes)


def _wanted(headers: Headers) -> frozenset[str]:
    """Returns the attributes that a request names.

    Raises:
        S3Error: InvalidRequest for none, InvalidArgument for an unknown one.
    """
    text = headers.text(_HEADER)
    if not text.strip():
        specifying = "specifying the attributes to be retrieved is either missing or empty"
        raise S3Error("InvalidRequest", f"The {_HEADER} header {specifying}")
    names = frozenset(each.strip() for each in text.split(","))
    if unknown := names.difference(_NAMES):
        raise S3Error(
            "InvalidArgument",
            f"Invalid attribute name specified. The names are {', '.join(_NAMES)}.",
            ArgumentName=_HEADER,
            ArgumentValue=min(unknown)[:80],
        )
    return names


def _parts(entry: Entry, marker: int, most: int) -> xml_out.AttributeParts | None:
    """Returns a page of the parts; only their number if the entry keeps no list; None for an object without parts."""
    parts = parts_of(entry)
    if parts is None:
        return xml_out.AttributeParts(entry.etag_parts) if entry.etag_parts else None
    page = list(itertools.islice(parts.after(marker), most))
    return xml_out.AttributeParts(
        parts.count,
        algorithm=parts.algorithm,
        page=page,
        marker=marker,
        max_parts=most,
        # An empty page leads nowhere, so it is the last one.
        truncated=bool(page) and page[-1].number < parts.count,
    )
