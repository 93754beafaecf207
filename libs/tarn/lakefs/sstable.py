"""Reads the sorted tables (SSTables) in which lakeFS keeps listings and dumps of refs.

They are RocksDB's block-based tables, written by Pebble: data blocks, an index, properties, and a footer that finds
them. Nothing in the file is trusted: sizes and counts are bounded, offsets only grow, keys only grow, and each block
is compared with its checksum. A table is read from begin to end, one window of the file at a time.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Final

import pyarrow as pa
from awscrt import checksums

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["BLOCK_BYTES_MAX", "Table", "damaged", "varint"]

BLOCK_BYTES_MAX: Final = 16 << 20
"""Largest block, also when it is decompressed. Pebble ends a block at 4 KiB; one with a larger record has only that."""

_Read = Callable[[int, int], Awaitable[bytes]]
Row = tuple[bytes, bytes]

_WINDOW_BYTES = 4 << 20
_FOOTER_BYTES = 53
_OLD_FOOTER_BYTES = 48
_OLD_MAGIC = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
_MAGICS = {b"\xf7\xcf\xf4\x85\xb7\x41\xe2\x88": (2,), b"\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3": (1, 2)}
"""The last 8 bytes of a table, with the versions that are read: RocksDB's, and Pebble's own without value blocks."""
_CRC32C = 1
_TRAILER_BYTES = 5
_UNCOMPRESSED, _SNAPPY = 0, 1
_EXPANSION_MAX = 64
"""Snappy copies at most 64 bytes for each two or three of its own."""
_SET = 1
_KEY_TRAILER_BYTES = 8
_TWO_LEVELS = 2
_UNFOLDED_BYTES_MAX = 2 * BLOCK_BYTES_MAX
"""Most bytes of the keys and values of a block: a key may repeat much of the one before it by one byte."""
_U32 = struct.Struct("<I")
_snappy: Final = pa.Codec("snappy")


def damaged(name: str, why: str) -> TarnError:
    """Returns the error for a file of lakeFS that cannot be used."""
    text = f"{name} of lakeFS cannot be used: {why}; restore it from another copy of the bucket"
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads an unsigned number of at most 64 bits; returns it and where it ends.

    Raises:
        ValueError: it is longer, or cut off.
    """
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
        shift += 7
        if shift > 63:
            break
    raise ValueError(f"no number ends at byte {at}")


