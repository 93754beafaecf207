"""Which packed entries may be stored: one check at the edge of graveler, with the limits of the gateway.

A caller of graveler is not always a gateway. What this check lets through is stored, committed and merged, and then
every reader has to show it: a time that no calendar has, or a line break in a header, breaks the readers of all users.
So an entry is checked once, where it enters, on its packed bytes: no `Entry` is made (bench/entry_check.py).

The check is exact. A tag that this release does not know, a field without a value, and an identity that is not that of
the content are refused; so equal entries have equal bytes, and a difference cannot
be hidden. Entries that are stored already are never checked: they stay readable (`shown_time_us` in `tarn.core.entry`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from tarn.core.entry import (
    ENTRY_BYTES_MAX,
    FLAG_EXTERNAL,
    FLAG_TOMBSTONE,
    HEAD_BYTES,
    METADATA_BYTES_MAX,
    TIME_US_MAX,
    VERSION,
    EntryCorruptError,
    TailTag,
    operation_of,
    packed_strings,
    tombstone_of,
    unpack_head,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.object_tags import TAGS_MAX, is_reserved, is_tag_key, is_tag_value

__all__ = [
    "CHECKSUM_BYTES",
    "HEADER_BYTES_MAX",
    "LINEAGE_BYTES_MAX",
    "OBJECT_BYTES_MAX",
    "PARTS_MAX",
    "TEMPLATE_BYTES_MAX",
    "check_checksum",
    "check_entry",
    "check_template",
    "check_tombstone",
    "invalid_entry",
]

OBJECT_BYTES_MAX: Final = 5 * 1024**4
"""Largest object, also the largest part: S3's limit. The sizes of a million objects add up to less than 2**63."""
PARTS_MAX: Final = 10_000
"""Most parts of an object, and the largest number of one."""
HEADER_BYTES_MAX: Final = 8 * 1024
"""Longest stored header other than user metadata, in bytes as on the wire."""
LINEAGE_BYTES_MAX: Final = 4096
"""Longest audit header of a writing job, in bytes as on the wire."""
TEMPLATE_BYTES_MAX: Final = ENTRY_BYTES_MAX - 512
"""Longest template: leaves room for what a completion adds, the number of parts and their checksums."""
CHECKSUM_BYTES: Final = {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}
"""S3's checksum algorithms, and the sizes of their digests."""

_ZERO: Final = bytes(16)
_HASHED_BEFORE_SIZE: Final = bytes(2)
_HASHED_BEFORE_MD5: Final = bytes(8 + 16)
# A header is Latin-1 text: each character is one byte on the wire (RFC 9110 §5.5).
_HEADER: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_META_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]*")
_OPERATION: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
_SUMS: Final = {
    name: re.compile(f"[A-Za-z0-9+/]{{{-(-size * 4 // 3)}}}={{{-size % 3}}}(-[1-9][0-9]{{0,4}})?")
    for name, size in CHECKSUM_BYTES.items()
}


def invalid_entry(
    field: str, text: str, limit: object = "", reason: Reason = Reason.INVALID_ARGUMENT
) -> TarnError:
    """Returns the error of a caller whose entry has an invalid field; `limit` is the bound that it breaks."""
    about = {"limit": str(limit)} if limit != "" else {}
    return TarnError(Kind.INVALID, reason, f"{field} {text}", field=field, **about)


def check_checksum(field: str, algorithm: str, value: str) -> bool:
    """Checks one checksum in base64; returns whether a number of parts follows, as in `…==-3`.

    Raises:
        TarnError: INVALID_ARGUMENT: an unknown algorithm, or no digest of it.
    """
    form = _SUMS.get(algorithm)
    if form is None:
        text = (
            f"names the checksum algorithm {algorithm[:20]!r}, which is none of {', '.join(_SUMS)}"
        )
        raise invalid_entry(field, text, ", ".join(_SUMS))
    found = form.fullmatch(value)
    if found is None:
        size = CHECKSUM_BYTES[algorithm]
        text = f"is no {algorithm} of {size} bytes in base64: {value[:80]!r}"
        raise invalid_entry(field, text, f"{size} bytes in base64")
    return found[1] is not None


