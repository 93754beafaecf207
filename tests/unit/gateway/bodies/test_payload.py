"""The five payload modes: any split into pieces, and damage at any place."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from awscrt import checksums as crt
from hypothesis import given
from hypothesis import strategies as st

from tarn.block.port import Append
from tarn.objects.checksums import Algorithm, BodySums
from tarn_gateway.bodies.checksums import NO_CLAIMS, Promised
from tarn_gateway.bodies.payload import (
    AwsChunked,
    Payload,
    PayloadPolicy,
    open_payload,
    stored_content_encoding,
)
from tarn_gateway.http import BodyReader, BodyTruncatedError, Headers, Request
from tarn_gateway.http.chunked import EVENTS_MAX
from tarn_gateway.http.patience import Patience
from tarn_gateway.http.receiver import Receiver
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import SignedRequest

KEY = bytes(range(32))
STAMP, SCOPE = "20261101T000000Z", "20261101/us-east-1/s3/aws4_request"
SEED = "ab" * 32
SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = SIGNED + "-TRAILER"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY = hashlib.sha256(b"").hexdigest()


class PiecesBody(BodyReader):
    """A body that arrives in given pieces, all in one reused buffer; may break off."""

    __slots__ = ("_broken", "_buffer", "_pieces")

    def __init__(self, pieces: list[bytes], length: int | None, broken: bool = False) -> None:
        super().__init__(0)
        self.length = length
        self._pieces = [piece for piece in pieces if piece]
        self._broken = broken
        self._buffer = bytearray(max(map(len, pieces), default=0))

    async def read(self) -> bytes | memoryview:
        self._buffer[:] = b"\xee" * len(self._buffer)  # a reader that kept the last piece sees this
        if not self._pieces:
            if self._broken:
                raise BodyTruncatedError(7)
            return b""
        piece = self._pieces.pop(0)
        self._buffer[: len(piece)] = piece
        return memoryview(self._buffer)[: len(piece)]


def cut(data: bytes, where: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(at % (len(data) + 1) for at in where)})
    return [data[a:b] for a, b in pairwise(edges)]


@dataclass
class Sent:
    """A request as a client sends it; tests change fields to break it."""

    body: bytes
    mode: str
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[int] = field(default_factory=list)
    length: int | None = -1
    policy: PayloadPolicy = field(default_factory=PayloadPolicy)
    wanted: frozenset[Algorithm] = frozenset()
    broken: bool = False
    secure: bool = False

    async def receive(self) -> tuple[bytes, BodySums]:
        length = len(self.body) if self.length == -1 else self.length
        reader = PiecesBody(cut(self.body, self.pieces), length, self.broken)
        headers = Headers(self.headers.items())
        request = Request("PUT", b"/r/main/k", b"", headers, reader, secure=self.secure)
        signed = SignedRequest(
            "AKIA", SCOPE[:8], "us-east-1", "s3", STAMP, ("host",), SEED, self.mode,
            request=request, headers=headers,
        )  # fmt: skip
        payload = open_payload(request, signed, KEY, self.policy, self.wanted)
        written = bytearray()

        async def write(part: memoryview) -> None:
            written.extend(part)

        sums = await payload.pump(write)
        assert sums.size == len(written)
        return bytes(written), sums

    async def code(self) -> str:
        with pytest.raises(S3Error) as caught:
            await self.receive()
        return caught.value.code


def sign(kind: str, previous: str, *hashes: str) -> str:
    text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", STAMP, SCOPE, previous, *hashes])
    return hmac.digest(KEY, text.encode(), "sha256").hex()


def signed_body(parts: list[bytes], trailer: str = "") -> bytes:
    out, previous = b"", SEED
    for part in [*parts, b""]:
        previous = sign("PAYLOAD", previous, EMPTY, hashlib.sha256(part).hexdigest())
        out += b"%x;chunk-signature=%b\r\n" % (len(part), previous.encode())
        out += part + b"\r\n" if part else b""
    if trailer:
        digest = hashlib.sha256(f"{trailer}\n".encode()).hexdigest()
        signature = sign("TRAILER", previous, digest)
        out += f"{trailer}\r\nx-amz-trailer-signature:{signature}\r\n".encode()
    return out + b"\r\n"


def unsigned_body(parts: list[bytes], trailer: str = "") -> bytes:
    out = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n"
    return out + (f"{trailer}\r\n".encode() if trailer else b"") + b"\r\n"


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def crc32(data: bytes) -> str:
    return b64(zlib.crc32(data).to_bytes(4, "big"))


def sent(mode: str, parts: list[bytes], pieces: list[int]) -> Sent:
    """Returns a valid upload of `parts` in any of the modes."""
    data = b"".join(parts)
    trailer = f"x-amz-checksum-crc32:{crc32(data)}"
    streaming = {"x-amz-decoded-content-length": str(len(data))}
    trailing = {**streaming, "x-amz-trailer": "x-amz-checksum-crc32"}
    match mode:
        case "hash":
            return Sent(data, hashlib.sha256(data).hexdigest(), pieces=pieces)
        case "UNSIGNED-PAYLOAD":
            return Sent(data, mode, pieces=pieces)
        case "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
            return Sent(unsigned_body(parts, trailer), mode, trailing, pieces)
        case "STREAMING-AWS4-HMAC-SHA256-PAYLOAD":
            return Sent(signed_body(parts), mode, streaming, pieces)
        case _:
            return Sent(signed_body(parts, trailer), mode, trailing, pieces)


MODES = ["hash", "UNSIGNED-PAYLOAD", UNSIGNED_TRAILER, SIGNED, SIGNED_TRAILER]
STREAMING = MODES[2:]
parts_st = st.lists(st.binary(min_size=1, max_size=60), max_size=5)
cuts_st = st.lists(st.integers(0, 5000), max_size=10)


@pytest.mark.parametrize("mode", MODES)
@given(parts=parts_st, pieces=cuts_st)
async def test_every_mode_yields_the_bytes_sent(
    mode: str, parts: list[bytes], pieces: list[int]
) -> None:
    data, sums = await sent(mode, parts, pieces).receive()
    assert data == b"".join(parts)
    assert sums.md5 == hashlib.md5(data).digest()
    if mode.endswith("TRAILER"):
        assert [(each.algorithm, each.value) for each in sums.checksums] == [("CRC32", crc32(data))]


@pytest.mark.parametrize("mode", ["hash", *STREAMING])
@given(parts=parts_st.filter(bool), pieces=cuts_st, drop=st.integers(1, 5000))
async def test_a_truncated_body_never_passes(
    mode: str, parts: list[bytes], pieces: list[int], drop: int
) -> None:
    short = sent(mode, parts, pieces)
    keep = len(short.body) - 1 - drop % len(short.body)
    # Both ways to be short: an announced length of the shorter body, and a chunked one.
    short.body = short.body[:keep]
    assert await short.code() in {
        "IncompleteBody",
        "XAmzContentSHA256Mismatch",
        "SignatureDoesNotMatch",
    }


@pytest.mark.parametrize("mode", ["hash", SIGNED, SIGNED_TRAILER])
@given(parts=parts_st.filter(bool), at=st.integers(0, 5000), flip=st.integers(1, 255))
async def test_a_changed_byte_never_passes_where_the_body_is_signed(
    mode: str, parts: list[bytes], at: int, flip: int
) -> None:
    right = sent(mode, parts, [])
    body = bytearray(right.body)
    body[at % len(body)] ^= flip
    changed = sent(mode, parts, [])
    changed.body = bytes(body)
    try:
        data, _ = await changed.receive()
    except S3Error:
        return
    # Only the spelling of the framing may differ (hex case, blanks of a trailer).
    assert data == b"".join(parts)


@pytest.mark.parametrize("mode", MODES)
async def test_large_pieces_are_hashed_in_a_thread_with_the_same_outcome(mode: str) -> None:
    parts = [bytes([i]) * 300_000 for i in range(3)]
    data, sums = await sent(mode, parts, []).receive()
    assert hashlib.md5(data).digest() == sums.md5 == hashlib.md5(b"".join(parts)).digest()


async def test_a_failing_writer_ends_the_upload_although_a_thread_is_hashing() -> None:
    upload = sent("hash", [b"x" * 600_000], [])
    request = Request("PUT", b"/", b"", Headers([]), PiecesBody([upload.body], len(upload.body)))
    signed = SignedRequest(
        "A", "", "", "s3", STAMP, (), SEED, upload.mode,
        request=request, headers=request.headers,
    )  # fmt: skip

    async def write(part: memoryview) -> None:
        raise OSError(f"disk full at {len(part)}")

    with pytest.raises(OSError, match="disk full"):
        await open_payload(request, signed, KEY, PayloadPolicy()).pump(write)


@pytest.mark.parametrize("claimed", ["right", "wrong"])
@pytest.mark.parametrize("mode", ["hash", SIGNED])
async def test_a_body_that_a_thread_receives_is_verified_like_any_other(
    claimed: str, mode: str
) -> None:
    """aws-chunked stays with the event loop."""
    body = bytes(range(256)) * 4096
    upload = sent(mode, [body], [])
    stated = upload.mode if claimed == "right" or mode != "hash" else "00" * 32
    server, client = socket.socketpair()
    server.setblocking(False)

    def send() -> None:
        with contextlib.suppress(OSError):  # nobody receives it
            client.sendall(upload.body[100_000:])

    sender = threading.Thread(target=send)
    received = []

    class SocketBody(PiecesBody):
        @contextmanager
        def by_thread(self) -> Iterator[Receiver | None]:
            left = len(upload.body) - 100_000
            held = memoryview(bytearray(10_000))
            received.append(Receiver(server.fileno(), held, 0, left, Patience(1, 10_000)))
            yield received[-1]

    reader = SocketBody([upload.body[:100_000]], len(upload.body))
    request = Request("PUT", b"/", b"", Headers(upload.headers.items()), reader)
    signed = SignedRequest(
        "A", SCOPE[:8], "us-east-1", "s3", STAMP, (), SEED, stated,
        request=request, headers=request.headers,
    )  # fmt: skip
    written = bytearray()

    async def write(part: memoryview) -> None:
        written.extend(part)

    async def thread(work: Callable[[Append, int], None]) -> None:
        await asyncio.to_thread(work, written.extend, 1 << 20)

    sender.start()
    try:
        pumped = open_payload(request, signed, KEY, PayloadPolicy()).pump(write, thread)
        if mode == SIGNED:
            with pytest.raises(S3Error, match="last chunk"):  # `PiecesBody` has no more
                await pumped
            assert not received
        elif claimed == "right":
            sums = await pumped
            assert (bytes(written), sums.size) == (body, len(body))
            assert sums.md5 == hashlib.md5(body).digest()
        else:
            with pytest.raises(S3Error) as caught:
                await pumped
            assert caught.value.code == "XAmzContentSHA256Mismatch"
    finally:
        server.close()
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        sender.join()
        client.close()


@pytest.mark.parametrize("writes_on", [True, False])
async def test_a_cancelled_upload_waits_for_the_thread_that_reads_its_buffer(
    writes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits however often it is cancelled, in the writer or after it."""
    upload = sent("hash", [b"x" * 600_000], [])
    request = Request("PUT", b"/", b"", Headers([]), PiecesBody([upload.body], len(upload.body)))
    signed = SignedRequest(
        "A", "", "", "s3", STAMP, (), SEED, upload.mode,
        request=request, headers=request.headers,
    )  # fmt: skip
    payload = open_payload(request, signed, KEY, PayloadPolicy())
    runs, may_end = threading.Event(), threading.Event()

    def read(_events: object) -> None:
        runs.set()
        assert may_end.wait(10)

    monkeypatch.setattr(Payload, "_hash", lambda _self, events: read(events))

    async def write(_part: memoryview) -> None:
        if writes_on:
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(payload.pump(write))
        await asyncio.to_thread(runs.wait, 10)
        for _ in range(2):
            task.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
            assert not task.done()
        may_end.set()
    assert task.cancelled()


