"""The parts of a head that the gateway reads in addition to the signature: address, operation, headers.

The requests count as signed: a user of the installation must not be able to cause a 5xx, either.
"""

from __future__ import annotations

from lxml import etree
from tests.fuzz.targets.refusals import gateway, sendable
from tests.fuzz.targets.requests import request_of
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.entry import Checksum, Entry, pack, unpack, with_parts
from tarn.core.errors import TarnError
from tarn.core.ids import parse_path, parse_repository_id
from tarn.core.part_list import PartList
from tarn.core.refs import branch_to_write
from tarn.objects.byterange import ByteRange, parse_range
from tarn.objects.conditions import http_date
from tarn_gateway.bodies.checksums import parse_claims
from tarn_gateway.http import Request, Response
from tarn_gateway.http.head import HeadError
from tarn_gateway.operations import attributes
from tarn_gateway.requests.address import parse_address, parse_copy_source, split_key
from tarn_gateway.requests.condition_headers import (
    check_copy_source,
    read_conditions,
    write_condition,
)
from tarn_gateway.requests.copy_range import parse_copy_range
from tarn_gateway.requests.header_table import check_headers
from tarn_gateway.requests.multipart import boundary_of
from tarn_gateway.requests.object_headers import (
    override_headers,
    parse_object_headers,
    response_headers,
)
from tarn_gateway.requests.query import Query, parse_query, refuse_version
from tarn_gateway.requests.tagging import parse_tagging
from tarn_gateway.router import route
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import readable_ref

__all__ = ["TARGET"]

_SIZE = 1000
_ETAG = "d41d8cd98f00b204e9800998ecf8427e"
_PARTS = 3
_MULTIPART = unpack(
    with_parts(
        pack(
            Entry(
                2 * (5 << 20) + 1,
                1,
                bytes(16),
                bytes(16),
                etag_parts=_PARTS,
                checksums=(Checksum("CRC32", "AAAAAA==-3", composite=True),),
            )
        ),
        PartList.of([5 << 20, 5 << 20, 1], "CRC32", [bytes(4)] * _PARTS).encode(),
    )
)


def _check(data: bytes) -> str:
    request = request_of(data)
    query = gateway(request, lambda: parse_query(request.raw_query))
    words = []
    for step in (_addressed, _stored, _conditions, _copied, _numbers, _attributes, _form):
        try:
            words.append(gateway(request, lambda step=step: step(request, query)))  # type: ignore[misc]  # a default
        except (S3Error, TarnError):
            words.append("refused")
    return " ".join(words)


def _addressed(request: Request, query: Query) -> str:
    address = parse_address(request.headers.text("host"), request.raw_path, ("s3.tarn",))
    refuse_version(query)
    operation = route(request.method, address, query, request.headers)
    check_headers(operation.name, request.headers, "ada")
    parse_repository_id(address.bucket)
    if address.key:
        at = split_key(address.key)
        readable_ref(at.ref)
        branch_to_write(at.ref)
        if at.path:
            parse_path(at.path)
    return operation.name


def _stored(request: Request, query: Query) -> str:
    """Checks that a GET returns the headers that a PUT stores."""
    stored = parse_object_headers(request.headers)
    entry = Entry(
        0,
        0,
        bytes(16),
        bytes(16),
        content_type=stored.content_type,
        metadata=stored.metadata,
        content_encoding=stored.content_encoding,
        cache_control=stored.cache_control,
        content_disposition=stored.content_disposition,
        content_language=stored.content_language,
        expires=stored.expires,
        tags=parse_tagging(request.headers),
    )
    if unpack(pack(entry)) != entry:
        raise PropertyError(f"an entry is another one behind its packed form: {entry}")
    sendable(Response(200, response_headers(entry)))
    sendable(Response(200, override_headers(response_headers(entry), query)))
    return "stored"