def check_entry(packed: bytes) -> tuple[int, str]:
    """Checks a packed entry that a caller wants to store.

    Returns:
        The size of the object in bytes, and the operation that the entry names (empty: none).

    Raises:
        TarnError: INVALID_ARGUMENT with the field and its limit; METADATA_TOO_LARGE.
    """
    if not HEAD_BYTES <= len(packed) <= ENTRY_BYTES_MAX:
        _check_length(packed, ENTRY_BYTES_MAX)  # raises
    flags, size, mtime_us, address = _check_head(packed)
    if flags:
        _refuse_flags(flags)
    if not 0 <= size <= OBJECT_BYTES_MAX:
        text = f"is {size}, not 0 to {OBJECT_BYTES_MAX} bytes"
        raise invalid_entry("entry.size", text, OBJECT_BYTES_MAX)
    if not 0 <= mtime_us <= TIME_US_MAX:
        text = f"is {mtime_us}, not 0 to {TIME_US_MAX} microseconds since 1970"
        raise invalid_entry("entry.mtime_us", text, TIME_US_MAX)
    if address == _ZERO:
        raise invalid_entry("entry.address", "is zero, so the entry names no block")
    operation = _check_tail(packed, _ENTRY_FIELDS)
    return size, operation


def check_tombstone(packed: bytes) -> str:
    """Checks the tombstone of a conditional delete: a head and its operation, nothing else.

    Returns:
        The operation that it names.

    Raises:
        TarnError: as `check_entry`.
    """
    _check_length(packed, ENTRY_BYTES_MAX)
    try:
        operation = operation_of(packed)
    except EntryCorruptError as error:
        raise invalid_entry("entry", "is no tombstone: its tail is damaged") from error
    _operation(operation.encode())
    if packed != tombstone_of(operation):
        raise invalid_entry("entry", "is no tombstone: it has more than an operation")
    return operation


def check_template(packed: bytes) -> None:
    """Checks the template of an upload or a link: the headers of an object that gets the other fields later.

    Raises:
        TarnError: as `check_entry`.
    """
    _check_length(packed, TEMPLATE_BYTES_MAX)
    flags, _, _, _ = _check_head(packed)
    if flags:
        _refuse_flags(flags)
    _check_tail(packed, _TEMPLATE_FIELDS)


def _check_length(packed: bytes, most: int) -> None:
    if len(packed) > most:
        text = f"has {len(packed)} bytes with its headers; at most {most} are allowed"
        raise invalid_entry("entry", text, most, Reason.METADATA_TOO_LARGE)
    if len(packed) < HEAD_BYTES:
        text = f"has {len(packed)} bytes, less than the {HEAD_BYTES} of its head"
        raise invalid_entry("entry", text, HEAD_BYTES)


def _check_head(packed: bytes) -> tuple[int, int, int, bytes]:
    version, flags, size, mtime_us, address, _, _ = unpack_head(packed)
    if version != VERSION:
        raise invalid_entry("entry.version", f"is {version}, not {VERSION}", VERSION)
    return flags, size, mtime_us, address


def _refuse_flags(flags: int) -> None:
    if flags & FLAG_EXTERNAL:
        text = "is set: objects outside the storage namespace cannot be staged"
        raise invalid_entry("entry.external_address", text)
    what = "is that of a staged delete; use Unstage" if flags & FLAG_TOMBSTONE else "is unknown"
    raise invalid_entry("entry.flags", f"{flags} {what}")