async def test_chunks_cannot_be_swapped_dropped_or_repeated() -> None:
    parts = [b"a" * 10, b"b" * 10, b"c" * 10]
    body = signed_body(parts)
    size = (len(body) - len(b"0;chunk-signature=" + SEED.encode() + b"\r\n\r\n")) // 3
    chunks = [body[i * size : (i + 1) * size] for i in range(3)]
    last = body[3 * size :]
    for order in ([1, 0, 2], [0, 2], [0, 1, 2, 2], [0, 1]):
        wrong = sent(SIGNED, parts, [])
        wrong.body = b"".join(chunks[i] for i in order) + last
        wrong.headers["x-amz-decoded-content-length"] = str(10 * len(order))
        assert await wrong.code() == "SignatureDoesNotMatch"


@pytest.mark.parametrize("mode", STREAMING)
@pytest.mark.parametrize("off", [-1, 1])
async def test_decoded_length_must_be_right(mode: str, off: int) -> None:
    wrong = sent(mode, [b"hello"], [])
    wrong.headers["x-amz-decoded-content-length"] = str(5 + off)
    assert await wrong.code() == "IncompleteBody"


@pytest.mark.parametrize("mode", STREAMING)
async def test_bytes_behind_the_last_chunk_are_refused(mode: str) -> None:
    wrong = sent(mode, [b"hello"], [])
    wrong.body += b"x"
    assert await wrong.code() == "IncompleteBody"


