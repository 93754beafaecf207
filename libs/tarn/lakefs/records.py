"""The records in lakeFS's tables: entries of listings, ranges, commits, branches and tags.

A value in a table is a pair of texts with lengths: the record's identity, and the record itself in protobuf's
encoding. The field numbers are those of lakeFS 1.84. Nothing is trusted; a record that does not fit is a `ValueError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tarn.core.entry import TIME_US_MAX
from tarn.lakefs.sstable import varint

__all__ = [
    "PeerCommit",
    "PeerEntry",
    "PeerRange",
    "commit_of",
    "entry_of",
    "pair_of",
    "range_of",
    "ref_of",
]

_FILE_ID = re.compile(r"[0-9a-f]{8,128}")
_PARENTS_MAX = 16
_COUNT_MAX = (1 << 62) - 1
_RELATIVE, _FULL = 1, 2


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """An object in a listing of lakeFS.

    Attributes:
        address: relative to the storage namespace, or a whole URI.
        is_full: the address is a URI.
        etag: lakeFS's checksum: an MD5 in hex, for most objects.
        metadata: of the user, names as they were given.
    """

    address: str
    is_full: bool
    size: int
    mtime_us: int
    etag: str
    content_type: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class PeerRange:
    """A range in a listing of lakeFS: paths up to `max_path`, and no path of another range."""

    range_id: str
    min_path: bytes
    max_path: bytes
    count: int


@dataclass(frozen=True, slots=True)
class PeerCommit:
    """A commit of lakeFS."""

    commit_id: str
    committer: str
    message: str
    time_us: int
    metarange_id: str
    metadata: dict[str, str]
    parents: tuple[str, ...]
    generation: int


def pair_of(value: bytes) -> tuple[bytes, bytes]:
    """Returns the identity and the record of a value in a table."""
    identity, at = _text(value, 0)
    record, _ = _text(value, at)
    return identity, record


def _text(value: bytes, at: int) -> tuple[bytes, int]:
    length, at = varint(value, at)
    # The length is signed, in zigzag encoding.
    end = at + (length >> 1)
    if length & 1 or end > len(value):
        raise ValueError("a value has a wrong length")
    return value[at:end], end


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the fields of a message: numbers, and texts as bytes. Fields of other kinds are passed over."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield number, value
        elif kind == 2:
            length, at = varint(data, at)
            if at + length > len(data):
                raise ValueError(f"field {number} runs over the end of its record")
            yield number, data[at : at + length]
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"field {number} has the unknown kind {kind}")
    if at > len(data):
        raise ValueError("a record ends inside a field")


class _Message:
    """A message, by field number; the last value of a field counts, as in protobuf."""

    def __init__(self, data: bytes) -> None:
        self._all = list(_fields(data))
        self._last = dict(self._all)

    def number(self, field: int) -> int:
        value = self._last.get(field, 0)
        if not isinstance(value, int):
            raise ValueError(f"field {field} is no number")
        return value - (1 << 64) if value >> 63 else value

    def raw(self, field: int) -> bytes:
        value = self._last.get(field, b"")
        if not isinstance(value, bytes):
            raise ValueError(f"field {field} is no text")
        return value

    def text(self, field: int) -> str:
        return self.raw(field).decode()

    def many(self, field: int) -> list[bytes]:
        return [each for number, each in self._all if number == field and isinstance(each, bytes)]

    def texts(self, field: int) -> dict[str, str]:
        pairs = (_Message(each) for each in self.many(field))
        return {each.text(1): each.text(2) for each in pairs}

    def time_us(self, field: int) -> int:
        stamp = _Message(self.raw(field))
        time_us = stamp.number(1) * 1_000_000 + stamp.number(2) // 1000
        return min(max(time_us, 0), TIME_US_MAX)


def entry_of(data: bytes) -> PeerEntry:
    """Returns the entry of an object."""
    message = _Message(data)
    address, kind, size = message.text(1), message.number(6), message.number(3)
    if size < 0:
        raise ValueError(f"an object has {size} bytes")
    is_full = kind == _FULL or (kind != _RELATIVE and "://" in address)
    return PeerEntry(
        address,
        is_full,
        size,
        message.time_us(2),
        message.text(4),
        message.text(7),
        message.texts(5),
    )


def range_of(key: bytes, value: bytes) -> PeerRange:
    """Returns the range of a record of a listing, whose key is its last path."""
    identity, data = pair_of(value)
    message, range_id = _Message(data), file_id(identity.decode())
    found = PeerRange(range_id, message.raw(1), message.raw(2), message.number(4))
    if found.max_path != key or found.min_path > key or found.count < 0:
        raise ValueError(f"range {range_id} has wrong bounds")
    return found


def file_id(value: str) -> str:
    """Checks the id of a range or listing, because it becomes the name of a file."""
    if not _FILE_ID.fullmatch(value):
        raise ValueError(f"{value[:80]!a} is no id of a file of lakeFS")
    return value


def commit_of(data: bytes) -> PeerCommit:
    """Returns a commit. The listing of the first commit of a repository has no id."""
    message = _Message(data)
    parents = tuple(each.decode() for each in message.many(7))
    if len(parents) > _PARENTS_MAX:
        raise ValueError(f"a commit has {len(parents)} parents")
    listing = message.text(5)
    return PeerCommit(
        file_id(message.text(1)),
        message.text(2),
        message.text(3),
        message.time_us(4),
        file_id(listing) if listing else "",
        message.texts(6),
        tuple(file_id(each) for each in parents),
        min(max(message.number(9), 0), _COUNT_MAX),
    )


def ref_of(data: bytes) -> tuple[str, str]:
    """Returns the name of a branch or tag, and its commit."""
    message = _Message(data)
    return message.text(1), file_id(message.text(2))
