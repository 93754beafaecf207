"""Packed entries: any bytes are an entry or are damaged; an entry that is read survives packing.

Rows of any bytes after a head must also survive the conversion to columns (`tarn.core.listing.rangecolumns`).
"""

from __future__ import annotations

import random
import struct

import pyarrow as pa
from tests.fuzz.targets.refusals import corrupt_only
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.entry import (
    HEAD_BYTES,
    TOMBSTONE,
    VERSION,
    Checksum,
    Entry,
    etag_of,
    has_tags,
    identity_of,
    is_tombstone,
    judged_move_of,
    operation_of,
    pack,
    tombstone_of,
    unpack,
    with_parts,
)
from tarn.core.entry_check import CHECKSUM_BYTES, check_entry, check_template, check_tombstone
from tarn.core.errors import Kind, TarnError
from tarn.core.listing.rangecolumns import columns_of, range_id_of, run_of_columns
from tarn.core.listing.run import Run
from tarn.core.part_list import PartList, parts_of

__all__ = ["TARGET"]

_FIELD = struct.Struct("<BH")
_PLAIN = pack(Entry(1, 2, bytes(16), bytes(16), content_type="text/plain"))


def _check(data: bytes) -> str:
    if len(data) >= HEAD_BYTES:
        is_tombstone(data)
        if len(identity_of(data)) != 16:
            raise PropertyError("an identity has 16 bytes")
        if data[0] == VERSION:
            _survives_columns(data)
        if is_tombstone(data):
            corrupt_only(lambda: (operation_of(data), judged_move_of(data)))
    is_stored = _is_stored(data)
    entry = corrupt_only(lambda: unpack(data))
    if entry.etag != etag_of(data):
        raise PropertyError(f"two ETags: {entry.etag}, {etag_of(data)}")
    try:
        packed = pack(entry)
    except UnicodeEncodeError as error:
        raise PropertyError("what was read cannot be written") from error
    if unpack(packed) != entry:
        raise PropertyError(f"another entry comes back: {unpack(packed)}")
    _reads_parts(entry)
    if pack(unpack(packed)) != packed:
        raise PropertyError("an entry has two packed forms")
    if has_tags(data) != bool(entry.tags) and is_stored:
        raise PropertyError("an entry has tags that are not told")
    if is_stored and packed != data:
        raise PropertyError("graveler stores an entry that is not in its packed form")
    return "stored" if is_stored else "same" if packed == data else "other"


def _reads_parts(entry: Entry) -> None:
    """Checks the list of the parts: it is one spelling of parts that cover the object, or it is not believed."""
    parts = parts_of(entry)
    if parts is None:
        return
    if parts.encode() != entry.parts:
        raise PropertyError("a list of parts has two forms")
    end = 0
    for part in parts.after(0):
        if part.start != end or part != parts.part(part.number):
            raise PropertyError(f"part {part.number} does not follow the one before it")
        end += part.size
    if end != entry.size:
        raise PropertyError(f"the parts have {end} bytes, and the object {entry.size}")


def _is_stored(data: bytes) -> bool:
    """Whether graveler takes the bytes from a caller; if not, it is the caller's mistake."""
    is_stored = False
    for check in (check_template, check_entry):
        try:
            check(data)
        except TarnError as error:
            if error.kind is not Kind.INVALID:
                raise PropertyError(f"refused as {error.kind}: {error.message}") from error
            is_stored = False
        else:
            is_stored = True
    _is_tombstone_stored(data)
    return is_stored


def _is_tombstone_stored(data: bytes) -> None:
    """A tombstone that graveler takes from a caller has one form."""
    try:
        operation = check_tombstone(data)
    except TarnError as error:
        if error.kind is not Kind.INVALID:
            raise PropertyError(f"refused as {error.kind}: {error.message}") from error
    else:
        if data != tombstone_of(operation):
            raise PropertyError("a tombstone has two packed forms")


def _survives_columns(data: bytes) -> None:
    """Checks the row among rows without such fields, and as the only row."""
    for values in ([data], [TOMBSTONE, data, _PLAIN, data[:HEAD_BYTES], data]):
        paths = [f"{place:02}" for place in range(len(values))]
        run = Run(pa.array(paths, pa.string()), pa.array(values, pa.binary()))
        back = run_of_columns(columns_of(run))
        if back.values.to_pylist() != values or range_id_of(back) != range_id_of(run):
            raise PropertyError("a row changes by being columns")


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    fields, at = [], HEAD_BYTES
    while at + _FIELD.size <= len(data):
        tag, length = _FIELD.unpack_from(data, at)
        at += _FIELD.size
        fields.append((tag, data[at : at + length]))
        at += length
    return fields