@pytest.mark.parametrize("mode", STREAMING)
@pytest.mark.parametrize("length", [None, "", "abc", "5x", "-5", "5,5", "\u00b2", "1" * 19])
async def test_decoded_length_is_required(mode: str, length: str | None) -> None:
    wrong = sent(mode, [b"hello"], [])
    del wrong.headers["x-amz-decoded-content-length"]
    if length is not None:
        wrong.headers["x-amz-decoded-content-length"] = length
    assert await wrong.code() == "MissingContentLength"


async def is_incomplete(upload: Sent) -> None:
    """Checks that a body is refused however it arrives; in one piece, with S3's sentence for broken chunks."""
    upload.pieces = list(range(len(upload.body)))
    assert await upload.code() == "IncompleteBody"
    upload.pieces = []
    with pytest.raises(S3Error) as caught:
        await upload.receive()
    assert caught.value.code == "IncompleteBody"
    assert caught.value.message.startswith("The request body terminated unexpectedly")


CRC_LINE = f"x-amz-checksum-crc32:{crc32(b'dummy data')}".encode()


@pytest.mark.parametrize(
    "body",
    [
        b"A\ndummy data\r\n0\r\n\r\n",
        b"A\r\ndummy data0\r\n\r\n",
        b"A\r\nXYZ\r\ndummy data\r\n0\r\n\r\n",
        b"B\r\ndummy data\r\n0\r\n\r\n",
        b"A\r\ndummy data\r\n0\r\n",
        b"A\r\ndummy data\r\n0\r\n" + CRC_LINE + b"\r\n",
        b"A\r\n",
        b"A\r\nA\r\ndummy data\r\n0\r\n\r\n",
        b"size\r\ndummy data\r\n0\r\n" + CRC_LINE + b"\r\n\r\n",
        b"A\r\ndummy data\r\nJ\r\n" + CRC_LINE + b"\r\n\r\n",
        pytest.param(b"A" * 2000 + b"\r\n", id="long"),
    ],
)
async def test_broken_framing_is_an_incomplete_body(body: bytes) -> None:
    upload = sent(UNSIGNED_TRAILER, [b"dummy data"], [])
    upload.body = body
    await is_incomplete(upload)


