"""Multipart uploads over the gateway of a test."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

from gateway_lake import GatewayLake

__all__ = ["begin", "complete", "crc32", "listed", "md5", "part", "sha256", "sum_part"]


def md5(body: bytes) -> str:
    """The ETag of a part."""
    return hashlib.md5(body).hexdigest()


def listed(*parts: tuple[int, str], crc32s: Sequence[str] = ()) -> bytes:
    """The body that completes an upload: numbers and ETags of parts, and their CRC32s."""
    sums = [f"<ChecksumCRC32>{each}</ChecksumCRC32>" for each in crc32s] or [""] * len(parts)
    inner = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{etag}&quot;</ETag>{checksum}</Part>"
        for (number, etag), checksum in zip(parts, sums, strict=True)
    )
    return f"<CompleteMultipartUpload>{inner}</CompleteMultipartUpload>".encode()


async def begin(lake: GatewayLake, key: str = "main/big", headers: Any = None) -> str:
    """Begins an upload; returns its id."""
    reply = await lake.ask("POST", f"/lake/{key}", "uploads", headers=headers)
    assert reply.status == 200, reply.body
    (upload_id,) = reply.all("UploadId")
    return str(upload_id)


async def part(lake: GatewayLake, upload: str, number: int, body: bytes, **more: Any) -> Any:
    """Uploads a part."""
    query = f"partNumber={number}&uploadId={upload}"
    return await lake.ask("PUT", "/lake/main/big", query, body, **more)


async def sum_part(lake: GatewayLake, upload: str, number: int, body: bytes) -> Any:
    """Uploads a part with its CRC32."""
    headers = {"x-amz-checksum-crc32": crc32(body)}
    return await part(lake, upload, number, body, headers=headers)


async def complete(lake: GatewayLake, upload: str, body: bytes, headers: Any = None) -> Any:
    """Completes an upload."""
    return await lake.ask("POST", "/lake/main/big", f"uploadId={upload}", body, headers)


def crc32(body: bytes) -> str:
    """The CRC32 of a part, as S3 writes it."""
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def sha256(body: bytes) -> str:
    """The SHA-256 of a part, as S3 writes it."""
    return base64.b64encode(hashlib.sha256(body).digest()).decode()