def _check_tail(packed: bytes, fields: dict[int, Callable[[bytes], str]]) -> str:
    """Checks all fields of the tail, and the identity; returns the operation that the entry names, or an empty text."""
    operation, tags = "", b""
    at, end, last, hashed = HEAD_BYTES, len(packed), 0, HEAD_BYTES
    while at < end:
        start = at + 3
        if start > end:
            raise invalid_entry("entry", f"ends inside the head of a field, at byte {at}")
        tag, length = packed[at], packed[at + 1] | packed[at + 2] << 8
        at = start + length
        if at > end or not length or tag <= last:
            _refuse_layout(tag, length, last, is_short=at > end)
        check = fields.get(tag)
        if check is None:
            raise invalid_entry(*_refused_field(tag))
        try:
            text = check(packed[start:at])
        except UnicodeDecodeError as error:
            raise invalid_entry(f"entry.{_NAMES[tag]}", f"is not UTF-8: {error.reason}") from error
        if tag == TailTag.OPERATION:
            operation = text
        elif tag < TailTag.LINEAGE:
            hashed = at
        elif tag == TailTag.TAGS:
            tags = packed[start - 3 : at]
        last = tag
    identity = hashlib.blake2b(
        b"".join(
            (
                _HASHED_BEFORE_SIZE,
                packed[2:10],
                _HASHED_BEFORE_MD5,
                packed[34:50],
                _ZERO,
                packed[HEAD_BYTES:hashed],
                tags,
            )
        ),
        digest_size=16,
    ).digest()
    if packed[50:HEAD_BYTES] != identity:
        text = f"is {packed[50:HEAD_BYTES].hex()}, but that of this content is {identity.hex()}"
        raise invalid_entry("entry.identity", text)
    return operation


def _refuse_layout(tag: int, length: int, last: int, *, is_short: bool) -> None:
    name = f"entry.{_NAMES.get(tag, tag)}"
    if is_short:
        raise invalid_entry(name, f"has {length} bytes and runs over the end of the entry")
    if not length:
        raise invalid_entry(name, "is present and empty; leave it out")
    raise invalid_entry(name, f"follows field {last}; fields come once, in order of their tags")


def _refused_field(tag: int) -> tuple[str, str]:
    name = f"entry.{_NAMES.get(tag, tag)}"
    if tag == TailTag.EXTERNAL_ADDRESS:
        return name, "is set: objects outside the storage namespace cannot be staged"
    if tag in (TailTag.REPLACED, TailTag.PARTS):
        return name, "is set by graveler, not by callers"
    if tag in _NAMES:
        return name, "belongs to the finished object, not to a template"
    return name, "is a field that this release does not know"


def _text_of(name: str, most: int) -> Callable[[bytes], str]:
    def check(value: bytes) -> str:
        text = value.decode()
        if len(text) > most:
            raise invalid_entry(f"entry.{name}", f"is longer than {most} bytes", most)
        if not _HEADER.fullmatch(text):
            raise invalid_entry(
                f"entry.{name}", f"holds characters that no header can have: {text[:80]!r}"
            )
        return text

    return check


def _operation(value: bytes) -> str:
    text = value.decode()
    if not _OPERATION.fullmatch(text):
        rule = "1 to 64 letters, digits, '_' and '-'"
        raise invalid_entry("entry.operation_id", f"{text[:80]!r} is not {rule}", rule)
    return text


def _strings_of(field: str, value: bytes, group: int) -> list[str]:
    try:
        strings = packed_strings(value, value)
    except EntryCorruptError as error:
        raise invalid_entry(field, "is no list of texts") from error
    if len(strings) % group:
        raise invalid_entry(field, f"has {len(strings)} texts, not {group} for each item")
    return strings


def _metadata(value: bytes) -> str:
    field = "entry.metadata"
    strings = _strings_of(field, value, 2)
    # Each text has a length of two bytes before it.
    size = len(value) - 2 * len(strings)
    if size > METADATA_BYTES_MAX:
        text = f"has {size} bytes of names and values; at most {METADATA_BYTES_MAX} are allowed"
        raise invalid_entry(field, text, METADATA_BYTES_MAX, Reason.METADATA_TOO_LARGE)
    last: str | None = None
    # Values may be any text: they are encoded when they become headers.
    for name in strings[::2]:
        if not _META_NAME.fullmatch(name):
            raise invalid_entry(field, f"has the name {name[:80]!r}, which is no lower-case token")
        if last is not None and name <= last:
            raise invalid_entry(field, f"has the name {name[:80]!r} after {last[:80]!r}")
        last = name
    return ""


