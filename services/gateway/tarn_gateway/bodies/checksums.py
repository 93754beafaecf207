"""Content checksums: compares the checksums that a client claims with those of the received body.

A client claims at most one of S3's five algorithms beside MD5, in a header or in a trailer. A multipart upload may
require one that the client did not send. `tarn.objects.checksums` computes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tarn.core.entry import Checksum
from tarn.core.value import hot_value
from tarn.objects.checksums import (
    NO_ALGORITHMS,
    Algorithm,
    BodySums,
    Digest,
    Digests,
    base64_text,
    checksums_of,
    new_digest,
    parse_checksum,
    parse_digest,
)
from tarn_gateway.http import Headers
from tarn_gateway.s3error import S3Error

__all__ = [
    "BodyDigests",
    "Claims",
    "NO_CLAIMS",
    "NO_VALUES",
    "Promised",
    "checksum_header",
    "checksum_headers",
    "checksum_type",
    "parse_algorithm",
    "parse_claims",
]

PREFIX: Final = "x-amz-checksum-"
NO_VALUES: Final = frozenset(
    {"x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"}
)
"""Headers with the prefix that contain no checksum value."""


def checksum_header(algorithm: str) -> str:
    """Returns the header of an algorithm: `CRC32C` → `x-amz-checksum-crc32c`."""
    return PREFIX + algorithm.lower()


def checksum_headers(checksums: Iterable[Checksum]) -> list[tuple[str, str]]:
    """Returns `x-amz-checksum-*` and their type; nothing without checksums."""
    headers = [(checksum_header(each.algorithm), each.value) for each in checksums]
    if headers:
        composite = any(each.composite for each in checksums)
        headers.append(("x-amz-checksum-type", "COMPOSITE" if composite else "FULL_OBJECT"))
    return headers


_BY_HEADER: Final[Mapping[str, Algorithm]] = {checksum_header(each): each for each in Algorithm}


def parse_algorithm(value: str) -> Algorithm:
    """Returns the algorithm with a name, in any case.

    Raises:
        S3Error: InvalidRequest for a name that S3 does not know.
    """
    try:
        return Algorithm(value.strip().upper())
    except ValueError:
        told = "Checksum algorithm provided is unsupported. Please try again with any of the valid types"
        raise S3Error("InvalidRequest", f"{told}: [{', '.join(Algorithm)}]") from None


def _parse_value(algorithm: Algorithm, value: str, where: str = "header") -> bytes:
    raw = parse_checksum(algorithm, value)
    if raw is None:
        name = checksum_header(algorithm)
        raise S3Error("InvalidRequest", f"Value for {name} {where} is invalid.")
    return raw


def checksum_type(headers: Headers) -> str:
    """Returns `x-amz-checksum-type` in capital letters, empty without one.

    Raises:
        S3Error: InvalidRequest for another type than S3's.
    """
    kind = headers.text("x-amz-checksum-type").upper()
    if kind not in ("", "COMPOSITE", "FULL_OBJECT"):
        raise S3Error("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")
    return kind


@dataclass(frozen=True, slots=True)
class Claims:
    """The checksums that a request's headers claim for its body.

    Attributes:
        md5: of Content-MD5, or None.
        algorithm: the further algorithm that the client uses, or None.
        value: its checksum; None if it is sent in a trailer.
        trailer: whether its checksum is announced as a trailer.
    """

    md5: bytes | None = None
    algorithm: Algorithm | None = None
    value: bytes | None = None
    trailer: bool = False


NO_CLAIMS: Final = Claims()
_LACKING: Final = (
    "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer "
    "headers were found."
)
_OTHER: Final = "Value for x-amz-sdk-checksum-algorithm header is invalid."
SINGLE: Final = (
    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
)


def _parse_trailer(value: str) -> Algorithm:
    name = value.strip().lower()
    algorithm = _BY_HEADER.get(name)
    if algorithm is None:
        told = "The value specified in the x-amz-trailer header is not supported"
        text = f"{told}: {value[:80]!r} is not the name of one checksum header."
        raise S3Error("InvalidRequest", text)
    return algorithm


def _sent(headers: Headers) -> tuple[Algorithm | None, bytes | None]:
    """Returns the algorithm and the checksum of the header `x-amz-checksum-*`."""
    found = headers.with_prefix(PREFIX)
    sent = [pair for pair in found if pair[0] not in NO_VALUES] if found else found
    if not sent:
        return None, None
    if len(sent) > 1:
        raise S3Error("InvalidRequest", SINGLE)
    ((name, text),) = sent
    if name not in _BY_HEADER:
        told = "The algorithm type you specified in x-amz-checksum- header is invalid."
        raise S3Error("InvalidRequest", f"{told} {name[:80]!r} is not known.")
    algorithm = _BY_HEADER[name]
    return algorithm, _parse_value(algorithm, text)


def parse_claims(headers: Headers, *, has_trailers: bool) -> Claims:
    """Reads Content-MD5, `x-amz-checksum-*`, `x-amz-trailer` and `x-amz-sdk-checksum-algorithm`.

    Args:
        headers: of the request.
        has_trailers: whether the payload mode has trailers. In another mode nothing can follow the body, so
            `x-amz-trailer` says nothing beside a checksum in a header: over http the AWS SDK for Java 2 sends both.

    Raises:
        S3Error: InvalidDigest for an invalid Content-MD5; InvalidRequest for an invalid, unknown or
            repeated checksum, and for an algorithm that is named but not sent.
    """
    md5: bytes | None = None
    if (text := headers.get("content-md5")) is not None:
        md5 = parse_digest(text, 16)
        if md5 is None:
            raise S3Error("InvalidDigest")
    algorithm, value = _sent(headers)
    trailer = headers.get("x-amz-trailer")
    if trailer is not None and algorithm is None:
        if not has_trailers:
            raise S3Error("InvalidRequest", "x-amz-trailer needs a payload mode with trailers.")
        algorithm = _parse_trailer(trailer)
    elif trailer is not None and has_trailers:
        raise S3Error("InvalidRequest", f"{SINGLE} One was sent as a header, one as a trailer.")
    named = headers.get("x-amz-sdk-checksum-algorithm")
    if named is not None and parse_algorithm(named) is not algorithm:
        raise S3Error("InvalidRequest", _LACKING if algorithm is None else _OTHER)
    if md5 is None and algorithm is None:
        return NO_CLAIMS
    return Claims(md5, algorithm, value, trailer is not None and has_trailers)


class BodyDigests(Digests):
    """Computes all digests of one body and compares them with the claims.

    Args:
        claims: the request's claims.
        sha256: the body hash that the signature covers, 32 bytes; None in the other modes.
        wanted: algorithms to compute in addition.
    """

    __slots__ = ("_claims", "_sha256", "_signed")

    def __init__(
        self,
        claims: Claims,
        sha256: bytes | None = None,
        wanted: frozenset[Algorithm] = NO_ALGORITHMS,
    ) -> None:
        super().__init__(wanted)
        self._claims = claims
        self._sha256 = sha256
        if claims.algorithm is not None and claims.algorithm not in self._digests:
            self._digests[claims.algorithm] = new_digest(claims.algorithm)
        # One SHA-256 serves both the signature and an x-amz-checksum-sha256.
        self._signed: Digest | None = None
        if sha256 is not None:
            self._signed = self._digests.get(Algorithm.SHA256) or hashlib.sha256()

    def update(self, data: bytes | memoryview) -> None:
        """Adds the next bytes."""
        self.size += len(data)
        self._md5.update(data)
        for digest in self._digests.values():
            digest.update(data)
        if self._signed is not None and Algorithm.SHA256 not in self._digests:
            self._signed.update(data)

    def finish(self, trailer: str = "") -> BodySums:
        """Compares the digests with the claims.

        Args:
            trailer: the value of the announced one, received after the body.

        Raises:
            S3Error: XAmzContentSHA256Mismatch or BadDigest if a digest differs; InvalidRequest for a malformed value.
        """
        claims = self._claims
        if self._signed is not None:
            assert self._sha256 is not None, "a digest is kept only to be compared"
            _check_signed(self._sha256, self._signed.digest())
        md5 = self._md5.digest()
        if claims.md5 is not None and claims.md5 != md5:
            raise _bad_digest("Content-MD5", claims.md5, md5)
        digests = self._digests
        values = {each: digest.digest() for each, digest in digests.items()} if digests else {}
        if claims.algorithm is not None:
            expected = claims.value
            if expected is None:
                expected = _parse_value(claims.algorithm, trailer, "trailing header")
            if expected != values[claims.algorithm]:
                name = checksum_header(claims.algorithm)
                raise _bad_digest(name, expected, values[claims.algorithm])
        return BodySums(self.size, md5, checksums_of(values))


@hot_value
class Promised:
    """What a request says about its body, which is to be verified.

    Attributes:
        claims: the request's claims.
        sha256: the body hash that the signature covers, 32 bytes; None in the other modes.
        wanted: algorithms to compute in addition.
    """

    claims: Claims
    sha256: bytes | None = None
    wanted: frozenset[Algorithm] = NO_ALGORITHMS

    def digests(self) -> BodyDigests:
        """Returns what verifies the body piece by piece."""
        return BodyDigests(self.claims, self.sha256, self.wanted)

    def sums_of(self, body: bytes | memoryview) -> BodySums:
        """Verifies a whole body, as `BodyDigests` would in any number of pieces.

        Raises:
            S3Error: as `BodyDigests.finish`.
        """
        if self.claims is not NO_CLAIMS or self.wanted:
            digests = self.digests()
            digests.update(body)
            return digests.finish()
        # Most bodies have no claim but the signature's.
        if self.sha256 is not None:
            _check_signed(self.sha256, hashlib.sha256(body).digest())
        return BodySums(len(body), hashlib.md5(body, usedforsecurity=False).digest(), ())


def _check_signed(signed: bytes, computed: bytes) -> None:
    if computed != signed:
        raise S3Error(
            "XAmzContentSHA256Mismatch",
            ClientComputedContentSHA256=signed.hex(),
            S3ComputedContentSHA256=computed.hex(),
        )


def _bad_digest(name: str, expected: bytes, computed: bytes) -> S3Error:
    algorithm = _BY_HEADER.get(name)
    text = f"The {algorithm} you specified did not match the calculated checksum."
    return S3Error(
        "BadDigest",
        None if algorithm is None else text,
        ExpectedDigest=base64_text(expected),
        CalculatedDigest=base64_text(computed),
    )
