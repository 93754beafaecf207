"""Decodes the bytes of a request body into the verified bytes of an object.

x-amz-content-sha256 gives the form: the hash of the body, no hash, or one of three forms of aws-chunked. In
aws-chunked the body is framed once more inside HTTP's own framing, with or without a signature per chunk and
with or without trailers. In every form the body is verified only at its end. Pieces are handed on as they
arrive, and the caller must discard them if the end does not confirm them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from tarn.block.port import Append
from tarn.objects.checksums import NO_ALGORITHMS, Algorithm, BodySums
from tarn.objects.incoming import THREAD_BYTES, Write, WriteByThread, hash_and_write
from tarn_gateway.bodies.checksums import BodyDigests, Promised, checksum_header, parse_claims
from tarn_gateway.http import BodyError, BodyMalformedError, Headers, Request
from tarn_gateway.http.chunked import ChunkedDecoder, ChunkHead, Event
from tarn_gateway.http.receiver import Receiver
from tarn_gateway.requests.object_headers import stored_content_encoding
from tarn_gateway.s3error import S3Error, broken_chunks, from_tarn_error
from tarn_gateway.signing.chunks import ChunkSignatures
from tarn_gateway.signing.sigv4 import PAYLOAD_MODES, UNSIGNED_PAYLOAD, SignedRequest

__all__ = ["Payload", "PayloadPolicy", "open_payload", "stored_content_encoding"]

LENGTH_DIGITS_MAX: Final = 18
_QUICK_BYTES: Final = 64 * 1024
"""A piece of this size shows that its client sends quickly."""
_TRAILER_SIGNATURE: Final = "x-amz-trailer-signature"


@dataclass(frozen=True, slots=True)
class PayloadPolicy:
    """The bodies that are accepted.

    Attributes:
        object_bytes_max: maximum size after decoding; more is EntityTooLarge.
        unsigned_over_http: whether UNSIGNED-PAYLOAD and the unsigned trailer mode are accepted without
            TLS (pyarrow and presigned URLs need it on http). An attacker between client and server could
            then change the body, because the trailer's checksum is no secret.
    """

    object_bytes_max: int = 5 * 1024**3
    unsigned_over_http: bool = True


class AwsChunked:
    """Removes aws-chunked framing and verifies it.

    Args:
        signatures: verifies chunks; None in the unsigned mode.
        trailer: name of the one that was announced, if any. A mode with trailers may be used without one.
    """

    __slots__ = ("_decoder", "_signatures", "_trailer")

    def __init__(self, signatures: ChunkSignatures | None, trailer: str | None = None) -> None:
        signed_trailer = trailer is not None and signatures is not None
        last = _TRAILER_SIGNATURE.encode() if signed_trailer else None
        self._decoder = ChunkedDecoder(last_trailer=last)
        self._signatures = signatures
        self._trailer = trailer

    def feed(self, data: memoryview) -> tuple[list[Event], int]:
        """Returns events of the next bytes, and of how many bytes; see `ChunkedDecoder.feed`.

        Raises:
            S3Error: IncompleteBody for broken framing and for bytes after the end; MalformedTrailerError for broken
                framing of the trailers.
        """
        try:
            events, used = self._decoder.feed(data)
        except BodyMalformedError as error:
            if self._decoder.in_trailers:
                raise S3Error("MalformedTrailerError", f"aws-chunked: {error.detail}.") from None
            raise broken_chunks(error.detail) from None
        if used < len(data) and self._decoder.done:
            raise broken_chunks("bytes follow the last chunk")
        return events, used

    def verify(self, events: Sequence[Event]) -> None:
        """Verifies events by the signature chain; may run in a thread.

        Raises:
            S3Error: SignatureDoesNotMatch for a wrong signature; IncompleteBody for a chunk without one.
        """
        if self._signatures is None:
            return
        for event in events:
            if isinstance(event, ChunkHead):
                self._signatures.begin(event.extension)
            else:
                self._signatures.update(event)

    def finish(self) -> str:
        """Returns the value of the announced trailer, empty without one; call it after the end of the body.

        Raises:
            S3Error: IncompleteBody without the last chunk; MalformedTrailerError for trailers that are malformed or
                not those announced; SignatureDoesNotMatch if their signature is wrong.
        """
        if not self._decoder.done:
            raise broken_chunks("the last chunk or its end is missing")
        lines = [_split_trailer(line) for line in self._decoder.trailers]
        signed = [] if self._signatures is None or self._trailer is None else [_TRAILER_SIGNATURE]
        announced = [] if self._trailer is None else [self._trailer]
        if [name for name, _ in lines] != announced + signed:
            told = f"x-amz-trailer announced {self._trailer or 'none'}; send that one and no other."
            raise S3Error("MalformedTrailerError", told)
        if self._signatures is not None:
            self._signatures.finish()
            if signed:
                self._signatures.check_trailers(lines[:-1], lines[-1][1])
        return lines[0][1] if lines else ""


def _split_trailer(line: bytes) -> tuple[str, str]:
    name, colon, value = line.decode("latin-1").partition(":")
    if not colon or not name.strip():
        raise S3Error("MalformedTrailerError", "A trailer is not of the form name:value.")
    return name.strip().lower(), value.strip()


class Payload:
    """One body being received. Read it once, with `pump` or with `read_all`.

    Attributes:
        size: announced bytes of the object; None if the client did not announce them (plain chunked).
        algorithm: of the checksum that the client sends in a header or a trailer; None if it sends none.
    """

    __slots__ = ("_chunked", "_digests", "_policy", "_promised", "_request", "algorithm", "size")

    def __init__(
        self,
        request: Request,
        size: int | None,
        chunked: AwsChunked | None,
        promised: Promised,
        policy: PayloadPolicy,
    ) -> None:
        self.size = size
        self.algorithm = promised.claims.algorithm
        self._request = request
        self._chunked = chunked
        self._promised = promised
        self._digests: BodyDigests | None = None
        self._policy = policy

    def require_rate(self, bytes_per_second: int) -> None:
        """Sets the rate at which the client must send this body; see `BodyReader.rate_min_bytes`."""
        self._request.body.rate_min_bytes = bytes_per_second

    async def pump(self, write: Write, by_thread: WriteByThread | None = None) -> BodySums:
        """Reads the body to its end, passes every piece to `write`, and verifies all claims of the client.

        With `by_thread`, a thread receives, hashes and writes a large body, as long as its client sends quickly.

        Raises:
            S3Error: BadDigest, XAmzContentSHA256Mismatch, SignatureDoesNotMatch (of a chunk),
                IncompleteBody, RequestTimeout, EntityTooLarge, InvalidRequest, MalformedTrailerError.
                The caller must then discard all bytes written.
            Exception: an exception of `write`.
        """
        while piece := await self._read():
            # A client that is slow to send a first piece is left to the event loop, and so is aws-chunked.
            if by_thread is None or self._chunked is not None or len(piece) < _QUICK_BYTES:
                await self._take(piece, write)
                continue
            with self._request.body.by_thread() as receiver:
                if receiver is None:
                    await self._take(piece, write)
                else:
                    await by_thread(partial(self._receive, piece, receiver))
        return self._finish()

    def _receive(
        self, piece: bytes | memoryview, receiver: Receiver, append: Append, most: int
    ) -> None:
        """Hashes and writes a piece and what follows it; runs in a thread."""
        for each in chain((memoryview(piece),), receiver.pieces(most - len(piece))):
            self.digests.update(each)
            append(each)

    async def _take(self, piece: bytes | memoryview, write: Write) -> None:
        rest = memoryview(piece)
        while rest:
            events, used = self._events(rest)
            await self._take_events(events, used, write)
            rest = rest[used:]
            if rest:
                await asyncio.sleep(0)  # a piece of many small chunks: lets other requests run

    async def _take_events(self, events: Sequence[Event], size: int, write: Write) -> None:
        slices = [event for event in events if isinstance(event, memoryview)]
        self._check_size(sum(map(len, slices)))
        if size < THREAD_BYTES:
            self._hash(events)
            for part in slices:
                await write(part)
        else:
            await hash_and_write(partial(self._hash, events), slices, write)

    async def read_all(self, limit: int) -> tuple[bytes, BodySums]:
        """Returns the whole verified body in memory, for XML documents and small objects.

        Raises:
            S3Error: as `pump`, and MaxMessageLengthExceeded above `limit`.
        """
        if self.size is not None and self.size > limit:
            raise _too_long(limit)
        piece = await self._read()
        if self._chunked is None and len(piece) == self.size and len(piece) < THREAD_BYTES:
            # Most small objects arrive in one piece, as large as announced: only the digests are left to check.
            return bytes(piece), self._promised.sums_of(piece)
        whole = bytearray()  # a list of pieces would take fifty bytes for each chunk of one byte

        async def keep(part: memoryview) -> None:
            if len(whole) + len(part) > limit:
                raise _too_long(limit)
            whole.extend(part)

        if piece:
            await self._take(piece, keep)
        sums = await self.pump(keep)
        return bytes(whole), sums

    async def _read(self) -> bytes | memoryview:
        try:
            return await self._request.body.read()
        except BodyError as error:
            raise from_tarn_error(error) from error

    def _events(self, piece: memoryview) -> tuple[Sequence[Event], int]:
        return ([piece], len(piece)) if self._chunked is None else self._chunked.feed(piece)

    @property
    def digests(self) -> BodyDigests:
        """The digests of what was read so far."""
        if self._digests is None:
            self._digests = self._promised.digests()
        return self._digests

    def _check_size(self, more: int) -> None:
        """Checks the size with `more` received bytes of the object that are not hashed yet."""
        size = self.digests.size + more
        if self.size is not None and size > self.size:
            text = f"The body is longer than the {self.size} bytes announced."
            raise S3Error("IncompleteBody", text)
        if size > self._policy.object_bytes_max:
            raise _too_large(self._policy)

    def _hash(self, events: Sequence[Event]) -> None:
        if self._chunked is not None:
            self._chunked.verify(events)
        for event in events:
            if isinstance(event, memoryview):
                self.digests.update(event)

    def _finish(self) -> BodySums:
        trailer = self._chunked.finish() if self._chunked is not None else ""
        if self.size is not None and self.digests.size != self.size:
            text = f"{self.digests.size} of the {self.size} bytes announced were received."
            raise S3Error("IncompleteBody", text)
        return self.digests.finish(trailer)


def _too_large(policy: PayloadPolicy) -> S3Error:
    return S3Error("EntityTooLarge", MaxSizeAllowed=str(policy.object_bytes_max))


def _too_long(limit: int) -> S3Error:
    return S3Error("MaxMessageLengthExceeded", MaxMessageLengthBytes=str(limit))


def _decoded_length(headers: Headers) -> int:
    text = headers.text("x-amz-decoded-content-length")
    if not (text.isascii() and text.isdigit()) or len(text) > LENGTH_DIGITS_MAX:
        told = "An aws-chunked body needs x-amz-decoded-content-length, the bytes of the object."
        raise S3Error("MissingContentLength", told)
    return int(text)


def open_payload(
    request: Request,
    signed: SignedRequest,
    signing_key: bytes,
    policy: PayloadPolicy,
    wanted: frozenset[Algorithm] = NO_ALGORITHMS,
) -> Payload:
    """Reads the headers that describe the body; reads nothing of the body yet.

    Args:
        request: verified already.
        signed: its authorization.
        signing_key: the key that verified it; it also verifies the chunks.
        policy: the bodies that are accepted.
        wanted: checksums to compute even if the client sent none (the algorithm of a multipart upload).

    Raises:
        S3Error: InvalidDigest, InvalidRequest, EntityTooLarge, MissingContentLength, AccessDenied.
    """
    headers = request.headers
    mode = signed.payload_hash
    claims = parse_claims(headers, has_trailers=mode.endswith("-TRAILER"))
    chunked: AwsChunked | None = None
    sha256: bytes | None = None
    size = request.body.length
    if mode.startswith("STREAMING-"):
        assert mode in PAYLOAD_MODES, "checked with the authorization"
        signatures: ChunkSignatures | None = None
        if mode.startswith("STREAMING-AWS4-"):
            signatures = ChunkSignatures(
                signed.signature, signed.timestamp, signed.scope, signing_key
            )
        trailer = checksum_header(claims.algorithm) if claims.trailer and claims.algorithm else None
        chunked = AwsChunked(signatures, trailer)
        size = _decoded_length(headers)
    elif mode != UNSIGNED_PAYLOAD:
        sha256 = bytes.fromhex(mode)
    unsigned = mode in (UNSIGNED_PAYLOAD, "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    if unsigned and not request.secure and not policy.unsigned_over_http:
        raise S3Error("AccessDenied", "Unsigned payloads are accepted over TLS only.")
    if size is not None and size > policy.object_bytes_max:
        raise _too_large(policy)
    return Payload(request, size, chunked, Promised(claims, sha256, wanted), policy)
