"""Requests of several buckets: what may go together, and what their failures mean.

With a dozen operations under way a tick holds two or three rows of each bucket, and a request costs a
hundred times what a row costs. So a little of several buckets is sent as one request. It stays what it
was for each bucket: one mutation, or one read at quorum. Two things differ. The coordinator sends the
mutations one after the other, so that "unavailable" may come when the first of them is on its way; and
nodes warn of batches of several partitions above 5 KiB and refuse them above 50 KiB (their defaults).
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Generic, TypeVar

__all__ = ["CrossBucketBatch", "may_cross_buckets", "cross_bucket_size"]

_BUCKETS_MAX = 8
_BYTES_MAX = 4 << 10
_ROW_BYTES = 64
_LOOKUPS_MAX = 64

PartT = TypeVar("PartT")


def may_cross_buckets(buckets: int, keys: int) -> bool:
    """Whether to read keys of several buckets by one request, which looks for each key in each bucket."""
    return 1 < buckets <= _BUCKETS_MAX and buckets * keys <= _LOOKUPS_MAX


def cross_bucket_size(rows: Sized, size_bytes: int) -> int:
    """What rows count for in a mixed batch; the nodes count cells and their timestamps, too."""
    return size_bytes + _ROW_BYTES * len(rows)


class CrossBucketBatch(Generic[PartT]):
    """Parts of several buckets that go together.

    Attributes:
        parts: by bucket; not above the bounds, unless one part alone is.
    """

    def __init__(self) -> None:
        self.parts: dict[int, PartT] = {}
        self._size_bytes = 0

    def add(self, bucket: int, part: PartT, size_bytes: int) -> Iterator[dict[int, PartT]]:
        """Takes a part; what has no room beside it comes out, to be sent. Run it to its end."""
        is_full = self._size_bytes + size_bytes > _BYTES_MAX or len(self.parts) >= _BUCKETS_MAX
        if self.parts and (is_full or bucket in self.parts):
            yield self.parts
            self.parts, self._size_bytes = {}, 0
        self.parts[bucket] = part
        self._size_bytes += size_bytes
