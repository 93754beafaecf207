"""Writes sorted tables as lakeFS has them, also wrong ones: real lakeFS writes none of those."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from awscrt import checksums

__all__ = [
    "end_of",
    "entries",
    "message",
    "number",
    "stored_block",
    "table",
    "table_with_index",
    "value",
]

Row = tuple[bytes, bytes]
_MAGIC = b"\xf7\xcf\xf4\x85\xb7\x41\xe2\x88"


def number(value: int) -> bytes:
    """Returns a number in groups of 7 bits."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _signed(value: int) -> bytes:
    return number(value * 2 if value >= 0 else -value * 2 - 1)


def value(identity: bytes, record: bytes) -> bytes:
    """Returns a record as it lies in a table."""
    return _signed(len(identity)) + identity + _signed(len(record)) + record


def message(*fields: tuple[int, int | bytes | str]) -> bytes:
    """Returns a message of protobuf: numbers, and texts or messages in it."""
    out = b""
    for field, each in fields:
        if isinstance(each, int):
            out += number(field << 3) + number(each)
        else:
            data = each.encode() if isinstance(each, str) else each
            out += number(field << 3 | 2) + number(len(data)) + data
    return out


def entries(rows: Iterable[Row]) -> bytes:
    """Returns the content of a block, in which keys share what they begin with."""
    body, last = b"", b""
    for key, data in rows:
        shared = next(
            (at for at, pair in enumerate(zip(last, key, strict=False)) if pair[0] != pair[1]),
            min(len(last), len(key)),
        )
        body += number(shared) + number(len(key) - shared) + number(len(data)) + key[shared:] + data
        last = key
    return body + struct.pack("<II", 0, 1)


def stored_block(body: bytes, kind: int = 0) -> bytes:
    """Returns a block with its checksum; `body` is compressed already, as `kind` says."""
    body += bytes([kind])
    crc = checksums.crc32c(body)
    return body + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def end_of(meta: bytes, index: bytes, *, checksum: int = 1, version: int = 2) -> bytes:
    """Returns the end of a table, for two handles."""
    return bytes([checksum]) + (meta + index).ljust(40, b"\0") + struct.pack("<I", version) + _MAGIC


def table_with_index(blocks: bytes, rows: Sequence[Row]) -> bytes:
    """Returns a table of stored blocks, with an index that leads where it likes."""
    out = blocks

    def add(body: bytes) -> bytes:
        nonlocal out
        handle = number(len(out)) + number(len(body))
        out += stored_block(body)
        return handle

    index = add(entries(rows))
    properties = add(entries([(b"rocksdb.num.entries", number(len(rows)))]))
    end = end_of(add(entries([(b"rocksdb.properties", properties)])), index)
    return out + end


def table(
    blocks: Sequence[Sequence[Row]],
    *,
    kind: int = 0,
    deep: bool = False,
    key_kind: int = 1,
    properties: Mapping[bytes, bytes] | None = None,
) -> bytes:
    """Returns a table of these blocks of keys and values.

    Args:
        blocks: none of them empty.
        kind: 0: uncompressed; 1: Snappy.
        deep: the index has two levels.
        key_kind: of the records; 1: plain ones.
        properties: replace those that a table of these rows has.
    """
    out = b""

    def add(body: bytes, kind: int = 0) -> bytes:
        nonlocal out
        if kind == 1:
            body = pa.Codec("snappy").compress(body, asbytes=True)
        stored = stored_block(body, kind)
        handle = number(len(out)) + number(len(stored) - 5)
        out += stored
        return handle

    def inner(key: bytes) -> bytes:
        return key + struct.pack("<Q", key_kind)

    handles = [
        (inner(rows[-1][0]), add(entries((inner(key), data) for key, data in rows), kind))
        for rows in blocks
    ]
    if deep:
        handles = [(key, add(entries([(key, handle)]))) for key, handle in handles]
    index = add(entries(handles))
    about = {
        b"rocksdb.block.based.table.index.type": struct.pack("<I", 2 if deep else 0),
        b"rocksdb.num.entries": number(sum(map(len, blocks))),
        **(properties or {}),
    }
    meta = add(entries([(b"rocksdb.properties", add(entries(sorted(about.items()))))]))
    return out + end_of(meta, index)
