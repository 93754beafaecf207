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
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa

from tarn.kv.port import Kv, Partition, Row

__all__ = ["LENGTHS", "Range", "all_rows", "digest_of", "header_of", "range_of", "row_batches"]

LENGTHS: Final = struct.Struct("<II")
"""Of key and value, before each row."""


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


def header_of(partition: Partition) -> bytes:
    """The first line of the text over which the digest of a range is computed."""
    name = partition.name.encode()
    return b"%s %d %s\n" % (partition.kind.value.encode(), len(name), name)


async def digest_of(kv: Kv, partition: Partition, start: bytes, end: bytes | None) -> str:
    """Computes the digest of a range of a store's rows."""
    sha, pack = hashlib.sha256(header_of(partition)), LENGTHS.pack
    async for rows in row_batches(kv, partition, start, end):
        sha.update(b"".join([pack(len(k), len(v)) + k + v for k, v in rows]))
    return sha.hexdigest()


def range_of(partition: Partition, start: bytes, end: bytes | None, rows: Sequence[Row]) -> Range:
    """Returns the range of rows that are in memory, in order of keys, as all that it holds."""
    sha, pack = hashlib.sha256(header_of(partition)), LENGTHS.pack
    sha.update(b"".join([pack(len(k), len(v)) + k + v for k, v in rows]))
    size_bytes = sum(len(key) + len(value) for key, value in rows)
    return Range(partition, start, end, len(rows), size_bytes, sha.hexdigest())


async def row_batches(
    kv: Kv, partition: Partition, start: bytes = b"", end: bytes | None = None
) -> AsyncGenerator[list[Row], None]:
    """Yields the rows of a region in order of keys, by bulk reads."""
    batches = cast("AsyncGenerator[pa.RecordBatch, None]", kv.scan_arrow(partition, start, end))
    async with aclosing(batches):
        async for batch in batches:
            keys, values = (column.to_pylist() for column in batch.columns)
            yield list(zip(keys, values, strict=True))


async def all_rows(kv: Kv, partition: Partition) -> AsyncGenerator[Row, None]:
    """Yields the rows of a partition in order of keys, by bulk reads."""
    async with aclosing(row_batches(kv, partition)) as batches:
        async for rows in batches:
            for row in rows:
                yield row
