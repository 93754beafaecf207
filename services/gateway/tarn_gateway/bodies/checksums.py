"""Content checksums: compares the checksums that a client claims with those of the received body.

MD5 is always computed, because it is the ETag. A client claims at most one of S3's five other algorithms, in
a header or in a trailer. A multipart upload may require one that the client did not send. The CRCs of parts
combine into the CRC of the whole object (FULL_OBJECT). Every algorithm can hash the parts' checksums into a
COMPOSITE checksum.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from awscrt import checksums as crt

from tarn.core.entry import Checksum
from tarn.core.entry_check import CHECKSUM_BYTES
from tarn.core.value import hot_value
from tarn_gateway.http import Headers
from tarn_gateway.s3error import S3Error

__all__ = [
    "Algorithm",
    "BodyDigests",
    "BodySums",
    "Claims",
    "EMPTY_MD5",
    "NO_CLAIMS",
    "NO_VALUES",
    "checksum_header",
    "checksum_headers",
    "checksum_type",
    "composite_checksum",
    "full_object_checksum",
    "known_checksums",
    "multipart_md5",
    "parse_algorithm",
    "parse_claims",
]

EMPTY_MD5: Final = bytes.fromhex("d41d8cd98f00b204e9800998ecf8427e")

PREFIX: Final = "x-amz-checksum-"
NO_VALUES: Final = frozenset(
    {"x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"}
)
"""Headers with the prefix that contain no checksum value."""


class Algorithm(enum.StrEnum):
    """S3's checksum algorithms, named as S3 names them."""

    CRC32 = "CRC32"
    CRC32C = "CRC32C"
    CRC64NVME = "CRC64NVME"
    SHA1 = "SHA1"
    SHA256 = "SHA256"


class _Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> object: ...

    def digest(self) -> bytes: ...


class _Crc:
    """A CRC with the interface of a hashlib object."""

    __slots__ = ("_crc", "_function", "_size")

    def __init__(self, function: Callable[[bytes | memoryview, int], int], size: int) -> None:
        self._function = function
        self._size = size
        self._crc = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._crc = self._function(data, self._crc)

    def digest(self) -> bytes:
        return self._crc.to_bytes(self._size, "big")


_SIZES: Final[Mapping[Algorithm, int]] = {each: CHECKSUM_BYTES[each] for each in Algorithm}


def _new(algorithm: Algorithm) -> _Digest:
    match algorithm:
        case Algorithm.CRC32:
            return _Crc(crt.crc32, 4)
        case Algorithm.CRC32C:
            return _Crc(crt.crc32c, 4)
        case Algorithm.CRC64NVME:
            return _Crc(crt.crc64nvme, 8)
        case Algorithm.SHA1:
            return hashlib.sha1(usedforsecurity=False)
        case Algorithm.SHA256:
            return hashlib.sha256(usedforsecurity=False)


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


_STORED: Final = re.compile(r"[0-9A-Za-z+/]+=*(?:-[0-9]+)?", re.ASCII)


def known_checksums(checksums: Iterable[Checksum]) -> tuple[Checksum, ...]:
    """Returns the checksums of a stored entry that a client can be told: graveler takes entries from others, too."""
    return tuple(
        each for each in checksums if each.algorithm in _SIZES and _STORED.fullmatch(each.value)
    )


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


def _decode(value: str, size: int) -> bytes | None:
    """Decodes base64; returns None unless the text encodes exactly `size` bytes."""
    try:
        raw = base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size else None


def _parse_value(algorithm: Algorithm, value: str, where: str = "header") -> bytes:
    raw = parse_checksum(algorithm, value)
    if raw is None:
        name = checksum_header(algorithm)
        raise S3Error("InvalidRequest", f"Value for {name} {where} is invalid.")
    return raw


def parse_checksum(algorithm: Algorithm, value: str) -> bytes | None:
    """Returns the bytes of a base64 checksum; None if it cannot be one of the algorithm."""
    return _decode(value, _SIZES[algorithm])


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
    sent = [pair for pair in headers.with_prefix(PREFIX) if pair[0] not in NO_VALUES]
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
        md5 = _decode(text, 16)
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


@hot_value
class BodySums:
    """Facts about a body that was received completely and verified.

    Attributes:
        size: bytes.
        md5: 16 bytes.
        checksums: those that the client sent or that were wanted, for `Entry.checksums`.
    """

    size: int
    md5: bytes
    checksums: tuple[Checksum, ...]


