"""Ranges of rows and their digests, by which two copies of the same data are compared.

A *range* is all rows of one partition with `start <= key < end`. The ranges of a partition follow each other
and cover every possible key, so an extra row is found as well as a missing one. Its digest is SHA-256 over the
name and kind of the partition and its rows in order of keys. It is the same for every engine, whatever the
number of buckets and the size of the engine's batches. The side that is read first decides how a partition is
cut into ranges; the other side is read in the same ranges.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from tarn.kv.port import Kv, Partition, Row

__all__ = ["Chunk", "Range", "RangeDigest", "digest_of", "read_chunks", "rows_of"]

_CHUNK_ROWS = 16_384
_CHUNK_BYTES = 4 << 20
_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Range:
    """Some rows of a partition.

    Attributes:
        start: first key that may be in the range.
        end: first key after the range; None: the range has no upper end.
        rows: number of rows.
        size_bytes: size of their keys and values.
        digest: SHA-256, in hex.
    """

    partition: Partition
    start: bytes
    end: bytes | None
    rows: int
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range, and a way to load its rows: from memory, or from a file that is read only if needed."""

    range: Range
    load: Callable[[], Awaitable[Sequence[pa.RecordBatch]]]


class RangeDigest:
    """Computes a range's digest as its rows are added in order."""

    def __init__(self, partition: Partition) -> None:
        name = partition.name.encode()
        self._sha = hashlib.sha256(b"%s %d %s\n" % (partition.kind.value.encode(), len(name), name))
        self.rows = 0
        self.size_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the next rows, as columns `key` and `value`."""
        keys, values = (column.to_pylist() for column in batch.columns)
        pack = _LENGTHS.pack
        text = b"".join([pack(len(k), len(v)) + k + v for k, v in zip(keys, values, strict=True)])
        self._sha.update(text)
        self.rows += len(keys)
        self.size_bytes += len(text) - _LENGTHS.size * len(keys)

    def hex(self) -> str:
        """The digest of the rows added so far, in hex."""
        return self._sha.hexdigest()


async def digest_of(kv: Kv, partition: Partition, start: bytes, end: bytes | None) -> str:
    """Computes the digest of a range of a store's rows."""
    digest = RangeDigest(partition)
    batches = cast("AsyncGenerator[pa.RecordBatch, None]", kv.scan_arrow(partition, start, end))
    async with aclosing(batches):
        async for batch in batches:
            digest.add(batch)
    return digest.hex()


async def read_chunks(kv: Kv, partition: Partition, start: bytes = b"") -> AsyncIterator[Chunk]:
    """Yields a partition of a store, from a key on, as ranges of a few MiB.

    The last range has no end; it is the only one that may be empty.
    """
    batches = cast("AsyncGenerator[pa.RecordBatch, None]", kv.scan_arrow(partition, start, None))
    gathered: list[pa.RecordBatch] = []
    digest = RangeDigest(partition)
    async with aclosing(batches):
        async for batch in batches:
            if digest.rows >= _CHUNK_ROWS or digest.size_bytes >= _CHUNK_BYTES:
                end = gathered[-1].column(0)[-1].as_py() + b"\0"
                yield _chunk(partition, start, end, digest, gathered)
                start, gathered, digest = end, [], RangeDigest(partition)
            digest.add(batch)
            gathered.append(batch)
    yield _chunk(partition, start, None, digest, gathered)


def _chunk(
    partition: Partition,
    start: bytes,
    end: bytes | None,
    digest: RangeDigest,
    batches: list[pa.RecordBatch],
) -> Chunk:
    async def load() -> Sequence[pa.RecordBatch]:
        return batches

    found = Range(partition, start, end, digest.rows, digest.size_bytes, digest.hex())
    return Chunk(found, load)


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    """The rows of batches, in order."""
    rows: list[Row] = []
    for batch in batches:
        keys, values = (column.to_pylist() for column in batch.columns)
        rows += zip(keys, values, strict=True)
    return rows
