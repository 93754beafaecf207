"""Chunks: some rows of a partition as one file, named by its content.

The content of a chunk is the text over which `tarn.snapshot.files.ranges.RangeDigest` computes the digest of a range:
kind and name of the partition, then each row. The digest is the name of the file. So equal rows of one partition are
stored once, however many backups hold them. A reader can check every file by its name.

Where a chunk ends is decided by its last key alone (or by the limits). So a new row changes one chunk, not all that
follow it.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import KEY_BYTES_MAX, VALUE_BYTES_MAX, Partition, Row
from tarn.snapshot.files.ranges import Range

__all__ = [
    "CHUNK_BYTES_MAX",
    "FILE_BYTES_MAX",
    "Chunk",
    "Chunker",
    "chunk_file",
    "corrupt_error",
    "pack",
    "unpack",
    "unpack_chunk",
]

CHUNK_BYTES_MAX: Final = 4 << 20
"""A chunk ends with the row that reaches this size."""
_ROWS_MAX: Final = 16_384
_CUT_MASK: Final = (1 << 11) - 1
"""One key in 2,048 ends a chunk."""
_TEXT_BYTES_MAX: Final = CHUNK_BYTES_MAX + _ROWS_MAX * 8 + KEY_BYTES_MAX + VALUE_BYTES_MAX + 8192
FILE_BYTES_MAX: Final = _TEXT_BYTES_MAX + (_TEXT_BYTES_MAX >> 6)
"""Size of the largest file: compression makes some texts longer."""
_LENGTHS: Final = struct.Struct("<II")
_SIZE: Final = struct.Struct("<Q")
_CODEC: Final = "zstd"


def corrupt_error(text: str) -> TarnError:
    """The error for a backup that is damaged, or for files that are not a backup."""
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


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
        self._parts = [_header(self._partition)]
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
        self._parts += (_LENGTHS.pack(len(key), len(value)), key, value)
        self._rows += 1
        self._size += len(key) + len(value)
        self._last = key
        self._is_full = (
            not zlib.crc32(key) & _CUT_MASK
            or self._size >= CHUNK_BYTES_MAX
            or self._rows >= _ROWS_MAX
        )
        return done

    def finish(self) -> Chunk | None:
        """Returns the last chunk; None if the region has no rows."""
        return self._chunk(self._end) if self._rows else None

    def _chunk(self, end: bytes | None) -> Chunk:
        text = b"".join(self._parts)
        digest = hashlib.sha256(text).hexdigest()
        found = Range(self._partition, self._start, end, self._rows, self._size, digest)
        return Chunk(found, text)


def chunk_file(digest: str) -> str:
    """The name of a chunk's file in the target."""
    return f"chunks/{digest[:2]}/{digest}.zst"


def pack(text: bytes) -> bytes:
    """Compresses a file: the size of its text as u64, little-endian, then one zstd frame."""
    packed: bytes = pa.compress(text, codec=_CODEC, asbytes=True)
    return _SIZE.pack(len(text)) + packed


def unpack(data: bytes, about: str, most: int = _TEXT_BYTES_MAX) -> bytes:
    """Decompresses a file.

    Args:
        data: the file.
        about: its name, for errors.
        most: greatest size of its text; a longer one is refused before memory is taken.

    Raises:
        TarnError: CORRUPT.
    """
    if len(data) < _SIZE.size:
        raise corrupt_error(f"{about} has {len(data)} bytes: it was cut off")
    (size,) = _SIZE.unpack_from(data)
    if size > most:
        raise corrupt_error(f"{about} claims to hold {size} bytes, more than {most}")
    try:
        text: bytes = pa.decompress(data[_SIZE.size :], size, codec=_CODEC, asbytes=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt_error(f"{about} cannot be decompressed: {error}") from error
    return text


def unpack_chunk(data: bytes, wanted: Range) -> list[Row]:
    """Returns the rows of a chunk's file.

    Raises:
        TarnError: CORRUPT: the file does not hold the rows that the index lists.
    """
    about = chunk_file(wanted.digest)
    text = unpack(data, about)
    if hashlib.sha256(text).hexdigest() != wanted.digest:
        raise corrupt_error(
            f"{about} was changed: its content does not have the digest in its name"
        )
    header = _header(wanted.partition)
    if not text.startswith(header):
        raise corrupt_error(f"{about} does not belong to partition {wanted.partition.name!r}")
    rows = list(_rows(text, len(header), about))
    size = sum(len(key) + len(value) for key, value in rows)
    if (len(rows), size) != (wanted.rows, wanted.size_bytes):
        raise corrupt_error(f"{about} has {len(rows)} rows, the index says {wanted.rows}")
    return rows


def _rows(text: bytes, at: int, about: str) -> Iterator[Row]:
    while at < len(text):
        if at + _LENGTHS.size > len(text):
            raise corrupt_error(f"{about} ends in the middle of a row")
        key_bytes, value_bytes = _LENGTHS.unpack_from(text, at)
        at += _LENGTHS.size
        end = at + key_bytes + value_bytes
        if end > len(text):
            raise corrupt_error(f"{about} ends in the middle of a row")
        yield text[at : at + key_bytes], text[at + key_bytes : end]
        at = end


def _header(partition: Partition) -> bytes:
    name = partition.name.encode()
    return b"%s %d %s\n" % (partition.kind.value.encode(), len(name), name)
