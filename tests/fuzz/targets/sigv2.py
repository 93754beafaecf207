"""Requests that are signed by version 2: any head is refused or makes a string to sign, and another request, in what
the signature covers, makes another one.

An input is the head of an HTTP request. Heads with a claim of a signature are one of the mutations; whether it is right
only auth can tell.
"""

from __future__ import annotations

import random

from tests.fuzz.targets.refusals import gateway, headers_are_headers
from tests.fuzz.targets.requests import request_of
from tests.fuzz.targets.signing import ACCESS, NOW, NOW_US
from tests.support.fuzz.target import PropertyError, Target

from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.http.head import HeadError
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv2 import mismatch, parse_sigv2
from tarn_gateway.signing.sigv4 import SignedRequest

__all__ = ["TARGET"]

_DOMAINS = ("s3.local",)
_SIGNATURE = b"A" * 27 + b"="
_DATE = NOW.strftime("%a, %d %b %Y %H:%M:%S GMT").encode()


def _claim(request: Request) -> SignedRequest | None:
    return parse_sigv2(request, NOW_US, _DOMAINS)


def _check(data: bytes) -> str:
    request = request_of(data)
    method, path, query = request.method, request.raw_path, request.raw_query
    headers = request.headers
    claim = gateway(request, lambda: _claim(request))
    headers_are_headers(request.headers)
    if claim is None:
        return "other"
    is_query = "authorization" not in headers
    names = {name for name in headers if name.startswith("x-amz-")}
    lines = claim.strings_to_sign[0].count(b"\n")
    if lines < 4 + len(names) or (lines > 4 + len(names) and not is_query):
        raise PropertyError("the lines of the string to sign are not those of the request")
    if not claim.access_key_id:
        raise PropertyError("a signed request looks like an anonymous one")
    _refusal_is_sendable(request, claim)

    def differs(what: str, *changed: bytes | str, pairs: list[tuple[str, str]]) -> None:
        verb, new_path, new_query = changed
        assert isinstance(verb, str)
        assert isinstance(new_path, bytes)
        assert isinstance(new_query, bytes)
        try:
            other = _claim(Request(verb, new_path, new_query, Headers(pairs), BodyReader(0)))
        except S3Error:
            return
        if other is not None and set(other.strings_to_sign) & set(claim.strings_to_sign):
            raise PropertyError(f"another {what} keeps the string to sign")

    pairs = headers.pairs
    differs("method", "PUT" if method != "PUT" else "GET", path, query, pairs=pairs)
    differs("path", method, path + b"x", query, pairs=pairs)
    differs("sub-resource", method, path, query + b"&acl", pairs=pairs)
    differs("header", method, path, query, pairs=[*pairs, ("x-amz-new", "1")])
    for name in (*names, "content-type"):
        if name in headers:
            changed = [(key, value + "x" if key == name else value) for key, value in pairs]
            differs("header", method, path, query, pairs=changed)
    return "presigned" if is_query else "signed"


def _refusal_is_sendable(request: Request, claim: SignedRequest) -> None:
    def refuse() -> None:
        raise mismatch(claim)

    try:
        gateway(request, refuse)
    except S3Error:
        return


def _lines_of(data: bytes) -> tuple[bytes, bytes, list[bytes]]:
    first, *lines = data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    method, _, rest = first.partition(b" ")
    kept = [line for line in lines if not line.lower().startswith((b"authorization", b"date:"))]
    return method, rest.rpartition(b" ")[0] or b"/", kept


def _claim_header(rng: random.Random, data: bytes) -> bytes:
    """Claims a signature in the Authorization header."""
    method, target, lines = _lines_of(data)
    name = rng.choice((b"Date", b"x-amz-date"))
    claim = b"Authorization: AWS " + ACCESS.encode() + b":" + _SIGNATURE
    return b"\r\n".join(
        [method + b" " + target + b" HTTP/1.1", *lines, name + b": " + _DATE, claim, b"", b""]
    )


def _claim_query(rng: random.Random, data: bytes) -> bytes:
    """Claims a signature in the query, with parameters that stand for headers."""
    method, target, lines = _lines_of(data)
    more = rng.choice(
        (
            b"",
            b"&x-amz-meta-a=1",
            b"&x-amz-date=a%0Ab",
            b"&x-amz-checksum-%C3%A9=1",
            b"&content-type=text/csv",
            b"&response-content-type=a%0Ab",
            b"&X-Amz-Security-Token=t",
        )
    )
    claim = b"AWSAccessKeyId=" + ACCESS.encode() + b"&Expires=99999999999&Signature="
    mark = b"&" if b"?" in target else b"?"
    target += mark + claim + _SIGNATURE[:-1] + b"%3D" + more
    return b"\r\n".join([method + b" " + target + b" HTTP/1.1", *lines, b"", b""])


TARGET = Target(
    "sigv2",
    _check,
    refusals=(S3Error, HeadError),
    traced=(
        "tarn_gateway.signing.sigv2",
        "tarn_gateway.requests.query",
        "tarn_gateway.requests.address",
        "tarn_gateway.s3error",
    ),
    mutations=(_claim_header, _claim_query),
    tokens=(
        b"x-amz-meta-a: 1\r\n",
        b"x-amz-date: ",
        b"content-md5: ",
        b"Host: lake.s3.local\r\n",
        b"response-content-disposition=",
        b"&partNumber=1",
        b"%0D%0A",
        b"%E2%82%AC",
        b"\xe2\x82\xac",
        b"attributes",
        b"\r\n",
    ),
)
