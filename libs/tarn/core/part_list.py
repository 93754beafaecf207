"""The parts of a multipart object, as its entry keeps them: sizes in runs, and the parts' checksums.

S3 answers a GET of one part, and tells the sizes of parts, long after the upload ended. Clients make all parts but the
last of one size, so the sizes are kept as runs: 10,000 parts are 16 bytes. A list that would be longer than
`PART_LIST_BYTES_MAX` is not kept, and the object is then answered as one part.

Layout (little-endian), the field `parts` of `docs/formats/entry.md`:

    offset size field
    0      1    checksum algorithm: 0 none, 1 CRC32, 2 CRC32C, 3 CRC64NVME, 4 SHA1, 5 SHA256
    1      2    number of runs
    3      8·r  runs: size of each part · 2**16 + number of parts of this size
    …      d·n  the parts' checksums, d bytes each, for an algorithm other than 0

Neighbouring runs have different sizes, so equal lists have equal bytes.
"""

from __future__ import annotations

import base64
import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tarn.core.entry import ENTRY_BYTES_MAX, Entry, unpack, with_parts
from tarn.core.entry_check import CHECKSUM_BYTES, OBJECT_BYTES_MAX, PARTS_MAX, invalid_entry

__all__ = [
    "PART_LIST_BYTES_MAX",
    "KeptPart",
    "PartList",
    "PartListError",
    "check_parts",
    "decode_parts",
    "parts_of",
    "parts_to_keep",
]

PART_LIST_BYTES_MAX: Final = 4096
"""Longest list that is kept: 511 runs, or 1,000 parts of one size with a CRC32 each. Every listing of the object's
folder reads its entry, so the list must not dominate it."""

_HEAD: Final = struct.Struct("<BH")
_RUN: Final = struct.Struct("<Q")
_COUNT_BITS: Final = 16
_ALGORITHMS: Final = ("", *CHECKSUM_BYTES)
"""By their numbers in the layout. The order of `CHECKSUM_BYTES` is part of the format."""


class PartListError(ValueError):
    """Bytes that are not the list of an object's parts; the text is for the caller that sent them."""


@dataclass(frozen=True, slots=True)
class KeptPart:
    """One part of an object.

    Attributes:
        number: 1 for the first part, without gaps, whatever numbers the client gave to the parts.
        start: its first byte in the object.
        size: bytes.
        checksum: base64; empty if none is kept.
    """

    number: int
    start: int
    size: int
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class PartList:
    """The parts of one object, in order.

    Attributes:
        runs: (size in bytes, number of parts), neighbours of different sizes.
        algorithm: of the parts' checksums; empty if none are kept.
        digests: the checksums, one after the other.
    """

    runs: tuple[tuple[int, int], ...]
    algorithm: str = ""
    digests: bytes = b""

    @classmethod
    def of(
        cls, sizes: Iterable[int], algorithm: str = "", digests: Sequence[bytes] = ()
    ) -> PartList:
        """Returns the list of parts of these sizes, in bytes, with a digest for each part or for none."""
        runs = tuple((size, len(list(same))) for size, same in itertools.groupby(sizes))
        return cls(runs, algorithm, b"".join(digests))

    @property
    def count(self) -> int:
        """The number of parts."""
        return sum(count for _, count in self.runs)

    @property
    def size(self) -> int:
        """The size of the object, bytes."""
        return sum(size * count for size, count in self.runs)

    def encode(self) -> bytes:
        """Returns the bytes of the list; they may be longer than an entry keeps."""
        head = _HEAD.pack(_ALGORITHMS.index(self.algorithm), len(self.runs))
        runs = b"".join(_RUN.pack(size << _COUNT_BITS | count) for size, count in self.runs)
        return head + runs + self.digests

    def part(self, number: int) -> KeptPart | None:
        """Returns a part; None if there is none of this number. O(runs)."""
        before = start = 0
        for size, count in self.runs:
            if before < number <= before + count:
                at = start + size * (number - 1 - before)
                return KeptPart(number, at, size, self._checksum(number))
            before += count
            start += size * count
        return None

    def after(self, marker: int) -> Iterator[KeptPart]:
        """Yields the parts whose numbers are greater than `marker`, in order."""
        number = start = 0
        for size, count in self.runs:
            for _ in range(count):
                number += 1
                if number > marker:
                    yield KeptPart(number, start, size, self._checksum(number))
                start += size

    def _checksum(self, number: int) -> str:
        if not self.algorithm:
            return ""
        width = CHECKSUM_BYTES[self.algorithm]
        return base64.b64encode(self.digests[(number - 1) * width : number * width]).decode("ascii")