class BodyDigests:
    """Computes all digests of one body and compares them with the claims.

    `update` is pure computation over memory, so it may run in a thread (hashlib and awscrt release
    the GIL), but never in two concurrently.

    Args:
        claims: the request's claims.
        sha256: the body hash that the signature covers, 32 bytes; None in the other modes.
        wanted: algorithms to compute in addition.
    """

    __slots__ = ("_claims", "_digests", "_md5", "_sha256", "_signed", "size")

    def __init__(
        self,
        claims: Claims,
        sha256: bytes | None = None,
        wanted: frozenset[Algorithm] = frozenset(),
    ) -> None:
        self._claims = claims
        self._sha256 = sha256
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._digests = {each: _new(each) for each in sorted(wanted)}
        if claims.algorithm is not None and claims.algorithm not in self._digests:
            self._digests[claims.algorithm] = _new(claims.algorithm)
        # One SHA-256 serves both the signature and an x-amz-checksum-sha256.
        self._signed: _Digest | None = None
        if sha256 is not None:
            self._signed = self._digests.get(Algorithm.SHA256) or hashlib.sha256()
        self.size = 0

    @property
    def claimed(self) -> Algorithm | None:
        """The further algorithm that the client uses, or None."""
        return self._claims.algorithm

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
            self._check_signed(self._signed.digest())
        md5 = self._md5.digest()
        if claims.md5 is not None and claims.md5 != md5:
            raise _bad_digest("Content-MD5", claims.md5, md5)
        values = {each: digest.digest() for each, digest in self._digests.items()}
        if claims.algorithm is not None:
            expected = claims.value
            if expected is None:
                expected = _parse_value(claims.algorithm, trailer, "trailing header")
            if expected != values[claims.algorithm]:
                name = checksum_header(claims.algorithm)
                raise _bad_digest(name, expected, values[claims.algorithm])
        return BodySums(
            self.size,
            md5,
            tuple(Checksum(str(each), _text(value)) for each, value in values.items()),
        )

    def _check_signed(self, computed: bytes) -> None:
        assert self._sha256 is not None, "a digest is kept only to be compared"
        if computed != self._sha256:
            raise S3Error(
                "XAmzContentSHA256Mismatch",
                ClientComputedContentSHA256=self._sha256.hex(),
                S3ComputedContentSHA256=computed.hex(),
            )


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _bad_digest(name: str, expected: bytes, computed: bytes) -> S3Error:
    algorithm = _BY_HEADER.get(name)
    text = f"The {algorithm} you specified did not match the calculated checksum."
    return S3Error(
        "BadDigest",
        None if algorithm is None else text,
        ExpectedDigest=_text(expected),
        CalculatedDigest=_text(computed),
    )


def multipart_md5(md5s: Iterable[bytes]) -> bytes:
    """Returns the MD5 of the parts' MD5s: with `Entry.etag_parts`, the ETag of a multipart object."""
    return hashlib.md5(b"".join(md5s), usedforsecurity=False).digest()


def composite_checksum(algorithm: Algorithm, parts: Iterable[str]) -> Checksum:
    """Returns the COMPOSITE checksum of the parts' base64 values, with `-N` appended.

    Raises:
        S3Error: InvalidRequest for CRC64NVME, which S3 defines only for whole objects, and for a
            malformed value.
    """
    if algorithm is Algorithm.CRC64NVME:
        raise S3Error("InvalidRequest", "CRC64NVME has no COMPOSITE form.")
    digest = _new(algorithm)
    count = 0
    for part in parts:
        digest.update(_parse_value(algorithm, part))
        count += 1
    return Checksum(str(algorithm), f"{_text(digest.digest())}-{count}", composite=True)


def full_object_checksum(algorithm: Algorithm, parts: Iterable[tuple[str, int]]) -> Checksum:
    """Returns the FULL_OBJECT checksum from the parts' `(base64 value, size in bytes)`, in O(parts).

    Raises:
        S3Error: InvalidRequest for SHA1 and SHA256, which cannot be combined, and for a malformed
            value.
    """
    combine: Callable[[int, int, int], int]
    match algorithm:
        case Algorithm.CRC32:
            combine = crt.combine_crc32
        case Algorithm.CRC32C:
            combine = crt.combine_crc32c
        case Algorithm.CRC64NVME:
            combine = crt.combine_crc64nvme
        case _:
            raise S3Error("InvalidRequest", f"{algorithm} has no FULL_OBJECT form for multipart.")
    crc = 0
    for value, size in parts:
        crc = combine(crc, int.from_bytes(_parse_value(algorithm, value), "big"), size)
    return Checksum(str(algorithm), _text(crc.to_bytes(_SIZES[algorithm], "big")))