def _tags(value: bytes) -> str:
    field = "entry.tags"
    strings = _strings_of(field, value, 2)
    if len(strings) > 2 * TAGS_MAX:
        text = f"has {len(strings) // 2} tags; at most {TAGS_MAX} are allowed"
        raise invalid_entry(field, text, TAGS_MAX)
    last = ""
    for key, text in zip(strings[::2], strings[1::2], strict=True):
        if not is_tag_key(key) or is_reserved(key):
            raise invalid_entry(field, f"has the key {key[:80]!r}, which no tag can have")
        if not is_tag_value(text):
            raise invalid_entry(field, f"has the value {text[:80]!r}, which no tag can have")
        if key <= last:
            raise invalid_entry(field, f"has the key {key[:80]!r} after {last[:80]!r}")
        last = key
    return ""


def _checksums(value: bytes) -> str:
    field = "entry.checksums"
    strings = _strings_of(field, value, 3)
    names = strings[::3]
    if len(set(names)) != len(names):
        raise invalid_entry(field, "has two values for one algorithm")
    for at, algorithm in enumerate(names):
        text, form = strings[3 * at + 1], strings[3 * at + 2]
        if check_checksum(field, algorithm, text) != (form == "C") or form not in ("C", "F"):
            raise invalid_entry(field, f"{text} is not of the form {form[:8]!r} that it states")
    return ""


def _judged_move(value: bytes) -> str:
    # Ignored: graveler sets its own for a conditional write, and reads it for no other. Gateways of release 0.9.0 copy
    # the one of the source.
    if len(value) != 8:
        raise invalid_entry("entry.judged_move_us", f"has {len(value)} bytes, not 8", 8)
    return ""


def _etag_parts(value: bytes) -> str:
    parts = int.from_bytes(value, "little")
    if len(value) != 4 or not 1 <= parts <= PARTS_MAX:
        text = f"is {parts} in {len(value)} bytes, not 1 to {PARTS_MAX} in 4"
        raise invalid_entry("entry.etag_parts", text, PARTS_MAX)
    return ""


_NAMES: Final = {
    TailTag.CONTENT_TYPE: "content_type",
    TailTag.METADATA: "metadata",
    TailTag.CONTENT_ENCODING: "content_encoding",
    TailTag.CACHE_CONTROL: "cache_control",
    TailTag.CONTENT_DISPOSITION: "content_disposition",
    TailTag.CONTENT_LANGUAGE: "content_language",
    TailTag.EXPIRES: "expires",
    TailTag.ETAG_PARTS: "etag_parts",
    TailTag.CHECKSUMS: "checksums",
    TailTag.LINEAGE: "lineage",
    TailTag.OPERATION: "operation_id",
    TailTag.JUDGED_MOVE: "judged_move_us",
    TailTag.REPLACED: "replaced_address",
    TailTag.PARTS: "parts",
    TailTag.EXTERNAL_ADDRESS: "external_address",
    TailTag.TAGS: "tags",
}
_TEMPLATE_FIELDS: Final[dict[int, Callable[[bytes], str]]] = {
    **{
        tag: _text_of(_NAMES[tag], HEADER_BYTES_MAX)
        for tag in (
            TailTag.CONTENT_TYPE,
            TailTag.CONTENT_ENCODING,
            TailTag.CACHE_CONTROL,
            TailTag.CONTENT_DISPOSITION,
            TailTag.CONTENT_LANGUAGE,
            TailTag.EXPIRES,
        )
    },
    TailTag.METADATA: _metadata,
    TailTag.LINEAGE: _text_of("lineage", LINEAGE_BYTES_MAX),
    TailTag.TAGS: _tags,
}
_ENTRY_FIELDS: Final[dict[int, Callable[[bytes], str]]] = {
    **_TEMPLATE_FIELDS,
    TailTag.ETAG_PARTS: _etag_parts,
    TailTag.CHECKSUMS: _checksums,
    TailTag.OPERATION: _operation,
    TailTag.JUDGED_MOVE: _judged_move,
}
