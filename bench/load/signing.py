"""Signed S3 requests as bytes, made before the clock starts.

They use header SigV4 with the body's SHA-256 in the signature, as most S3 tools do. A signature is valid
for about a quarter of an hour; a longer case signs again.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

from tarn.core.clock import Clock

__all__ = ["Request", "Signer"]

_INLINE_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """One encoded request.

    Attributes:
        head: request line, headers, and a small body: sent by one write.
        body: a large body, kept separately, so that requests share it.
        is_head: the answer has no body, whatever its headers say.
    """

    head: bytes
    body: bytes = b""
    is_head: bool = False


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs for one key pair and endpoint.

    Attributes:
        host: `host:port`, as in the Host header.
        access_key_id: public part of the key.
        secret: secret part of the key.
        clock: source of the signatures' dates.
    """

    host: str
    access_key_id: str
    secret: str = field(repr=False)
    clock: Clock

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        body_sha256: str = "",
    ) -> Request:
        """A signed request.

        Args:
            method: upper case.
            path: `/bucket/key`, not encoded.
            query: parameters, not encoded.
            body: may be empty.
            headers: further ones, lower-case names; all are signed.
            body_sha256: of `body`, if it is known: large bodies are hashed once for many requests.
        """
        stamp = datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = body_sha256 or hashlib.sha256(body).hexdigest()
        named = {
            "host": self.host,
            "x-amz-content-sha256": digest,
            "x-amz-date": stamp,
            **(headers or {}),
        }
        names = sorted(named)
        signed = ";".join(names)
        target = quote(path, safe="/-_.~")
        pairs = sorted(
            (quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in (query or {}).items()
        )
        encoded_query = "&".join(f"{name}={value}" for name, value in pairs)
        lines = "".join(f"{name}:{named[name]}\n" for name in names)
        canonical = f"{method}\n{target}\n{encoded_query}\n{lines}\n{signed}\n{digest}"
        scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{_sha256(canonical)}"
        signature = hmac.digest(_key(self.secret, scope), text.encode(), "sha256").hex()
        head = [f"{method} {target}{'?' if encoded_query else ''}{encoded_query} HTTP/1.1\r\n"]
        head += [f"{name}: {named[name]}\r\n" for name in names]
        head.append(
            f"authorization: AWS4-HMAC-SHA256 Credential={self.access_key_id}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}\r\n"
        )
        if method in ("PUT", "POST"):
            head.append(f"content-length: {len(body)}\r\n")
        raw = "".join([*head, "\r\n"]).encode()
        if len(body) <= _INLINE_MAX:
            return Request(raw + body, is_head=method == "HEAD")
        return Request(raw, body)


@functools.lru_cache(maxsize=4)
def _key(secret: str, scope: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