class Table:
    """One table.

    Args:
        name: for errors.
        size: bytes of the file.
        read: returns bytes of the file: `(start, length)`.
    """

    def __init__(self, name: str, size: int, read: _Read) -> None:
        self._name = name
        self._size = size
        self._read = read
        self._window = b""
        self._start = 0

    async def rows(self) -> AsyncGenerator[list[Row], None]:
        """Yields keys and values in order, one block at a time.

        Raises:
            TarnError: CORRUPT: the table is damaged, or no table; errors of `read`.
        """
        try:
            async for block in self._blocks():
                yield block
        except (ValueError, IndexError, struct.error) as error:
            raise damaged(self._name, str(error)) from error

    async def _blocks(self) -> AsyncGenerator[list[Row], None]:
        meta, index = await self._footer()
        properties = await self._properties(meta)
        levels = _U32.unpack(properties.get(b"rocksdb.block.based.table.index.type", bytes(4)))[0]
        if levels not in (0, _TWO_LEVELS):
            raise ValueError(f"its index is of type {levels}")
        expected, _ = varint(properties.get(b"rocksdb.num.entries", b""), 0)
        count, last = 0, None
        async for start, length in self._handles(index, is_deep=levels == _TWO_LEVELS):
            rows = []
            for key, value in _entries(await self._block(start, length)):
                if len(key) < _KEY_TRAILER_BYTES or key[-_KEY_TRAILER_BYTES] != _SET:
                    raise ValueError(f"record {count} is not a plain one")
                user = key[:-_KEY_TRAILER_BYTES]
                if last is not None and user <= last:
                    raise ValueError(f"record {count} is out of order")
                last = user
                count += 1
                rows.append((user, value))
            yield rows
        if count != expected:
            raise ValueError(f"it has {count} records instead of {expected}")

    async def _footer(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns where the directory of meta blocks and the index are."""
        length = min(self._size, _FOOTER_BYTES)
        footer = await self._bytes(self._size - length, length)
        magic = footer[-8:]
        if magic == _OLD_MAGIC and len(footer) >= _OLD_FOOTER_BYTES:
            at, footer = 0, footer[-_OLD_FOOTER_BYTES:]
        elif magic in _MAGICS and len(footer) == _FOOTER_BYTES:
            (version,) = _U32.unpack_from(footer, _FOOTER_BYTES - 12)
            if version not in _MAGICS[magic]:
                raise ValueError(
                    f"its format has version {version}, which this release cannot read"
                )
            if footer[0] != _CRC32C:
                raise ValueError(f"its checksums are of type {footer[0]}, not CRC32C")
            at = 1
        else:
            raise ValueError("it does not end as a table does")
        meta, at = _handle(footer, at)
        index, _ = _handle(footer, at)
        return meta, index

    async def _properties(self, meta: tuple[int, int]) -> dict[bytes, bytes]:
        names = dict(_entries(await self._block(*meta)))
        if b"rocksdb.properties" not in names:
            raise ValueError("it has no properties")
        place, _ = _handle(names[b"rocksdb.properties"], 0)
        return dict(_entries(await self._block(*place)))

    async def _handles(
        self, index: tuple[int, int], *, is_deep: bool
    ) -> AsyncGenerator[tuple[int, int], None]:
        """Yields where the data blocks are. They follow one another, so no block is read twice."""
        end = 0
        for _, value in _entries(await self._block(*index)):
            place, _ = _handle(value, 0)
            lower = (
                [each for _, each in _entries(await self._block(*place))] if is_deep else [value]
            )
            for each in lower:
                (start, length), _ = _handle(each, 0)
                if start < end:
                    raise ValueError(f"its blocks overlap at byte {start}")
                end = start + length + _TRAILER_BYTES
                yield start, length

    async def _block(self, start: int, length: int) -> bytes:
        """Returns a block after comparing it with its checksum."""
        if length > BLOCK_BYTES_MAX:
            raise ValueError(f"a block has {length} bytes, more than {BLOCK_BYTES_MAX}")
        stored = await self._bytes(start, length + _TRAILER_BYTES)
        kind = stored[length]
        (expected,) = _U32.unpack_from(stored, length + 1)
        crc = checksums.crc32c(stored[: length + 1])
        # The format rotates the sum and adds a constant, so that the sum of a block that holds sums differs from them.
        if expected != ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF:
            raise ValueError(f"the block at byte {start} does not match its checksum")
        body = stored[:length]
        if kind == _UNCOMPRESSED:
            return body
        if kind != _SNAPPY:
            raise ValueError(f"a block is compressed in way {kind}; lakeFS uses Snappy")
        size, _ = varint(body, 0)
        if size > min(BLOCK_BYTES_MAX, _EXPANSION_MAX * length):
            raise ValueError(f"the block at byte {start} claims to have {size} bytes")
        try:
            unpacked: bytes = _snappy.decompress(body, size, asbytes=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"the block at byte {start} cannot be decompressed") from error
        return unpacked

    async def _bytes(self, start: int, length: int) -> bytes:
        if start + length > self._size:
            raise ValueError(f"it refers to byte {start + length} of {self._size}")
        at = start - self._start
        if at < 0 or at + length > len(self._window):
            self._window = await self._read(
                start, max(length, min(_WINDOW_BYTES, self._size - start))
            )
            self._start, at = start, 0
        found = self._window[at : at + length]
        if len(found) != length:
            raise ValueError(f"it ends before byte {start + length}")
        return found


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    start, at = varint(data, at)
    length, at = varint(data, at)
    return (start, length), at


def _entries(block: bytes) -> Iterator[Row]:
    """Yields the keys and values of a block, whose keys leave out what they share with the key before."""
    if len(block) < _U32.size:
        raise ValueError("a block has no end")
    (restarts,) = _U32.unpack_from(block, len(block) - _U32.size)
    end = len(block) - _U32.size * (restarts + 1)
    if end < 0:
        raise ValueError(f"a block states {restarts} restarts")
    at, key, unfolded = 0, b"", 0
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        size, at = varint(block, at)
        unfolded += shared + own + size
        if shared > len(key) or at + own + size > end or unfolded > _UNFOLDED_BYTES_MAX:
            raise ValueError(f"a record does not fit into its block, at byte {at}")
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + size]
        at += size
