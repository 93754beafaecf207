"""Signature Version 2, which old clients of S3 have; refused unless the configuration accepts it.

`parse_sigv2` reads the claim of a request and makes the string that it says was signed. Only auth can tell whether the
signature is right, because it is made with the secret itself (`Access.signature_grant`).
Version 2 covers the method, the path, `Content-MD5`, `Content-Type`, the time, every `x-amz-*` header, and the
parameters of `SIGNED`; it covers neither the body nor other parameters and headers. A parameter that selects an
operation and is not covered is refused: whoever holds a presigned URL could add it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import unquote_to_bytes

from tarn_gateway.http import Headers, Request
from tarn_gateway.requests.address import bucket_of_host
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import (
    ALGORITHM,
    PAYLOAD_MODES,
    UNSIGNED_PAYLOAD,
    SignedRequest,
    hoist,
    seconds_of,
    signature_mismatch,
    signed_query,
    timestamp_of,
)

__all__ = ["NOT_COVERED", "SIGNED", "mismatch", "parse_sigv2", "signature_of"]

SIGNED: Final = frozenset(
    {
        *("accelerate", "acl", "analytics", "cors", "defaultObjectAcl", "delete", "inventory"),
        *("lifecycle", "location", "logging", "metrics", "notification", "object-lock"),
        *("partNumber", "policy", "replication", "requestPayment", "restore", "select"),
        *("select-type", "storageClass", "tagging", "torrent", "uploadId", "uploads"),
        *("versionId", "versioning", "versions", "website"),
        *("response-cache-control", "response-content-disposition", "response-content-encoding"),
        *("response-content-language", "response-content-type", "response-expires"),
    }
)
"""Parameters that the signature covers: S3's documentation, and clients that came after it."""
NOT_COVERED: Final = frozenset(
    {
        *("abac", "annotation", "append", "attributes", "encryption"),
        *("intelligent-tiering", "legal-hold", "metadataAnnotationTable"),
        *("metadataConfiguration", "metadataInventoryTable", "metadataJournalTable"),
        *("metadataTable", "ownershipControls", "policyStatus", "publicAccessBlock"),
        *("renameObject", "retention", "session"),
    }
)
"""Parameters that select operations and that version 2 does not cover; a test compares them with the table."""

_SKEW_S: Final = 900
_ACCESS_KEY_MAX: Final = 128
_CLAIM: Final = re.compile(r"AWS ([!-9;-~]{1,128}):([A-Za-z0-9+/=]{1,64})", re.ASCII)
_SIGNATURE_BYTES: Final = 20
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HASH: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_EXPIRES: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_QUERY_NEEDS: Final = (
    "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters"
)
_OF_BODY: Final = ("content-md5", "content-type")