def _headed(data: bytes, fields: list[tuple[int, bytes]]) -> bytes:
    head = bytes([VERSION, data[1] & 2 if len(data) > 1 else 0]) + data[2:HEAD_BYTES]
    return head.ljust(HEAD_BYTES, b"\1") + b"".join(
        _FIELD.pack(tag, len(value) & 0xFFFF) + value for tag, value in fields
    )


def _retail(rng: random.Random, data: bytes) -> bytes:
    """Adds a field to the tail, with the right or a wrong place and length."""
    fields = _fields(data)
    tag = rng.choice((*range(1, 11), 14, 15, 16, 255))
    value = rng.choice((b"", b"text/plain", b"\xff", b"\1\0a\1\0b", b"\3\0CRC", b"\4\0\0\0"))
    if fields and rng.random() < 0.5:
        value = rng.choice(fields)[1]
    fields.append((tag, value))
    if rng.random() < 0.8:
        fields = sorted(dict(fields).items())
    return _headed(data, fields)


def _strings(rng: random.Random, data: bytes) -> bytes:
    """Adds a list of strings with right or wrong lengths."""
    texts = [
        rng.choice((b"", b"a", b"name", b"\xc3\xa9", b"\xc3", b"CRC32", b"C"))
        for _ in range(rng.randint(0, 7))
    ]
    value = b"".join(struct.pack("<H", len(text) + (rng.random() < 0.05)) + text for text in texts)
    fields = {**dict(_fields(data)), rng.choice((2, 9, 16)): value}
    return _headed(data, sorted(fields.items()))


def _parts(rng: random.Random, data: bytes) -> bytes:
    """Makes a multipart object with the list of its parts, or with a list that is a little wrong."""
    sizes = [rng.choice((0, 1, 5 << 20, 5 << 30)) for _ in range(rng.randint(1, 9))]
    algorithm = rng.choice(("", "CRC32", "SHA1"))
    digests = [rng.randbytes(CHECKSUM_BYTES[algorithm]) for _ in sizes] if algorithm else []
    kept = bytearray(PartList.of(sizes, algorithm, digests).encode())
    if rng.random() < 0.5:
        kept[rng.randrange(len(kept))] ^= 1 << rng.randrange(8)
    sums = (Checksum(algorithm, "AAAAAA==-1", composite=True),) if algorithm else ()
    made = Entry(sum(sizes), 1, bytes(16), bytes(16), etag_parts=len(sizes), checksums=sums)
    return with_parts(pack(made), bytes(kept)) if rng.random() < 0.9 else data + bytes(kept)


def _whole(rng: random.Random, data: bytes) -> bytes:
    """Returns an entry as the gateway makes it."""
    text = data[HEAD_BYTES:].decode("latin-1")[:50]
    entry = Entry(
        size=rng.choice((0, 1, 2**40, 2**63 - 1)),
        mtime_us=rng.choice((0, 1, -1, 2**63 - 1)),
        address=rng.randbytes(16),
        md5=rng.randbytes(16),
        etag_parts=rng.choice((0, 0, 1, 10_000)),
        content_type=rng.choice(("", "text/plain", text)),
        metadata=rng.choice(((), (("a", "b"),), (("a", text), ("b", "")))),
        expires=rng.choice(("", text)),
        lineage=rng.choice(("", text)),
        external_address=rng.choice(("", "s3://b/k")),
        checksums=rng.choice(((), (Checksum("CRC32", "AAAAAA==", composite=True),))),
        tags=rng.choice(((), (("a", "1"), ("ключ", "")), (("aws:a", text),))),
    )
    return pack(entry)


TARGET = Target(
    "entry",
    _check,
    refusals=(TarnError,),
    traced=(
        "tarn.core.entry",
        "tarn.core.entry_check",
        "tarn.core.object_tags",
        "tarn.core.part_list",
        "tarn.core.listing.rangecolumns",
    ),
    mutations=(_retail, _strings, _parts, _whole),
    tokens=(b"\1\0\0", b"\2\0\0", b"\x0f\0\0"),
    input_bytes_max=4096,
)
