"""A signer of requests, written from AWS's documentation, independently of our verifier."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import random
import re
from collections.abc import Sequence

__all__ = [
    "ACCESS",
    "KEY",
    "NOW",
    "NOW_US",
    "REGION",
    "SCOPE",
    "SECRET",
    "STAMP",
    "sign_header",
    "sign_query",
]

ACCESS, SECRET, REGION = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG", "us-east-1"
NOW = dt.datetime(2026, 11, 1, 12, 0, 0, tzinfo=dt.UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000
STAMP = "20261101T120000Z"
SCOPE = f"{STAMP[:8]}/{REGION}/s3/aws4_request"


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode("latin-1"), "sha256")


KEY = _mac(_mac(_mac(_mac(f"AWS4{SECRET}".encode(), STAMP[:8]), REGION), "s3"), "aws4_request")

_BLANKS = re.compile(rb"[ \t]+")
Pairs = list[tuple[bytes, bytes]]


def _canonical(
    method: bytes, target: bytes, pairs: Pairs, names: Sequence[bytes], payload: bytes
) -> bytes:
    path, _, query = target.partition(b"?")
    parameters = sorted(
        (name, value)
        for name, _, value in (piece.partition(b"=") for piece in query.split(b"&") if piece)
        if name != b"X-Amz-Signature"
    )
    lines = []
    for name in names:
        values = [_BLANKS.sub(b" ", value) for key, value in pairs if key == name]
        lines.append(name + b":" + b",".join(values) + b"\n")
    return b"\n".join(
        [
            method,
            path or b"/",
            b"&".join(name + b"=" + value for name, value in parameters),
            b"".join(lines),
            b";".join(names),
            payload,
        ]
    )


def _signature(canonical: bytes) -> bytes:
    digest = hashlib.sha256(canonical).hexdigest()
    return _mac(KEY, f"AWS4-HMAC-SHA256\n{STAMP}\n{SCOPE}\n{digest}").hex().encode()


def _split(data: bytes) -> tuple[bytes, bytes, Pairs]:
    """Returns method, target and headers of a head, read as tolerantly as possible."""
    lines = data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    method, _, rest = lines[0].partition(b" ")
    pairs = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            pairs.append((name.strip().lower(), value.strip()))
    return method, rest.rpartition(b" ")[0] or b"/", pairs


def _join(method: bytes, target: bytes, pairs: Pairs) -> bytes:
    lines = [name + b": " + value for name, value in pairs]
    return b"\r\n".join([method + b" " + target + b" HTTP/1.1", *lines, b"", b""])


def sign_header(rng: random.Random, data: bytes) -> bytes:
    """Signs a request as it stands, in its Authorization header."""
    method, target, pairs = _split(data)
    ours = (b"authorization", b"x-amz-date")
    pairs = [pair for pair in pairs if pair[0] not in ours]
    names = {name for name, _ in pairs}
    pairs.append((b"x-amz-date", STAMP.encode()))
    if b"host" not in names:
        pairs.append((b"host", b"localhost"))
    payload = next((value for name, value in pairs if name == b"x-amz-content-sha256"), b"")
    if not payload:
        payload = b"UNSIGNED-PAYLOAD"
        pairs.append((b"x-amz-content-sha256", payload))
    signed = {name for name, _ in pairs if name == b"host" or name.startswith(b"x-amz-")}
    signed |= {name for name in names if rng.random() < 0.3}
    names_signed = sorted(signed)
    signature = _signature(_canonical(method, target, pairs, names_signed, payload))
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS}/{SCOPE}, SignedHeaders=".encode()
        + b";".join(names_signed)
        + b", Signature="
        + signature
    )
    return _join(method, target, [*pairs, (b"authorization", authorization)])


def sign_query(rng: random.Random, data: bytes) -> bytes:
    """Signs a request in its query, as presigned URLs are."""
    method, target, pairs = _split(data)
    pairs = [pair for pair in pairs if not pair[0].startswith((b"authorization", b"x-amz-"))]
    if not any(name == b"host" for name, _ in pairs):
        pairs.append((b"host", b"localhost"))
    path, _, query = target.partition(b"?")
    kept = [
        piece
        for piece in query.split(b"&")
        if piece and (not piece.startswith(b"X-Amz-") or piece.startswith(b"X-Amz-Meta"))
    ]
    names = sorted({b"host", *(name for name, _ in pairs if rng.random() < 0.3)})
    kept += [
        b"X-Amz-Algorithm=AWS4-HMAC-SHA256",
        b"X-Amz-Credential=" + f"{ACCESS}/{SCOPE}".replace("/", "%2F").encode(),
        b"X-Amz-Date=" + STAMP.encode(),
        b"X-Amz-Expires=3600",
        b"X-Amz-SignedHeaders=" + b"%3B".join(names),
    ]
    if rng.random() < 0.3:
        name = rng.choice((b"X-Amz-Meta-A", b"x-amz-acl", b"X-Amz-Meta-%0D%0A", b"X-Amz-Meta-%C3"))
        kept.append(name + b"=" + rng.choice((b"1", b"a%0D%0Ab", b"%E2%82%AC", b"%00")))
    target = path + b"?" + b"&".join(kept)
    signature = _signature(_canonical(method, target, pairs, names, b"UNSIGNED-PAYLOAD"))
    return _join(method, target + b"&X-Amz-Signature=" + signature, pairs)