@pytest.mark.parametrize(
    ("start", "end", "instead"),
    [
        (0, 2, b"j"),
        (2, 3, b":"),
        (3, 19, b""),  # without `chunk-signature=`
        (19, 24, b""),
        (82, 83, b"\xff"),
        (83, 85, b""),
        (83, 85, b"dd"),
        (101, 103, b""),
        (101, 103, b"something"),
        (185, 187, b"cc"),
        (185, 186, b"k"),
    ],
)
@pytest.mark.parametrize("mode", [SIGNED, SIGNED_TRAILER])
async def test_broken_framing_of_signed_chunks_is_an_incomplete_body(
    mode: str, start: int, end: int, instead: bytes
) -> None:
    upload = sent(mode, [b"sixteen bytes..."], [])
    assert upload.body[101:103] + upload.body[185:187] == b"\r\n" * 2
    upload.body = upload.body[:start] + instead + upload.body[end:]
    await is_incomplete(upload)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\r\nx-amz-trailer-signature", b"\rbcdx-amz-trailer-signature"),
        (b"-trailer-signature", b"-trailer-sign"),
        (b"signature:", b"signature:a"),
        (b"\r\n\r\n", b"\r\npp"),
        (b"\r\n\r\n", b"erty"),
    ],
)
async def test_a_signed_trailer_that_does_not_end_is_an_incomplete_body(
    old: bytes, new: bytes
) -> None:
    upload = sent(SIGNED_TRAILER, [b"hello"], [])
    head, found, tail = upload.body.rpartition(old)
    assert found
    upload.body = head + new + tail
    await is_incomplete(upload)


