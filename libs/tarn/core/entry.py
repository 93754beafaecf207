"""The packed entry: one encoding of an object's version, used from the gateway to KV and range files.

Layout (little-endian), version 1; golden bytes in `docs/formats/entry.md`:

    offset size field
    0      1    version (1)
    1      1    flags: 1 tombstone, 2 external address
    2      8    size, bytes
    10     8    mtime, microseconds since the epoch
    18     16   address: UUIDv7 of the block; zeros with an external address
    34     16   MD5 of the body, or of the parts' MD5s for a multipart ETag
    50     16   identity: BLAKE2b-128 over size, MD5 and the tail without lineage, operation, judged move, parts and
                external address
    66     …    tail: fields `tag u8, length u16, bytes`, tags ascending, each at most once

The head has a fixed size, so that a million entries become Arrow columns by slicing, without a Python object
each; a protobuf per entry would cost 2 to 3 s per million (docs/design/metadata.md, "One form of an entry").
The identity excludes the address and the time, so writing the same object again is not a change. A *tombstone*
is a staged delete: a head, all zeros except version and flag. That of a conditional delete has a tail with its
operation and judged move.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = [
    "ADDRESS_AT",
    "Checksum",
    "ENTRY_BYTES_MAX",
    "Entry",
    "EntryCorruptError",
    "HEAD_BYTES",
    "TOMBSTONE",
    "METADATA_BYTES_MAX",
    "TIME_US_MAX",
    "TailTag",
    "address_of",
    "etag_of",
    "has_tags",
    "identity_of",
    "is_tombstone",
    "judged_at",
    "judged_move_of",
    "ListedEntry",
    "listed_of",
    "operation_of",
    "pack",
    "packed_strings",
    "replaced_of",
    "replacing",
    "shown_time_us",
    "size_of",
    "tombstone_of",
    "unpack",
    "unpack_head",
    "with_parts",
]

VERSION = 1
FLAG_TOMBSTONE = 1
FLAG_EXTERNAL = 2
HEAD_BYTES = 66
ADDRESS_AT: Final = slice(18, 34)
"""Where the address is in a packed entry, also in one that has no block; see `address_of`."""
ENTRY_BYTES_MAX = 12 * 1024
"""Bound of a packed entry that a client may store, so that a page of a thousand entries fits a message."""
METADATA_BYTES_MAX = 2048
"""S3's limit on user metadata: the sum of the UTF-8 bytes of names and values."""
TIME_US_MAX = 253_402_214_399_999_999
"""The last microsecond but a day of the year 9999, in Unix time: calendars end there, in every time zone."""

_HEAD = struct.Struct("<BBqq16s16s16s")
_SIZE = struct.Struct("<q")
_LISTED = struct.Struct("<Hqq16s16s")  # of the head; version and flags are read as one number
_LISTED_MASK = (FLAG_TOMBSTONE | FLAG_EXTERNAL) << 8 | 0xFF
_FIELD = struct.Struct("<BH")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_ZERO = bytes(16)
_JUDGED_SIZE = "a judged move of the wrong size"
_REPLACED_SIZE = "a replaced address of the wrong size"


class TailTag:
    """Numbers of the tail's fields. Content type and user metadata come first (range columns)."""

    CONTENT_TYPE = 1
    METADATA = 2
    CONTENT_ENCODING = 3
    CACHE_CONTROL = 4
    CONTENT_DISPOSITION = 5
    CONTENT_LANGUAGE = 6
    EXPIRES = 7
    ETAG_PARTS = 8
    CHECKSUMS = 9
    LINEAGE = 10
    OPERATION = 11
    JUDGED_MOVE = 12
    REPLACED = 13
    PARTS = 14
    EXTERNAL_ADDRESS = 15
    TAGS = 16


_NO_IDENTITY = frozenset({TailTag.LINEAGE, TailTag.OPERATION, TailTag.JUDGED_MOVE, TailTag.PARTS})
"""Fields about the write, and the parts, which follow from the MD5 of the parts' MD5s; they are not part of the
identity."""

