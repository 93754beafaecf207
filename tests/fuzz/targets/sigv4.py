"""Signed requests: any head is either refused or verified, and a verified request cannot be changed.

An input is the head of an HTTP request. Heads with a valid signature come from an independent signer
(`signing`), which is one of the mutations. Each accepted request is then changed in every part that the
signature covers, and must be refused.
"""

from __future__ import annotations

from tests.fuzz.targets.refusals import gateway, headers_are_headers
from tests.fuzz.targets.requests import request_of
from tests.fuzz.targets.signing import KEY, NOW_US, sign_header, sign_query
from tests.support.fuzz.target import PropertyError, Target

from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.http.head import HeadError
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import SignedRequest, SigV4Policy, parse_authorization, verify

__all__ = ["TARGET"]

_POLICY = SigV4Policy()


def _verified(request: Request) -> SignedRequest:
    signed = parse_authorization(request, NOW_US, _POLICY)
    verify(signed, KEY)
    return signed


def _check(data: bytes) -> str:
    request = request_of(data)
    method, path, query, headers = (
        request.method,
        request.raw_path,
        request.raw_query,
        request.headers,
    )
    signed = gateway(request, lambda: _verified(request))
    headers_are_headers(request.headers)

    def refuses(what: str, *changed: bytes | str, pairs: list[tuple[str, str]]) -> None:
        verb, new_path, new_query = changed
        assert isinstance(verb, str)
        assert isinstance(new_path, bytes)
        assert isinstance(new_query, bytes)
        forged = Request(verb, new_path, new_query, Headers(pairs), BodyReader(0))
        try:
            _verified(forged)
        except S3Error:
            return
        raise PropertyError(f"another {what} keeps the signature")

    pairs = headers.pairs
    refuses("method", "PUT" if method != "PUT" else "GET", path, query, pairs=pairs)
    refuses("path", method, path + b"x", query, pairs=pairs)
    refuses("query", method, path, query + b"&x=1", pairs=pairs)
    for name in signed.signed_headers:
        if name in headers:
            other = [(key, value + "x" if key == name else value) for key, value in pairs]
            refuses("header", method, path, query, pairs=other)
    return "signed" if "authorization" in headers else "presigned"


TARGET = Target(
    "sigv4",
    _check,
    refusals=(S3Error, HeadError),
    traced=(
        "tarn_gateway.signing.sigv4",
        "tarn_gateway.signing.canonical",
        "tarn_gateway.requests.query",
        "tarn_gateway.http.head",
        "tarn_gateway.http.headers",
        "tarn_gateway.s3error",
    ),
    mutations=(sign_header, sign_query),
    tokens=(
        b"X-Amz-Meta-a=b",
        b"%0D%0A",
        b"%E2%82%AC",
        b"\xe2\x82\xac",
        b"SignedHeaders=host;",
        b"Date: Fri, 31 Dec 9999 23:59:59 -2300\r\n",
        b"\r\n",
        b"HTTP/1.1",
        b"UNSIGNED-PAYLOAD",
    ),
)