async def test_a_wrong_signature_of_trailers_is_told_as_such() -> None:
    upload = sent(SIGNED_TRAILER, [b"hello"], [])
    for wrong in (b"0" * 64, b"<" * 64):
        upload.body = upload.body[: -64 - 4] + wrong + b"\r\n\r\n"
        assert await upload.code() == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    "trailer",
    [
        "",
        ":AAAAAA==",
        "x-amz-checksum-crc32",
        f"invalid:{crc32(b'hello')}",
        f"x-amz-checksum-sha1:{b64(hashlib.sha1(b'hello').digest())}",
        f"x-amz-checksum-crc32:{crc32(b'hello')}\r\nx-amz-checksum-crc32:{crc32(b'hello')}",
        f"x-amz-checksum-crc32:{crc32(b'hello')}\r\na:b",
        pytest.param("a:b\r\n" * 2000, id="many"),
        pytest.param("a" * 2000, id="long"),
    ],
)
@pytest.mark.parametrize("mode", [UNSIGNED_TRAILER, SIGNED_TRAILER])
async def test_other_trailers_than_the_one_announced_are_malformed(mode: str, trailer: str) -> None:
    upload = sent(mode, [b"hello"], [])
    if mode == UNSIGNED_TRAILER:
        upload.body = unsigned_body([b"hello"], trailer)
    else:  # what is not announced is refused, whatever its signature
        end = f"{trailer}\r\nx-amz-trailer-signature:{'0' * 64}\r\n\r\n"
        upload.body = signed_body([b"hello"])[:-2] + end.encode()
    assert await upload.code() == "MalformedTrailerError"
    upload.pieces = list(range(len(upload.body)))
    assert await upload.code() == "MalformedTrailerError"


async def test_chunks_of_any_size_are_accepted() -> None:
    """S3 wants 8 KiB in each but the last; SDKs for JavaScript send one chunk for each piece of a stream."""
    parts = [b"a", b"b" * 8191, b"c"]
    for mode in STREAMING:
        data, _ = await sent(mode, parts, []).receive()
        assert data == b"".join(parts)


async def test_a_trailer_mode_may_come_without_trailers() -> None:
    headers = {"x-amz-decoded-content-length": "5"}
    data, sums = await Sent(unsigned_body([b"hello"]), UNSIGNED_TRAILER, headers).receive()
    assert (data, sums.checksums) == (b"hello", ())
    data, _ = await Sent(signed_body([b"hello"]), SIGNED_TRAILER, headers).receive()
    assert data == b"hello"


async def test_a_trailer_that_was_not_announced_is_refused() -> None:
    upload = sent(UNSIGNED_TRAILER, [b"hello"], [])
    del upload.headers["x-amz-trailer"]
    assert await upload.code() == "MalformedTrailerError"
    upload = sent(UNSIGNED_TRAILER, [b"hello"], [])
    upload.headers["x-amz-trailer"] = "x-amz-checksum-sha1"
    assert await upload.code() == "MalformedTrailerError"


async def test_an_announced_trailer_must_come() -> None:
    upload = sent(UNSIGNED_TRAILER, [b"hello"], [])
    upload.body = unsigned_body([b"hello"])
    assert await upload.code() == "MalformedTrailerError"


async def test_a_wrong_trailer_checksum_is_a_bad_digest() -> None:
    upload = sent(UNSIGNED_TRAILER, [b"hello"], [])
    upload.body = unsigned_body([b"hello"], f"x-amz-checksum-crc32:{crc32(b'other')}")
    assert await upload.code() == "BadDigest"
    upload.body = unsigned_body([b"hello"], "x-amz-checksum-crc32:!")
    assert await upload.code() == "InvalidRequest"


async def test_a_signed_trailer_with_awss_own_odd_line_ends_verifies() -> None:
    upload = sent(SIGNED_TRAILER, [b"hello"], [])
    upload.body = upload.body.replace(
        b"\r\nx-amz-trailer-signature", b"\n\r\nx-amz-trailer-signature"
    )
    data, _ = await upload.receive()
    assert data == b"hello"


async def test_a_chunk_without_signature_is_refused_where_chunks_are_signed() -> None:
    upload = sent(SIGNED, [b"hello"], [])
    upload.body = unsigned_body([b"hello"])
    assert await upload.code() == "IncompleteBody"


async def test_a_broken_connection_is_an_incomplete_body() -> None:
    assert await Sent(b"abc", "UNSIGNED-PAYLOAD", length=9, broken=True).code() == "IncompleteBody"


