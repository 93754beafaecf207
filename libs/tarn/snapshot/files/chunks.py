"""Chunks: some rows of a partition as one text, whose digest is that of their range (`tarn.snapshot.files.ranges`).

Where a chunk ends is decided by its last key alone (or by the limits). So a new row changes one chunk, not all that
follow it, and equal rows of one partition are stored once (`content.py`).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from tarn.kv.port import Kv, Partition, Row
from tarn.snapshot.files.content import (
    TEXT_BYTES,
    TEXT_ROWS,
    content_file,
    corrupt_error,
    digest_of_text,
)
from tarn.snapshot.files.ranges import LENGTHS, Range, header_of, row_batches

__all__ = ["Chunk", "Chunker", "Keep", "cut", "rows_in"]

_CUT_MASK: Final = (1 << 11) - 1
"""One key in 2,048 ends a chunk."""

Keep = Callable[[bytes, bytes], bool]
"""Whether a row, given by key and value, belongs into the snapshot."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows.

    Attributes:
        range: which rows; its digest is the SHA-256 of `text`.
        text: the content.
    """

    range: Range
    text: bytes


class Chunker:
    """Cuts the rows of a region of a partition, which are added in order of keys, into chunks.

    Args:
        partition: the partition.
        start: first key that may be in the region.
        end: first key after the region; None: it has no upper end.
    """

    def __init__(self, partition: Partition, start: bytes = b"", end: bytes | None = None) -> None:
        self._partition = partition
        self._start = start
        self._end = end
        self._begin()

    def _begin(self) -> None:
        self._parts = [header_of(self._partition)]
        self._rows = 0
        self._size = 0
        self._is_full = False
        self._last = b""

    def add(self, key: bytes, value: bytes) -> Chunk | None:
        """Adds the next row. Returns the chunk before it, if that ended with the row before."""
        done = None
        if self._is_full:
            end = self._last + b"\0"
            done = self._chunk(end)
            self._start = end
            self._begin()
        self._parts += (LENGTHS.pack(len(key), len(value)), key, value)
        self._rows += 1
        self._size += len(key) + len(value)
        self._last = key
        self._is_full = (
            not zlib.crc32(key) & _CUT_MASK or self._size >= TEXT_BYTES or self._rows >= TEXT_ROWS
        )
        return done

    def finish(self) -> Chunk:
        """Returns the last chunk; it has no rows only if the region has none."""
        return self._chunk(self._end)

    def _chunk(self, end: bytes | None) -> Chunk:
        text = b"".join(self._parts)
        digest = digest_of_text(text)
        found = Range(self._partition, self._start, end, self._rows, self._size, digest)
        return Chunk(found, text)


async def cut(
    kv: Kv,
    partition: Partition,
    start: bytes = b"",
    end: bytes | None = None,
    keep: Keep | None = None,
) -> AsyncGenerator[Chunk, None]:
    """Yields a region of a partition as it is read now, as chunks that cover all of its keys.

    Args:
        kv: the store.
        partition: the partition.
        start: first key of the region.
        end: first key after it; None: it has no upper end.
        keep: chooses rows; None: all.
    """
    chunker = Chunker(partition, start, end)
    async with aclosing(row_batches(kv, partition, start, end)) as batches:
        async for rows in batches:
            for key, value in rows:
                if keep is not None and not keep(key, value):
                    continue
                if (chunk := chunker.add(key, value)) is not None:
                    yield chunk
            await asyncio.sleep(0)
    yield chunker.finish()


def rows_in(text: bytes, wanted: Range) -> list[Row]:
    """Returns the rows of a chunk, whose text has the digest of the range.

    Raises:
        TarnError: CORRUPT: these are not the rows that the index lists.
    """
    about = content_file(wanted.digest)
    header = header_of(wanted.partition)
    if not text.startswith(header):
        raise corrupt_error(f"{about} does not belong to partition {wanted.partition.name!r}")
    rows = list(_rows(text, len(header), about))
    size = sum(len(key) + len(value) for key, value in rows)
    if (len(rows), size) != (wanted.rows, wanted.size_bytes):
        raise corrupt_error(f"{about} has {len(rows)} rows, the index says {wanted.rows}")
    return rows


def _rows(text: bytes, at: int, about: str) -> Iterator[Row]:
    while at < len(text):
        if at + LENGTHS.size > len(text):
            raise corrupt_error(f"{about} ends in the middle of a row")
        key_bytes, value_bytes = LENGTHS.unpack_from(text, at)
        at += LENGTHS.size
        end = at + key_bytes + value_bytes
        if end > len(text):
            raise corrupt_error(f"{about} ends in the middle of a row")
        yield text[at : at + key_bytes], text[at + key_bytes : end]
        at = end
