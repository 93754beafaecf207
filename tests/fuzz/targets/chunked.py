"""Bodies: aws-chunked in its signed and unsigned forms, with and without trailers.

An input consists of headers, an empty line, and the body as it arrives. It is fed as a whole and in pieces, with
the same result; a body that is accepted in a signed mode is then changed and must be refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import zlib
from itertools import pairwise

from tests.fuzz.targets.refusals import gateway
from tests.fuzz.targets.signing import KEY, SCOPE, STAMP
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.errors import TarnError
from tarn.objects.checksums import BodySums
from tarn_gateway.bodies.payload import PayloadPolicy, open_payload
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import PAYLOAD_MODES, SignedRequest

__all__ = ["TARGET"]

_SEED = "ab" * 32
_EMPTY = hashlib.sha256(b"").hexdigest()
_SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
_TRAILER = "x-amz-checksum-crc32"
_LIMIT = 1 << 20

_Received = tuple[bytes, BodySums] | S3Error


class _Body(BodyReader):
    """A body that arrives in given pieces, all in one reused buffer."""

    __slots__ = ("_buffer", "_pieces")

    def __init__(self, pieces: list[bytes], length: int) -> None:
        super().__init__(0)
        self.length = length
        self._pieces = pieces
        self._buffer = bytearray(length)

    async def read(self) -> bytes | memoryview:
        self._buffer[:] = b"\xee" * len(self._buffer)
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        self._buffer[: len(piece)] = piece
        return memoryview(self._buffer)[: len(piece)]


def _split(data: bytes) -> tuple[Headers, bytes]:
    head, _, body = data.partition(b"\n\n")
    pairs = []
    for line in head.decode("latin-1").split("\n"):
        name, _, value = line.partition(":")
        pairs.append((name.strip().lower(), value.strip()))
    return Headers(pairs), body


def _received(headers: Headers, pieces: list[bytes], length: int) -> _Received:
    request = Request("PUT", b"/lake/main/k", b"", headers, _Body(pieces, length))
    mode = headers.text("x-amz-content-sha256")
    if mode not in PAYLOAD_MODES:
        mode = hashlib.sha256(b"".join(pieces)).hexdigest()
    signed = SignedRequest(
        "AKIA", SCOPE[:8], "us-east-1", "s3", STAMP, ("host",), _SEED, mode,
        request=request, headers=headers,
    )  # fmt: skip
    written: list[bytes] = []

    async def write(part: memoryview) -> None:
        written.append(bytes(part))

    async def pump() -> BodySums:
        payload = open_payload(request, signed, KEY, PayloadPolicy(_LIMIT))
        return await payload.pump(write)

    def ran() -> BodySums:
        """Runs a coroutine that never waits, so it needs no event loop."""
        try:
            pump().send(None)
        except StopIteration as end:
            sums: BodySums = end.value
            return sums
        raise PropertyError("a body that is there was waited for")

    try:
        sums = gateway(request, ran)
    except S3Error as error:
        return error
    return b"".join(written), sums


def _check(data: bytes) -> str:
    headers, body = _split(data)
    whole = _received(headers, [body] if body else [], len(body))
    rng = random.Random(zlib.crc32(data))
    edges = sorted({0, len(body), *(rng.randint(0, len(body)) for _ in range(rng.randint(1, 9)))})
    if len(body) < 200 and rng.random() < 0.2:
        edges = list(range(len(body) + 1))
    pieces = [body[start:end] for start, end in pairwise(edges)]
    cut = _received(headers, pieces, len(body))
    if isinstance(whole, S3Error):
        if not isinstance(cut, S3Error):
            raise PropertyError(f"refused at once ({whole}), accepted in pieces")
        raise whole
    if isinstance(cut, S3Error) or cut != whole:
        raise PropertyError(f"accepted at once, in pieces: {cut}")
    content, sums = whole
    if sums.md5 != hashlib.md5(content).digest() or sums.size != len(content):
        raise PropertyError("the sums are of other bytes")
    mode = headers.text("x-amz-content-sha256")
    if mode in PAYLOAD_MODES and mode.startswith(_SIGNED):
        _cannot_be_forged(headers, body, content, rng)
    return mode


def _cannot_be_forged(headers: Headers, body: bytes, content: bytes, rng: random.Random) -> None:
    """Checks that a body with one changed bit is refused or has the same content (`A` for `a`)."""
    at = rng.randrange(len(body))
    forged = bytearray(body)
    forged[at] ^= 1 << rng.randrange(8)
    found = _received(headers, [bytes(forged)], len(body))
    if not isinstance(found, S3Error) and found[0] != content:
        raise PropertyError(f"byte {at} of a signed body can be changed")


def _mac(kind: str, previous: str, *hashes: str) -> str:
    text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", STAMP, SCOPE, previous, *hashes])
    return hmac.digest(KEY, text.encode(), "sha256").hex()


def _sent(rng: random.Random, content: bytes) -> bytes:
    """Returns a body as a client sends it, in any of the modes."""
    signed, trailer = rng.random() < 0.6, rng.random() < 0.6
    if not signed:
        trailer = True
    size = max(1, rng.choice((1, 7, 64, 1024, len(content))))
    parts = [content[at : at + size] for at in range(0, min(len(content), 20 * size), size)]
    content = b"".join(parts)
    previous, out = _SEED, []
    for part in [*parts, b""]:
        extension = ""
        if signed:
            previous = _mac("PAYLOAD", previous, _EMPTY, hashlib.sha256(part).hexdigest())
            extension = f";chunk-signature={previous}"
        out.append(f"{len(part):x}{extension}\r\n".encode() + part + (b"\r\n" if part else b""))
    mode = _SIGNED if signed else "STREAMING-UNSIGNED-PAYLOAD"
    lines = [f"x-amz-decoded-content-length: {len(content)}"]
    if trailer:
        mode += "-TRAILER"
        lines.append(f"x-amz-trailer: {_TRAILER}")
        crc = base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
        out.append(f"{_TRAILER}:{crc}\r\n".encode())
        if signed:
            digest = hashlib.sha256(f"{_TRAILER}:{crc}\n".encode()).hexdigest()
            out.append(f"x-amz-trailer-signature:{_mac('TRAILER', previous, digest)}\r\n".encode())
    lines.append(f"x-amz-content-sha256: {mode}")
    return "\n".join([*lines, "", ""]).encode() + b"".join(out) + b"\r\n"


def _resend(rng: random.Random, data: bytes) -> bytes:
    """Frames and signs the bytes after the headers again."""
    return _sent(rng, data.partition(b"\n\n")[2][:2048])


def _announce(rng: random.Random, data: bytes) -> bytes:
    """Changes a length."""
    head, _, body = data.partition(b"\n\n")
    lines = [line for line in head.split(b"\n") if b"decoded-content-length" not in line]
    length = rng.choice((0, 1, len(body), 2**20 + 1, 2**63, 10**17))
    return b"\n".join([*lines, b"x-amz-decoded-content-length: %d" % length]) + b"\n\n" + body


TARGET = Target(
    "chunked",
    _check,
    refusals=(S3Error, TarnError),
    traced=(
        "tarn_gateway.bodies.payload",
        "tarn_gateway.signing.chunks",
        "tarn_gateway.bodies.checksums",
        "tarn_gateway.http.chunked",
    ),
    mutations=(_resend, _resend, _announce),
    tokens=(
        *(mode.encode() for mode in sorted(PAYLOAD_MODES)),
        b"\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"10000000000\r\n",
        b"x-amz-trailer-signature:",
        b"x-amz-trailer: x-amz-checksum-sha256\n",
        b"x-amz-checksum-crc64nvme:AAAAAAAAAAA=\r\n",
    ),
)