async def test_unsigned_bodies_can_be_restricted_to_tls() -> None:
    strict = PayloadPolicy(unsigned_over_http=False)
    assert await Sent(b"a", "UNSIGNED-PAYLOAD", policy=strict).code() == "AccessDenied"
    upload = sent(UNSIGNED_TRAILER, [b"a"], [])
    upload.policy = strict
    assert await upload.code() == "AccessDenied"
    data, _ = await Sent(b"a", "UNSIGNED-PAYLOAD", policy=strict, secure=True).receive()
    assert data == b"a"
    upload = sent(SIGNED, [b"a"], [])
    upload.policy = strict
    await upload.receive()


async def test_objects_above_the_limit_are_refused_before_and_while_they_come() -> None:
    small = PayloadPolicy(object_bytes_max=4)
    assert await Sent(b"12345", "UNSIGNED-PAYLOAD", policy=small).code() == "EntityTooLarge"
    endless = Sent(b"12345", "UNSIGNED-PAYLOAD", policy=small, length=None)
    assert await endless.code() == "EntityTooLarge"


async def test_read_all_stops_at_its_limit() -> None:
    for length in (6, None):
        request = Request("POST", b"/", b"", Headers([]), PiecesBody([b"123456"], length))
        signed = SignedRequest(
            "A", "", "", "s3", STAMP, (), SEED, "UNSIGNED-PAYLOAD",
            request=request, headers=request.headers,
        )  # fmt: skip
        payload = open_payload(request, signed, KEY, PayloadPolicy())
        with pytest.raises(S3Error) as caught:
            await payload.read_all(5)
        assert caught.value.code == "MaxMessageLengthExceeded"


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        ("crc32", lambda data: zlib.crc32(data).to_bytes(4, "big")),
        ("crc32c", lambda data: crt.crc32c(data).to_bytes(4, "big")),
        ("crc64nvme", lambda data: crt.crc64nvme(data).to_bytes(8, "big")),
        ("sha1", lambda data: hashlib.sha1(data).digest()),
        ("sha256", lambda data: hashlib.sha256(data).digest()),
    ],
)
async def test_each_algorithm_is_verified_as_a_header(algorithm: str, digest: object) -> None:
    assert callable(digest)
    for mode in ("UNSIGNED-PAYLOAD", hashlib.sha256(b"hello").hexdigest()):
        name = f"x-amz-checksum-{algorithm}"
        headers = {name: b64(digest(b"hello")), "x-amz-sdk-checksum-algorithm": algorithm.upper()}
        _, sums = await Sent(b"hello", mode, headers).receive()
        assert [(c.algorithm, c.value) for c in sums.checksums] == [
            (algorithm.upper(), b64(digest(b"hello")))
        ]
        wrong = Sent(b"hello", mode, {name: b64(digest(b"other"))})
        assert await wrong.code() == "BadDigest"


async def test_content_md5_is_verified() -> None:
    right = {"content-md5": b64(hashlib.md5(b"hello").digest())}
    await Sent(b"hello", "UNSIGNED-PAYLOAD", right).receive()
    assert await Sent(b"other", "UNSIGNED-PAYLOAD", right).code() == "BadDigest"
    for bad in ("", "xyz", b64(b"short")):
        assert await Sent(b"", "UNSIGNED-PAYLOAD", {"content-md5": bad}).code() == "InvalidDigest"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-amz-checksum-crc32": "AAAA"},
        {"x-amz-checksum-crc32": "not base64!"},
        {"x-amz-checksum-md4": "AAAA"},
        {"x-amz-checksum-crc32": crc32(b""), "x-amz-checksum-sha1": b64(bytes(20))},
        {"x-amz-sdk-checksum-algorithm": "CRC32"},
        {"x-amz-sdk-checksum-algorithm": "CRC31", "x-amz-checksum-crc32": crc32(b"")},
        {"x-amz-sdk-checksum-algorithm": "SHA1", "x-amz-checksum-crc32": crc32(b"")},
        {"x-amz-trailer": "x-amz-checksum-crc32"},
        {"x-amz-trailer": "x-amz-meta-a"},
    ],
)
async def test_odd_checksum_headers_are_refused(headers: dict[str, str]) -> None:
    assert await Sent(b"", "UNSIGNED-PAYLOAD", headers).code() == "InvalidRequest"


