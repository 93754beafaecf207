"""Digests of bodies. MD5 is always computed, because it is the ETag; a front may want some of five others.

The CRCs of parts combine into the CRC of the whole object (FULL_OBJECT). Every algorithm can hash the parts' checksums
into a COMPOSITE checksum.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from awscrt import checksums as crt

from tarn.core.entry import Checksum
from tarn.core.entry_check import CHECKSUM_BYTES
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = [
    "Algorithm",
    "BodySums",
    "Digest",
    "Digests",
    "EMPTY_MD5",
    "NO_ALGORITHMS",
    "base64_text",
    "checksums_of",
    "composite_checksum",
    "full_object_checksum",
    "known_checksums",
    "multipart_md5",
    "new_digest",
    "parse_checksum",
    "parse_digest",
]

EMPTY_MD5: Final = bytes.fromhex("d41d8cd98f00b204e9800998ecf8427e")


class Algorithm(enum.StrEnum):
    """S3's checksum algorithms, named as S3 names them."""

    CRC32 = "CRC32"
    CRC32C = "CRC32C"
    CRC64NVME = "CRC64NVME"
    SHA1 = "SHA1"
    SHA256 = "SHA256"


NO_ALGORITHMS: Final[frozenset[Algorithm]] = frozenset()


class Digest(Protocol):
    """A digest that is being computed, as hashlib makes them."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Adds the next bytes."""
        ...

    def digest(self) -> bytes:
        """Returns the digest of the bytes so far."""
        ...


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


def new_digest(algorithm: Algorithm) -> Digest:
    """Returns a new digest of an algorithm."""
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


_STORED: Final = re.compile(r"[0-9A-Za-z+/]+=*(?:-[0-9]+)?", re.ASCII)


def known_checksums(checksums: Iterable[Checksum]) -> tuple[Checksum, ...]:
    """Returns the checksums of a stored entry that a client can be told: graveler takes entries from others, too."""
    return tuple(
        each for each in checksums if each.algorithm in _SIZES and _STORED.fullmatch(each.value)
    )


def parse_digest(value: str, size: int) -> bytes | None:
    """Decodes base64; returns None unless the text encodes exactly `size` bytes."""
    try:
        raw = base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size else None


def parse_checksum(algorithm: Algorithm, value: str) -> bytes | None:
    """Returns the bytes of a base64 checksum; None if it cannot be one of the algorithm."""
    return parse_digest(value, _SIZES[algorithm])


def base64_text(value: bytes) -> str:
    """Returns bytes in base64."""
    return base64.b64encode(value).decode("ascii")


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


class Digests:
    """Computes all digests of one body.

    `update` is pure computation over memory, so it may run in a thread (hashlib and awscrt release
    the GIL), but never in two concurrently.

    Args:
        wanted: algorithms to compute beside MD5.
    """

    __slots__ = ("_digests", "_md5", "size")

    def __init__(self, wanted: frozenset[Algorithm] = NO_ALGORITHMS) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._digests = {each: new_digest(each) for each in sorted(wanted)} if wanted else {}
        self.size = 0

    def update(self, data: bytes | memoryview) -> None:
        """Adds the next bytes."""
        self.size += len(data)
        self._md5.update(data)
        for digest in self._digests.values():
            digest.update(data)

    def finish(self) -> BodySums:
        """Returns the digests of all bytes."""
        values = {each: digest.digest() for each, digest in self._digests.items()}
        return BodySums(self.size, self._md5.digest(), checksums_of(values))


def checksums_of(values: Mapping[Algorithm, bytes]) -> tuple[Checksum, ...]:
    """Returns digests as entries keep them."""
    if not values:
        return ()
    return tuple([Checksum(str(each), base64_text(value)) for each, value in values.items()])


def multipart_md5(md5s: Iterable[bytes]) -> bytes:
    """Returns the MD5 of the parts' MD5s: with `Entry.etag_parts`, the ETag of a multipart object."""
    return hashlib.md5(b"".join(md5s), usedforsecurity=False).digest()


def composite_checksum(algorithm: Algorithm, parts: Iterable[str]) -> Checksum:
    """Returns the COMPOSITE checksum of the parts' base64 values, with `-N` appended.

    Raises:
        TarnError: INVALID_ARGUMENT for CRC64NVME, which S3 defines only for whole objects, and for a
            malformed value.
    """
    if algorithm is Algorithm.CRC64NVME:
        raise _invalid("CRC64NVME has no COMPOSITE form.")
    digest = new_digest(algorithm)
    count = 0
    for part in parts:
        digest.update(_value(algorithm, part))
        count += 1
    return Checksum(str(algorithm), f"{base64_text(digest.digest())}-{count}", composite=True)


def full_object_checksum(algorithm: Algorithm, parts: Iterable[tuple[str, int]]) -> Checksum:
    """Returns the FULL_OBJECT checksum from the parts' `(base64 value, size in bytes)`, in O(parts).

    Raises:
        TarnError: INVALID_ARGUMENT for SHA1 and SHA256, which cannot be combined, and for a malformed
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
            raise _invalid(f"{algorithm} has no FULL_OBJECT form for multipart.")
    crc = 0
    for value, size in parts:
        crc = combine(crc, int.from_bytes(_value(algorithm, value), "big"), size)
    return Checksum(str(algorithm), base64_text(crc.to_bytes(_SIZES[algorithm], "big")))


def _value(algorithm: Algorithm, value: str) -> bytes:
    raw = parse_checksum(algorithm, value)
    if raw is None:
        raise _invalid(f"{value[:80]!r} is no {algorithm} in base64.")
    return raw


def _invalid(text: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
