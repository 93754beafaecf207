"""A metarange: the ranges of one listing, in order. Its id identifies the whole listing.

A metarange is small (about one row per 20,000 entries), so it is held in memory as objects and searched by
bisection. Its id is a hash of its rows, and each row holds the hash of a range's rows, so equal ids mean equal
listings. `docs/formats/metarange.md` specifies the canonical bytes.
"""

from __future__ import annotations

import hashlib
import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import MetarangeId, RangeId

__all__ = ["EMPTY_METARANGE", "Metarange", "RangeInfo"]

_MAGIC = b"tarn metarange 1\n"
_ID = re.compile(r"[0-9a-f]{64}")
_ROW = struct.Struct("<32sQQq")
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class RangeInfo:
    """One row of a metarange.

    Attributes:
        range_id: hash of the range's rows.
        min_path: path of its first row.
        max_path: path of its last row.
        count: number of rows, at least one.
        size_bytes: size of its paths and packed entries.
        object_bytes: sum of the sizes of its objects.
    """

    range_id: RangeId
    min_path: str
    max_path: str
    count: int
    size_bytes: int
    object_bytes: int


@dataclass(frozen=True, slots=True)
class Metarange:
    """The ranges of a whole listing.

    Attributes:
        ranges: Invariant: none is empty, they ascend, and their spans do not overlap.
        max_paths: `max_path` of each range, for bisection.
        metarange_id: SHA-256 of the canonical bytes.
    """

    ranges: tuple[RangeInfo, ...]
    max_paths: tuple[str, ...] = field(init=False, repr=False, compare=False)
    metarange_id: MetarangeId = field(init=False)

    def __post_init__(self) -> None:
        last: str | None = None
        for info in self.ranges:
            # The canonical bytes hold the id as 32 bytes, so two spellings of an id would have the same hash.
            if not _ID.fullmatch(info.range_id):
                text = f"a metarange names a range with the invalid id {info.range_id!r}"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
            if (last is not None and info.min_path <= last) or info.min_path > info.max_path:
                text = f"range {info.range_id} of a metarange is out of order after {last!r}"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
            last = info.max_path
        object.__setattr__(self, "max_paths", tuple(info.max_path for info in self.ranges))
        digest = hashlib.sha256(self.canonical_bytes()).hexdigest()
        object.__setattr__(self, "metarange_id", MetarangeId(digest))

    @property
    def count(self) -> int:
        """Number of entries in the whole listing."""
        return sum(info.count for info in self.ranges)

    @property
    def object_bytes(self) -> int:
        """Sum of the sizes of all objects, in bytes."""
        return sum(info.object_bytes for info in self.ranges)

    def range_of(self, path: str) -> int:
        """The index of the first range whose last path is not smaller: the only one that can hold `path`.

        The number of ranges if all last paths are smaller. O(log ranges).
        """
        return bisect_left(self.max_paths, path)

    def range_at(self, path: str) -> RangeInfo | None:
        """The only range that can hold `path`; None if none can. O(log ranges)."""
        place = self.range_of(path)
        if place == len(self.ranges) or path < self.ranges[place].min_path:
            return None
        return self.ranges[place]

    def canonical_bytes(self) -> bytes:
        """The bytes that the id is a hash of."""
        return b"".join([_MAGIC, _U64.pack(len(self.ranges)), *self._rows()])

    def _rows(self) -> Iterator[bytes]:
        for info in self.ranges:
            yield _ROW.pack(
                bytes.fromhex(info.range_id), info.count, info.size_bytes, info.object_bytes
            )
            for path in (info.min_path.encode(), info.max_path.encode()):
                yield _U32.pack(len(path)) + path


EMPTY_METARANGE = Metarange(())
"""The empty listing; its id is the same everywhere."""