@pytest.mark.parametrize("mode", ["hash", "UNSIGNED-PAYLOAD", SIGNED])
async def test_a_trailer_is_announced_in_vain_beside_a_checksum_in_a_header(mode: str) -> None:
    """The AWS SDK for Java 2 sends this over http when the caller gives algorithm and checksum."""
    about = {
        "x-amz-sdk-checksum-algorithm": "CRC32",
        "x-amz-trailer": "x-amz-checksum-crc32",
        "x-amz-checksum-crc32": crc32(b"hello"),
    }
    upload = sent(mode, [b"hello"], [])
    upload.headers |= about
    data, sums = await upload.receive()
    assert (data, sums.checksums[0].value) == (b"hello", crc32(b"hello"))
    wrong = sent(mode, [b"hello"], [])
    wrong.headers |= about | {"x-amz-checksum-crc32": crc32(b"other")}
    assert await wrong.code() == "BadDigest"


@pytest.mark.parametrize("mode", [UNSIGNED_TRAILER, SIGNED_TRAILER])
async def test_a_checksum_in_a_header_and_in_a_trailer_is_refused(mode: str) -> None:
    upload = sent(mode, [b"hello"], [])
    upload.headers["x-amz-checksum-crc32"] = crc32(b"hello")
    assert await upload.code() == "InvalidRequest"


async def test_a_trailer_beside_a_header_that_has_the_checksum_is_not_read() -> None:
    """A mode without trailers ends with the last chunk, whatever was announced."""
    trailer = f"x-amz-checksum-crc32:{crc32(b'hello')}"
    upload = sent(SIGNED, [b"hello"], [])
    upload.headers |= {
        "x-amz-trailer": "x-amz-checksum-crc32",
        "x-amz-checksum-crc32": crc32(b"hello"),
    }
    upload.body = upload.body[:-2] + trailer.encode() + b"\r\n\r\n"
    assert await upload.code() == "MalformedTrailerError"


async def test_wanted_checksums_are_computed_beside_those_sent() -> None:
    wanted = frozenset({Algorithm.CRC32})
    _, sums = await Sent(b"hello", "UNSIGNED-PAYLOAD", wanted=wanted).receive()
    assert [(c.algorithm, c.value) for c in sums.checksums] == [("CRC32", crc32(b"hello"))]


@pytest.mark.parametrize(
    ("sent_value", "stored"),
    [
        ("aws-chunked", ""),
        ("aws-chunked,gzip", "gzip"),
        ("aws-chunked, gzip", "gzip"),
        ("gzip, AWS-Chunked", "gzip"),
        ("gzip", "gzip"),
        ("", ""),
        ("gzip, aws-chunked, br", "gzip,br"),
    ],
)
def test_content_encoding_is_stored_without_aws_chunked(sent_value: str, stored: str) -> None:
    assert stored_content_encoding(sent_value) == stored


async def test_a_collected_body_of_tiny_chunks_takes_the_memory_of_its_bytes() -> None:
    """A list of chunks of one byte each would take fifty times as much."""
    count = 20_000
    body = b"1\r\nx\r\n" * count + b"0\r\n\r\n"
    pieces = [body[at : at + 600] for at in range(0, len(body), 600)]
    reader = PiecesBody(pieces, len(body))
    request = Request("PUT", b"/k", b"", Headers([]), reader)
    chunked = AwsChunked(None)
    payload = Payload(request, count, chunked, Promised(NO_CLAIMS), PayloadPolicy())
    tracemalloc.start()
    try:
        whole, _ = await payload.read_all(count)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert whole == b"x" * count
    assert peak < 20 * count


async def test_other_tasks_run_while_tiny_chunks_are_received() -> None:
    count, turns = 5000, 0
    body = b"1\r\nx\r\n" * count + b"0\r\n\r\n"
    request = Request("PUT", b"/k", b"", Headers([]), BodyReader(len(body), body))
    chunked = AwsChunked(None)
    payload = Payload(request, count, chunked, Promised(NO_CLAIMS), PayloadPolicy())
    written = bytearray()

    async def write(part: memoryview) -> None:
        written.extend(part)

    async def neighbour() -> None:
        nonlocal turns
        while len(written) < count:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(neighbour())
        sums = await payload.pump(write)
    assert (bytes(written), sums.size) == (b"x" * count, count)
    assert turns >= 2 * count // EVENTS_MAX
