"""Requests that span several buckets: which parts may share one, and the meaning of their failures.

With a dozen concurrent operations, one tick holds two or three rows for each bucket, and a request costs a
hundred times as much as a row. So small parts of several buckets are sent as one request. For each bucket it
is still one mutation, or one read at quorum. Two things differ. The coordinator sends the mutations one after
the other, so "unavailable" may arrive after the first of them was sent. And by default the nodes warn about
batches of several partitions above 5 KiB and refuse them above 50 KiB.
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
    """Whether to read keys of several buckets in one request, which looks up each key in each bucket."""
    return 1 < buckets <= _BUCKETS_MAX and buckets * keys <= _LOOKUPS_MAX


def cross_bucket_size(rows: Sized, size_bytes: int) -> int:
    """The size of rows in a batch of several buckets; like the nodes, it counts cells and timestamps too."""
    return size_bytes + _ROW_BYTES * len(rows)


class CrossBucketBatch(Generic[PartT]):
    """Parts of several buckets that are sent in one request.

    Attributes:
        parts: by bucket. Within the bounds, unless a single part exceeds them.
    """

    def __init__(self) -> None:
        self.parts: dict[int, PartT] = {}
        self._size_bytes = 0

    def add(self, bucket: int, part: PartT, size_bytes: int) -> Iterator[dict[int, PartT]]:
        """Adds a part. Yields batches to send whenever there is no room; run the iterator to its end."""
        is_full = self._size_bytes + size_bytes > _BYTES_MAX or len(self.parts) >= _BUCKETS_MAX
        if self.parts and (is_full or bucket in self.parts):
            yield self.parts
            self.parts, self._size_bytes = {}, 0
        self.parts[bucket] = part
        self._size_bytes += size_bytes