def _conditions(request: Request, query: Query) -> str:
    headers = request.headers
    conditions = read_conditions(headers)
    verdict = conditions.judge(_ETAG, 0)
    for seconds in (conditions.if_modified_since_s, conditions.if_unmodified_since_s):
        if seconds is not None and 0 <= seconds < 253_402_300_800:
            http_date(seconds * 1_000_000)
    found = parse_range(headers.get("range"), _SIZE)
    _inside(found)
    parse_claims(headers, has_trailers=True)
    write_condition(headers)
    return f"{verdict} {found is not None}"


def _copied(request: Request, query: Query) -> str:
    headers = request.headers
    check_copy_source(headers, _ETAG, 0)
    _inside(parse_copy_range(headers.get("x-amz-copy-source-range"), _SIZE))
    source = headers.get("x-amz-copy-source")
    if source is None:
        return "no source"
    at = split_key(parse_copy_source(source).key)
    readable_ref(at.ref)
    return "source"


def _inside(found: ByteRange | None) -> None:
    if found is not None and not (
        found.length >= 1 and found.start >= 0 and found.start + found.length <= _SIZE
    ):
        raise PropertyError(f"{found} is not inside {_SIZE} bytes")


def _numbers(request: Request, query: Query) -> str:
    for name in ("max-keys", "partNumber", "part-number-marker", "max-uploads", "max-parts"):
        if not 0 <= query.integer(name, 7, least=0, most=1000) <= 1000:
            raise PropertyError(f"{name} is out of bounds")
    return "numbers"


def _attributes(request: Request, query: Query) -> str:
    """Checks the document that GetObjectAttributes makes for the attributes and parts that are asked for."""
    wanted, marker, most = attributes._asked(request.headers)
    document = etree.fromstring(attributes._document(_MULTIPART, wanted, marker, most))
    shown = {etree.QName(each).localname for each in document}
    if shown != wanted:
        raise PropertyError(f"{wanted} are wanted, {shown} are shown")
    numbers = [int(each.text or "") for each in document.iterfind(".//{*}Part/{*}PartNumber")]
    if numbers != [*range(marker + 1, min(marker + most, _PARTS) + 1)]:
        raise PropertyError(f"parts {numbers} after {marker}, at most {most}")
    return " ".join(sorted(shown))


def _form(request: Request, query: Query) -> str:
    boundary = boundary_of(request.headers)
    if not 1 <= len(boundary) <= 70 or not boundary.decode("ascii").isprintable():
        raise PropertyError(f"the boundary of a form is {boundary!r}")
    return "form"


TARGET = Target(
    "head",
    _check,
    refusals=(S3Error, TarnError, HeadError),
    traced=(
        "tarn_gateway.http.head",
        "tarn_gateway.requests.address",
        "tarn_gateway.requests.query",
        "tarn_gateway.router",
        "tarn_gateway.requests.header_table",
        "tarn_gateway.requests.object_headers",
        "tarn_gateway.requests.tagging",
        "tarn_gateway.requests.condition_headers",
        "tarn_gateway.requests.copy_range",
        "tarn.objects.conditions",
        "tarn.objects.byterange",
        "tarn_gateway.operations.attributes",
        "tarn_gateway.bodies.checksums",
        "tarn_gateway.s3request",
    ),
    tokens=(
        b"=?utf-7?q?+2AA-?=",
        b"=?raw_unicode_escape?q?=5Cud800?=",
        b"=?idna?q?xn--?=",
        b"=?utf-8?b?4oKs?=",
        b"x-amz-meta-a: ",
        b"x-amz-tagging: a=1&b=%C3%BC",
        b"\r\n",
        b"%00",
        b"%FF",
        b"Range: bytes=",
        b"x-amz-object-attributes: ETag,ObjectParts\r\n",
        b"x-amz-part-number-marker: 1\r\n",
        b"x-amz-max-parts: 1\r\n",
        b'content-type: multipart/form-data; boundary="a b"\r\n',
        b"If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    ),
    share=0.5,
)