_TEXT_NAMES = {
    TailTag.CONTENT_TYPE: "content_type",
    TailTag.CONTENT_ENCODING: "content_encoding",
    TailTag.CACHE_CONTROL: "cache_control",
    TailTag.CONTENT_DISPOSITION: "content_disposition",
    TailTag.CONTENT_LANGUAGE: "content_language",
    TailTag.EXPIRES: "expires",
    TailTag.LINEAGE: "lineage",
    TailTag.OPERATION: "operation_id",
    TailTag.EXTERNAL_ADDRESS: "external_address",
}
_texts_of = attrgetter(*_TEXT_NAMES.values())


class EntryCorruptError(TarnError):
    """Bytes that are not a packed entry of a version that this code reads."""

    def __init__(self, detail: str, packed: bytes) -> None:
        head = bytes(packed[:HEAD_BYTES]).hex()
        text = f"packed entry of {len(packed)} bytes: {detail}; head {head}"
        super().__init__(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum that the client sent or asked for, as S3 names it.

    Attributes:
        algorithm: `CRC32`, `CRC32C`, `CRC64NVME`, `SHA1` or `SHA256`.
        value: base64 as on the wire; with `-N` appended for a composite one of N parts.
        composite: computed from the parts' checksums (S3 `COMPOSITE`), not from the whole body.
    """

    algorithm: str
    value: str
    composite: bool = False


@hot_value
class Entry:
    """One version of an object.

    Attributes:
        size: size of the object in bytes.
        mtime_us: microseconds since the epoch; the same in all attempts of one write.
        address: 16-byte UUIDv7 of the block; zeros if `external_address` is set.
        md5: 16 bytes; of the whole body, or of the concatenated part MD5s if `etag_parts` is not 0.
        etag_parts: number of parts of a multipart object, 0 for any other object.
        content_type: empty means S3's default, `binary/octet-stream`.
        metadata: user metadata (`x-amz-meta-*`), lower-case names without the prefix, sorted.
        checksums: at most one per algorithm.
        lineage: the S3A audit header of the writing job, or empty.
        operation_id: of a conditional write: identifies it, so that a repeated attempt finds an earlier one.
        judged_move_us: of a conditional write: `Branch.move_time_us` of the record by which graveler judged its
            condition (rule 9); 0 for any other entry.
        replaced_address: address of the erased block of the committed entry that this one replaced, although it is the
            same object (docs/design/erase.md); empty for any other entry. It is part of the identity.
        external_address: location of the bytes if they are not in the namespace, else empty.
        parts: sizes and checksums of the parts of a multipart object, as `tarn.core.part_list` encodes them, not
            checked; empty if none are kept. Only graveler sets it, when an upload is completed.
        tags: object tags (`tarn.core.object_tags`): keys and values, sorted by their unique keys. They are part of the
            identity.
    """

    size: int
    mtime_us: int
    address: bytes
    md5: bytes
    etag_parts: int = 0
    content_type: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    content_encoding: str = ""
    cache_control: str = ""
    content_disposition: str = ""
    content_language: str = ""
    expires: str = ""
    lineage: str = ""
    operation_id: str = ""
    judged_move_us: int = 0
    replaced_address: bytes = b""
    external_address: str = ""
    checksums: tuple[Checksum, ...] = field(default=())
    parts: bytes = b""
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def etag(self) -> str:
        """The ETag without quotes: 32 hex digits, with `-N` appended for N parts."""
        return f"{self.md5.hex()}-{self.etag_parts}" if self.etag_parts else self.md5.hex()


def _strings(values: list[bytes]) -> bytes:
    if max(map(len, values)) > 0xFFFF:
        text = "a text in the metadata of an entry has more than 65535 bytes"
        raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
    return b"".join(_U16.pack(len(value)) + value for value in values)


def _pairs(named: tuple[tuple[str, str], ...]) -> bytes:
    return _strings([part.encode() for pair in named for part in pair])


@lru_cache(maxsize=64)  # most objects have one of a few types, and nothing else
def _text_fields(texts: tuple[str, ...]) -> tuple[tuple[int, bytes], ...]:
    return tuple(
        [(tag, text.encode()) for tag, text in zip(_TEXT_NAMES, texts, strict=True) if text]
    )


def _tail_fields(entry: Entry) -> list[tuple[int, bytes]]:
    fields = list(_text_fields(_texts_of(entry)))
    if entry.metadata:
        fields.append((TailTag.METADATA, _pairs(entry.metadata)))
    if entry.tags:
        fields.append((TailTag.TAGS, _pairs(entry.tags)))
    if entry.etag_parts:
        fields.append((TailTag.ETAG_PARTS, _U32.pack(entry.etag_parts)))
    if entry.judged_move_us:
        fields.append((TailTag.JUDGED_MOVE, _I64.pack(entry.judged_move_us)))
    if entry.replaced_address:
        fields.append((TailTag.REPLACED, entry.replaced_address))
    if entry.parts:
        fields.append((TailTag.PARTS, entry.parts))
    if entry.checksums:
        parts = [
            part.encode()
            for checksum in entry.checksums
            for part in (checksum.algorithm, checksum.value, "C" if checksum.composite else "F")
        ]
        fields.append((TailTag.CHECKSUMS, _strings(parts)))
    fields.sort()
    return fields


def pack(entry: Entry) -> bytes:
    """Encodes an entry canonically: equal entries give equal bytes.

    Raises:
        TarnError: INVALID: a tail field is longer than 65,535 bytes.
    """
    assert len(entry.address) == 16, "an address must have 16 bytes"
    assert len(entry.md5) == 16, "an MD5 must have 16 bytes"
    return _packed(entry.size, entry.mtime_us, entry.address, entry.md5, _tail_fields(entry))


def _packed(
    size: int, mtime_us: int, address: bytes, md5: bytes, fields: Iterable[tuple[int, bytes]]
) -> bytes:
    """Encodes an entry from the fields of its head and its tail; these in ascending order of their tags."""
    tail = []
    identity = hashlib.blake2b(digest_size=16)
    identity.update(_HEAD.pack(0, 0, size, 0, _ZERO, md5, _ZERO))
    flags = 0
    for tag, value in fields:
        if len(value) > 0xFFFF:
            text = f"field {tag} of an entry has {len(value)} bytes, more than 65535"
            raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
        packed = _FIELD.pack(tag, len(value)) + value
        tail.append(packed)
        if tag == TailTag.EXTERNAL_ADDRESS:
            flags |= FLAG_EXTERNAL
        elif tag not in _NO_IDENTITY:
            identity.update(packed)
    head = _HEAD.pack(VERSION, flags, size, mtime_us, address, md5, identity.digest())
    return head + b"".join(tail)


TOMBSTONE = _HEAD.pack(VERSION, FLAG_TOMBSTONE, 0, 0, _ZERO, _ZERO, _ZERO)
"""The packed tombstone of a plain delete."""


def tombstone_of(operation_id: str) -> bytes:
    """Returns the packed tombstone of a conditional delete, which names its operation."""
    operation = operation_id.encode()
    return TOMBSTONE + _FIELD.pack(TailTag.OPERATION, len(operation)) + operation


def operation_of(packed: bytes) -> str:
    """The id of the conditional write that made an entry or a tombstone; empty for any other.

    Raises:
        EntryCorruptError: as `unpack`, for damage.
    """
    if len(packed) == HEAD_BYTES:
        return ""
    if is_tombstone(packed):
        return _read_tombstone(packed)[0]
    return unpack(packed).operation_id


def judged_move_of(packed: bytes) -> int:
    """`Entry.judged_move_us` of a packed entry, or of the tombstone of a conditional delete.

    Raises:
        EntryCorruptError: as `unpack`, for damage.
    """
    if len(packed) == HEAD_BYTES:
        return 0
    if is_tombstone(packed):
        return _read_tombstone(packed)[1]
    return unpack(packed).judged_move_us


def judged_at(packed: bytes, move_time_us: int) -> bytes:
    """Returns the packed entry with another `Entry.judged_move_us`. Its identity and all other fields stay.

    Raises:
        EntryCorruptError: as `unpack`, for damage in the tail.
    """
    return _with_field(
        packed, TailTag.JUDGED_MOVE, _I64.pack(move_time_us) if move_time_us else b""
    )


def with_parts(packed: bytes, parts: bytes) -> bytes:
    """Returns the packed entry with other `Entry.parts`, at most 65,535 bytes. Its identity and other fields stay.

    Raises:
        EntryCorruptError: as `unpack`, for damage in the tail.
    """
    return _with_field(packed, TailTag.PARTS, parts)


def _with_field(packed: bytes, tag: int, value: bytes) -> bytes:
    """Replaces a field that is not part of the identity; empty takes it off."""
    assert tag in _NO_IDENTITY, "the identity must stay"
    fields = _read_tail(packed)
    fields.pop(tag, None)
    if value:
        fields[tag] = value
    tail = (_FIELD.pack(each, len(kept)) + kept for each, kept in sorted(fields.items()))
    return packed[:HEAD_BYTES] + b"".join(tail)


def replaced_of(packed: bytes) -> bytes:
    """`Entry.replaced_address` of a packed entry.

    Raises:
        EntryCorruptError: as `unpack`, for damage in the tail.
    """
    address = _read_tail(packed).get(TailTag.REPLACED, b"")
    if len(address) not in {0, 16}:
        raise EntryCorruptError(_REPLACED_SIZE, packed)
    return address


def replacing(packed: bytes, address: bytes) -> bytes:
    """Returns the packed entry with another `Entry.replaced_address`, which changes its identity; empty takes it off.

    An entry that has this address already is returned as it is, byte for byte.

    Raises:
        EntryCorruptError: as `unpack`, for damage in the tail.
    """
    assert len(address) in {0, 16}, "an address must have 16 bytes"
    fields = _read_tail(packed)
    if fields.pop(TailTag.REPLACED, b"") == address:
        return packed
    if address:
        fields[TailTag.REPLACED] = address
    _, _, size, mtime_us, own, md5, _ = _HEAD.unpack_from(packed)
    return _packed(size, mtime_us, own, md5, sorted(fields.items()))


def has_tags(packed: bytes) -> bool:
    """Whether a packed entry has object tags.

    Raises:
        EntryCorruptError: as `unpack`, for damage in the tail.
    """
    return TailTag.TAGS in _read_tail(packed)


def unpack_head(packed: bytes) -> tuple[int, int, int, int, bytes, bytes, bytes]:
    """Version, flags, size, time, address, MD5 and identity of a packed entry that is at least a head."""
    head: tuple[int, int, int, int, bytes, bytes, bytes] = _HEAD.unpack_from(packed)
    return head


def is_tombstone(packed: bytes | memoryview) -> bool:
    """Whether a packed entry is a tombstone."""
    return bool(packed[1] & FLAG_TOMBSTONE)


def size_of(packed: bytes | memoryview) -> int:
    """The size of the object, in bytes, read without unpacking the rest."""
    size: int = _SIZE.unpack_from(packed, 2)[0]
    return size


def identity_of(packed: bytes | memoryview) -> bytes:
    """The identity: 16 bytes, the same for equal versions of an object."""
    return bytes(packed[50:HEAD_BYTES])


def address_of(packed: bytes) -> bytes | None:
    """Returns the address of a packed entry's block; None if it has no block of its own.

    That is: a tombstone, an external address, or zeros, which no block can have.
    """
    address = packed[ADDRESS_AT]
    if packed[1] & (FLAG_TOMBSTONE | FLAG_EXTERNAL) or address == _ZERO:
        return None
    return address


def shown_time_us(time_us: int) -> int:
    """Returns the nearest time that can be shown: no check kept older releases from storing others."""
    return min(max(time_us, 0), TIME_US_MAX)


def etag_of(packed: bytes) -> str:
    """The ETag without quotes, read without unpacking the rest."""
    if len(packed) == HEAD_BYTES:
        return packed[34:50].hex()
    return unpack(packed).etag


_BARE = Entry(0, 0, _ZERO, _ZERO)
"""Is like all entries without a tail."""


ListedEntry = tuple[int, str, int, bytes, Entry]
"""What listings show of an entry, see `listed_of`."""


def listed_of(entries: Iterable[bytes]) -> list[ListedEntry]:
    """What listings show of each entry: size in bytes, ETag without quotes, time in Unix microseconds, address of 16
    bytes, and an entry that has the same content type, user metadata and external address.

    Entries that were written alike have one such entry together: it is unpacked once. A time that cannot be shown is
    replaced by the nearest one (`shown_time_us`).

    Raises:
        EntryCorruptError: as `unpack`, for damage in the bytes that are read.
    """
    read_head, last_tag = _LISTED.unpack_from, TailTag.ETAG_PARTS
    listed: list[ListedEntry] = []
    # By what their tails have before the first field that no listing shows, such as checksums.
    alike: dict[bytes, Entry] = {}
    # The last tail, and an entry like it; None after one whose bytes are elsewhere.
    like, suffix = _BARE, ""
    last: bytes | None = b""
    for packed in entries:
        if len(packed) < HEAD_BYTES:
            unpack(packed)  # raises, as the calls below do
        head, size, mtime_us, address, md5 = read_head(packed)
        tail = packed[HEAD_BYTES:]
        if head & _LISTED_MASK != VERSION or size < 0:
            like, last = unpack(packed), None  # its bytes are elsewhere, or it is damaged
            suffix = f"-{like.etag_parts}" if like.etag_parts else ""
        elif tail != last:
            at, end = 0, len(tail)
            # One call per entry, or one struct per field, would take 1.5 times as long.
            while at < end and tail[at] <= last_tag:
                if at + 3 > end:
                    unpack(packed)
                at += 3 + (tail[at + 1] | tail[at + 2] << 8)
            found = alike.get(tail[:at])
            if found is None:
                found = alike[tail[:at]] = unpack(packed)
            like, last = found, tail
            suffix = f"-{like.etag_parts}" if like.etag_parts else ""
        if not 0 <= mtime_us <= TIME_US_MAX:
            mtime_us = shown_time_us(mtime_us)
        listed.append((size, md5.hex() + suffix, mtime_us, address, like))
    return listed


def packed_strings(value: bytes, packed: bytes) -> list[str]:
    """Returns the texts of a string list in an entry's tail. `packed` is the entry, for the error.

    Raises:
        EntryCorruptError: the list ends inside a text.
        UnicodeDecodeError: a text is not UTF-8.
    """
    out, at = [], 0
    while at < len(value):
        if at + 2 > len(value):
            raise EntryCorruptError("a string list ends inside a length", packed)
        (length,) = _U16.unpack_from(value, at)
        at += 2
        if at + length > len(value):
            raise EntryCorruptError("a string list ends inside a string", packed)
        out.append(value[at : at + length].decode())
        at += length
    return out


def _read_tail(packed: bytes) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    at, last = HEAD_BYTES, 0
    while at < len(packed):
        if at + _FIELD.size > len(packed):
            raise EntryCorruptError(f"the tail ends inside a field head at {at}", packed)
        tag, length = _FIELD.unpack_from(packed, at)
        at += _FIELD.size
        if at + length > len(packed):
            raise EntryCorruptError(f"field {tag} runs over the end", packed)
        if tag <= last:
            raise EntryCorruptError(f"field {tag} after field {last}", packed)
        fields[tag] = packed[at : at + length]
        at, last = at + length, tag
    return fields


def _read_tombstone(packed: bytes) -> tuple[str, int]:
    """Returns the operation and the judged move of a tombstone. Ignores unknown tail tags."""
    fields = _read_tail(packed)
    judged = fields.get(TailTag.JUDGED_MOVE, bytes(8))
    if len(judged) != 8:
        raise EntryCorruptError(_JUDGED_SIZE, packed)
    try:
        return fields.get(TailTag.OPERATION, b"").decode(), _I64.unpack(judged)[0]
    except UnicodeDecodeError as error:
        raise EntryCorruptError(f"not UTF-8: {error.reason}", packed) from error


def unpack(packed: bytes) -> Entry:
    """Decodes an entry. Ignores unknown tail tags, which a later version may have written.

    Raises:
        EntryCorruptError: the bytes are damaged, are a tombstone, or have a version that this code does not
            know.
    """
    if len(packed) < HEAD_BYTES:
        raise EntryCorruptError("shorter than the head", packed)
    version, flags, size, mtime_us, address, md5, _ = _HEAD.unpack_from(packed)
    if version != VERSION:
        raise EntryCorruptError(f"version {version} is not {VERSION}", packed)
    if flags & FLAG_TOMBSTONE:
        raise EntryCorruptError("it is a tombstone, not an entry", packed)
    if size < 0:
        raise EntryCorruptError("a negative size", packed)
    if len(packed) == HEAD_BYTES:
        return Entry(size, mtime_us, address, md5)
    found: dict[str, Any] = {}
    try:
        for tag, value in _read_tail(packed).items():
            if (name := _TEXT_NAMES.get(tag)) is not None:
                found[name] = value.decode()
            elif (kind := _OTHER_FIELDS.get(tag)) is not None:
                found[kind[0]] = kind[1](value, packed)
    except UnicodeDecodeError as error:
        raise EntryCorruptError(f"not UTF-8: {error.reason}", packed) from error
    return Entry(size, mtime_us, address, md5, **found)


def _tuples_of(value: bytes, packed: bytes, of_each: int) -> Iterator[tuple[str, ...]]:
    texts = packed_strings(value, packed)
    if len(texts) % of_each:
        raise EntryCorruptError("a string list of the wrong length", packed)
    return zip(*[iter(texts)] * of_each, strict=True)


def _read_pairs(value: bytes, packed: bytes) -> tuple[tuple[str, ...], ...]:
    return tuple(_tuples_of(value, packed, 2))


def _read_checksums(value: bytes, packed: bytes) -> tuple[Checksum, ...]:
    rows = _tuples_of(value, packed, 3)
    return tuple(Checksum(algorithm, text, kind == "C") for algorithm, text, kind in rows)


def _read_etag_parts(value: bytes, packed: bytes) -> int:
    if len(value) != 4:
        raise EntryCorruptError("a part count of the wrong size", packed)
    number: int = _U32.unpack(value)[0]
    return number


def _read_judged_move(value: bytes, packed: bytes) -> int:
    if len(value) != 8:
        raise EntryCorruptError(_JUDGED_SIZE, packed)
    time_us: int = _I64.unpack(value)[0]
    return time_us


def _read_replaced(value: bytes, packed: bytes) -> bytes:
    if len(value) not in {0, 16}:
        raise EntryCorruptError(_REPLACED_SIZE, packed)
    return value


_OTHER_FIELDS: dict[int, tuple[str, Callable[[bytes, bytes], object]]] = {
    TailTag.METADATA: ("metadata", _read_pairs),
    TailTag.ETAG_PARTS: ("etag_parts", _read_etag_parts),
    TailTag.CHECKSUMS: ("checksums", _read_checksums),
    TailTag.JUDGED_MOVE: ("judged_move_us", _read_judged_move),
    TailTag.REPLACED: ("replaced_address", _read_replaced),
    TailTag.PARTS: ("parts", lambda value, _: value),
    TailTag.TAGS: ("tags", _read_pairs),
}
"""Fields that are no texts: their names, and what reads them; it is told the whole entry, for errors."""