def decode_parts(kept: bytes) -> PartList:
    """Decodes the bytes of a list.

    Raises:
        PartListError: they are not those that `encode` gives for 1 to 10,000 parts of at most 5 TiB.
    """
    if len(kept) < _HEAD.size:
        raise PartListError("ends inside its head")
    number, length = _HEAD.unpack_from(kept)
    if number >= len(_ALGORITHMS):
        raise PartListError(f"names the checksum algorithm {number}, which is unknown")
    algorithm = _ALGORITHMS[number]
    end = _HEAD.size + length * _RUN.size
    if len(kept) < end:
        raise PartListError(f"ends inside its {length} runs")
    words = [word for (word,) in _RUN.iter_unpack(kept[_HEAD.size : end])]
    runs = tuple((word >> _COUNT_BITS, word & (1 << _COUNT_BITS) - 1) for word in words)
    if any(not count for _, count in runs):
        raise PartListError("has a run of no parts")
    if any(left == right for (left, _), (right, _) in itertools.pairwise(runs)):
        raise PartListError("has two neighbouring runs of one size")
    parts = PartList(runs, algorithm, kept[end:])
    if not 1 <= parts.count <= PARTS_MAX:
        raise PartListError(f"has {parts.count} parts, not 1 to {PARTS_MAX}")
    if parts.size > OBJECT_BYTES_MAX:
        raise PartListError(f"has {parts.size} bytes, more than {OBJECT_BYTES_MAX}")
    if len(parts.digests) != parts.count * CHECKSUM_BYTES.get(algorithm, 0):
        raise PartListError(f"has {len(parts.digests)} bytes of checksums for {parts.count} parts")
    return parts


def _fault(entry: Entry, parts: PartList) -> str:
    """Returns why a list is not that of an entry's parts; empty if it may be."""
    if parts.count != entry.etag_parts:
        return f"has {parts.count} parts, and the object {entry.etag_parts}"
    if parts.size != entry.size:
        return f"has {parts.size} bytes, and the object {entry.size}"
    composite = {each.algorithm for each in entry.checksums if each.composite}
    if parts.algorithm and parts.algorithm not in composite:
        return f"has checksums of {parts.algorithm}, of which the object has no composite one"
    return ""


def parts_to_keep(packed: bytes, parts: PartList) -> bytes:
    """Returns the bytes of the list that an entry keeps: without checksums if these are too many, or empty.

    Args:
        packed: the entry of the parts, without them.
        parts: all of them.
    """
    room = min(PART_LIST_BYTES_MAX, ENTRY_BYTES_MAX - len(with_parts(packed, b"\0")) + 1)
    for each in (parts, PartList(parts.runs)):
        if len(kept := each.encode()) <= room:
            return kept
    return b""


def check_parts(packed: bytes, kept: bytes) -> bytes:
    """Returns a checked packed entry with the list of its parts, which a caller wants to store.

    Raises:
        TarnError: INVALID_ARGUMENT: the list is too long, damaged, or not that of the entry's parts.
    """
    if len(kept) > PART_LIST_BYTES_MAX:
        text = f"has {len(kept)} bytes; at most {PART_LIST_BYTES_MAX} are allowed"
        raise invalid_entry("parts", text, PART_LIST_BYTES_MAX)
    try:
        fault = _fault(unpack(packed), decode_parts(kept))
    except PartListError as error:
        fault = str(error)
    if fault:
        raise invalid_entry("parts", fault)
    whole = with_parts(packed, kept)
    if len(whole) > ENTRY_BYTES_MAX:
        text = f"and the entry have {len(whole)} bytes; at most {ENTRY_BYTES_MAX} are allowed"
        raise invalid_entry("parts", text, ENTRY_BYTES_MAX)
    return whole


def parts_of(entry: Entry) -> PartList | None:
    """Returns the parts of a stored entry; None if it keeps no list, or one that is damaged or another object's.

    An object stays readable as a whole whatever its list is.
    """
    if not entry.parts:
        return None
    try:
        parts = decode_parts(entry.parts)
    except PartListError:
        return None
    return None if _fault(entry, parts) else parts