def parse_sigv2(request: Request, now_us: int, domains: Sequence[str]) -> SignedRequest | None:
    """Returns what a request claims that is signed by version 2; None for any other request.

    Parameters that replace headers are added to the headers of a presigned request, as in version 4.

    Args:
        request: its headers or its query have the signature.
        now_us: the present time, in Unix microseconds.
        domains: lower-case host names whose subdomains are buckets.

    Raises:
        S3Error: AccessDenied (no time, expired, a parameter that is not covered), RequestTimeTooSkewed,
            InvalidArgument, SignatureDoesNotMatch for what cannot be a signature, InvalidURI.
    """
    header, query = request.headers.get("authorization"), signed_query(request)
    if header is not None:
        if query is not None or not header.startswith("AWS "):
            return None
        return _parse_header(request, header, now_us // 1_000_000, domains)
    if query is None or "X-Amz-Algorithm" in query or "AWSAccessKeyId" not in query:
        return None
    return _parse_presigned(request, query, now_us // 1_000_000, domains)


def _parse_header(
    request: Request, header: str, now_s: int, domains: Sequence[str]
) -> SignedRequest:
    claim = _CLAIM.fullmatch(header)
    if claim is None:
        text = "AWS authorization header is invalid.  Expected AwsAccessKeyId:signature"
        raise S3Error("InvalidArgument", text, ArgumentName="Authorization")
    headers = request.headers
    own_date = headers.get("x-amz-date")
    date = headers.text("date") if own_date is None else own_date
    time_s = _seconds_of(date)
    if time_s is None:
        text = "AWS authentication requires a valid Date or x-amz-date header"
        raise S3Error("AccessDenied", text)
    if abs(now_s - time_s) > _SKEW_S:
        raise S3Error(
            "RequestTimeTooSkewed",
            RequestTime=date[:80],
            ServerTime=timestamp_of(now_s),
            MaxAllowedSkewMilliseconds=str(_SKEW_S * 1000),
        )
    line = date if own_date is None else ""
    amz = {name: headers.text(name) for name in headers.amz_names}
    return _signed(request, claim[1], claim[2], line, amz, headers, domains)


def _parse_presigned(
    request: Request, query: Query, now_s: int, domains: Sequence[str]
) -> SignedRequest:
    access_key_id, signature = query.text("AWSAccessKeyId"), query.text("Signature")
    expires = query.text("Expires")
    if not (access_key_id and signature and expires) or len(access_key_id) > _ACCESS_KEY_MAX:
        raise S3Error("AccessDenied", _QUERY_NEEDS)
    if not _EXPIRES.fullmatch(expires):
        text = f"Invalid date (should be seconds since epoch): {expires[:40]}"
        raise S3Error("AccessDenied", text)
    if now_s > int(expires):
        raise S3Error(
            "AccessDenied", "Request has expired", Expires=expires, ServerTime=timestamp_of(now_s)
        )
    received = request.headers
    hoist(request, query)
    of_body = [
        (name, query.text(name).encode().decode("latin-1"))
        for name in _OF_BODY
        if name in query and name not in received
    ]
    amz = {name: received.text(name) for name in received.amz_names}
    for name in query:
        if (lower := name.lower()).startswith("x-amz-"):
            value = query.text(name).encode().decode("latin-1")
            amz.setdefault(lower.encode().decode("latin-1"), value)
    for name, value in (*of_body, *amz.items()):
        _check_line(name, f"{name}:{value}")
    if of_body:
        request.headers = Headers(request.headers.pairs + of_body)
    return _signed(request, access_key_id, signature, expires, amz, received, domains)


def _signed(
    request: Request,
    access_key_id: str,
    signature: str,
    date: str,
    amz: dict[str, str],
    received: Headers,
    domains: Sequence[str],
) -> SignedRequest:
    headers = request.headers
    resources = _resources(request, domains)
    lines = [request.method, headers.text("content-md5"), headers.text("content-type"), date]
    lines += [f"{name}:{amz[name].strip()}" for name in sorted(amz)]
    head = "\n".join([*lines, ""]).encode("latin-1")
    signed = SignedRequest(
        access_key_id,
        "",
        "",
        "",
        "",
        (),
        signature,
        _payload(amz),
        request=request,
        headers=received,
        strings_to_sign=tuple(head + resource for resource in resources),
    )
    if len(_decoded(signature)) != _SIGNATURE_BYTES:
        raise mismatch(signed)
    return signed


def _resources(request: Request, domains: Sequence[str]) -> list[bytes]:
    """Returns the forms of the CanonicalizedResource: `/bucket/key` as sent, and the covered parameters by name.
    Clients that send `/bucket` sign `/bucket/`, or what they send.

    Raises:
        S3Error: AccessDenied for a parameter that selects an operation and is not covered; InvalidArgument.
    """
    bucket = bucket_of_host(request.headers.text("host"), domains)
    path = (f"/{bucket}".encode("latin-1") if bucket else b"") + (request.raw_path or b"/")
    covered: list[tuple[bytes, bytes]] = []
    for piece in request.raw_query.split(b"&"):
        raw_name, equals, value = piece.partition(b"=")
        name = unquote_to_bytes(raw_name.replace(b"+", b" "))
        text = name.decode("latin-1")
        if text in NOT_COVERED:
            use = f"Signature Version 2 does not cover the parameter {text}; sign with {ALGORITHM}."
            raise S3Error("AccessDenied", use)
        if text in SIGNED:
            decoded = unquote_to_bytes(value)
            _check_line(text, decoded.decode("latin-1"))
            covered.append((name, name + equals + decoded))
    covered.sort(key=lambda pair: pair[0])
    end = (b"?" if covered else b"") + b"&".join(pair[1] for pair in covered)
    return [path + end] if b"/" in path[1:] or path == b"/" else [path + b"/" + end, path + end]


def _check_line(name: str, text: str) -> None:
    """Refuses control characters, which no header has. A line end would let a part of the string to sign, which may be
    the choice of another than the signer, stand for other parts of it.

    Raises:
        S3Error: InvalidArgument.
    """
    if _CONTROL.search(text):
        shown = f"{name[:40]!r} has a control character"
        raise S3Error("InvalidArgument", shown, ArgumentName=name[:40])


def _payload(amz: Mapping[str, str]) -> str:
    """Returns the payload mode: the body is unsigned, unless a header, which is signed, has its hash."""
    value = amz.get("x-amz-content-sha256", UNSIGNED_PAYLOAD)
    is_unsigned = value in PAYLOAD_MODES and ALGORITHM.removesuffix("-SHA256") not in value
    if is_unsigned or _HASH.fullmatch(value):
        return value
    text = (
        "x-amz-content-sha256 is neither 64 hex digits nor a payload mode of Signature Version 2."
    )
    raise S3Error("InvalidArgument", text, ArgumentName="x-amz-content-sha256")


def _seconds_of(text: str) -> int | None:
    """Returns seconds since the epoch of a date of HTTP or of ISO 8601; None for anything else."""
    if (seconds := seconds_of(text)) is not None:
        return seconds
    try:
        at = parsedate_to_datetime(text)
        return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _decoded(signature: str) -> bytes:
    try:
        return base64.b64decode(signature.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        return b""


def signature_of(signed: SignedRequest) -> bytes:
    """Returns the claimed signature of version 2."""
    return _decoded(signed.signature)


def mismatch(signed: SignedRequest) -> S3Error:
    """Returns the error for another signature than that of the request, with the text that we take for signed."""
    text = signed.strings_to_sign[0]
    return signature_mismatch(
        signed, StringToSign=None if b"x-amz-security-token" in text.lower() else text
    )
