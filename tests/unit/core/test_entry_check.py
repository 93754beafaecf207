"""Which packed entries graveler stores: every field at its bound and beyond it."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import entries

from tarn.core.entry import (
    ENTRY_BYTES_MAX,
    HEAD_BYTES,
    METADATA_BYTES_MAX,
    TIME_US_MAX,
    TOMBSTONE,
    Checksum,
    Entry,
    TailTag,
    pack,
)
from tarn.core.entry_check import (
    CHECKSUM_BYTES,
    HEADER_BYTES_MAX,
    LINEAGE_BYTES_MAX,
    OBJECT_BYTES_MAX,
    PARTS_MAX,
    TEMPLATE_BYTES_MAX,
    check_entry,
    check_template,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.object_tags import TAGS_MAX

PLAIN = Entry(1024, 1_790_000_000_000_000, bytes(range(16)), bytes(range(16, 32)))
FULL = replace(
    PLAIN,
    size=OBJECT_BYTES_MAX,
    mtime_us=TIME_US_MAX,
    etag_parts=PARTS_MAX,
    content_type="text/html; charset=utf-8",
    metadata=(("!#$%&'*+-.^_`|~09az", "any\r\ntext\x00 µ"), ("owner", "ada")),
    content_encoding="gzip",
    cache_control="no-cache",
    content_disposition="attachment;\tfilename=\xe2\x98\x83",
    content_language="de",
    expires="0",
    lineage="x" * LINEAGE_BYTES_MAX,
    operation_id="A-z_0" + "9" * 59,
    checksums=(
        Checksum("CRC32C", "AAAAAA==-3", composite=True),
        Checksum("CRC64NVME", "AAAAAAAAAAA="),
        Checksum("SHA1", "A" * 27 + "="),
        Checksum("SHA256", "/+9" + "A" * 40 + "="),
    ),
    tags=tuple((f"{number}-ключ", "v" * 256) for number in range(TAGS_MAX)),
)


def refused(packed: bytes, *, is_template: bool = False) -> TarnError:
    with pytest.raises(TarnError) as raised:
        (check_template if is_template else check_entry)(packed)
    error = raised.value
    assert error.kind is Kind.INVALID, "the caller's mistake, not damage"
    assert error.metadata["field"] in error.message
    assert error.metadata.get("limit", "") in error.message
    return error


def with_tail(packed: bytes, *fields: tuple[int, bytes]) -> bytes:
    """The entry with fields behind its own; its identity is the one that it had."""
    return packed + b"".join(struct.pack("<BH", tag, len(value)) + value for tag, value in fields)


def strings(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<H", len(text)) + text for text in texts)


def test_the_size_and_the_operation_of_a_valid_entry_are_returned() -> None:
    assert check_entry(pack(PLAIN)) == (1024, "")
    assert check_entry(pack(FULL)) == (OBJECT_BYTES_MAX, FULL.operation_id)
    assert check_entry(pack(replace(PLAIN, size=0, mtime_us=0))) == (0, "")
    # Gateways of release 0.9.0 copy it with its entry.
    assert check_entry(pack(replace(PLAIN, judged_move_us=2**62))) == (1024, "")


@pytest.mark.parametrize(
    ("field", "change", "limit"),
    [
        ("size", {"size": OBJECT_BYTES_MAX + 1}, str(OBJECT_BYTES_MAX)),
        ("size", {"size": 2**63 - 1}, str(OBJECT_BYTES_MAX)),
        ("size", {"size": -1}, str(OBJECT_BYTES_MAX)),
        ("mtime_us", {"mtime_us": TIME_US_MAX + 1}, str(TIME_US_MAX)),
        ("mtime_us", {"mtime_us": 2**63 - 1}, str(TIME_US_MAX)),
        ("mtime_us", {"mtime_us": -1}, str(TIME_US_MAX)),
        ("mtime_us", {"mtime_us": -(2**63)}, str(TIME_US_MAX)),
        ("address", {"address": bytes(16)}, None),
        ("external_address", {"external_address": "s3://x/y"}, None),
        ("external_address", {"external_address": "s3://x/y", "address": bytes(16)}, None),
        ("etag_parts", {"etag_parts": PARTS_MAX + 1}, str(PARTS_MAX)),
        ("content_type", {"content_type": "text/html\r\nSet-Cookie: a=b"}, None),
        ("content_type", {"content_type": "☃"}, None),
        ("content_type", {"content_type": "x" * (HEADER_BYTES_MAX + 1)}, str(HEADER_BYTES_MAX)),
        ("content_encoding", {"content_encoding": "gzip\n"}, None),
        ("cache_control", {"cache_control": "\x00"}, None),
        ("content_disposition", {"content_disposition": "\x1b[31m"}, None),
        ("content_language", {"content_language": "\x7f"}, None),
        ("expires", {"expires": "\x0b"}, None),
        ("lineage", {"lineage": "a\nb"}, None),
        ("lineage", {"lineage": "x" * (LINEAGE_BYTES_MAX + 1)}, str(LINEAGE_BYTES_MAX)),
        ("operation_id", {"operation_id": "a b"}, None),
        ("operation_id", {"operation_id": "x" * 65}, None),
        ("replaced_address", {"replaced_address": bytes(16)}, None),
        ("parts", {"parts": bytes(3)}, None),
        ("metadata", {"metadata": (("a\r\nX: y", "v"),)}, None),
        ("metadata", {"metadata": (("a b:c", "v"),)}, None),
        ("metadata", {"metadata": (("Owner", "v"),)}, None),
        ("metadata", {"metadata": (("b", ""), ("a", ""))}, None),
        ("metadata", {"metadata": (("a", ""), ("a", ""))}, None),
        ("tags", {"tags": tuple((str(each), "") for each in range(11))}, str(TAGS_MAX)),
        ("tags", {"tags": (("", "v"),)}, None),
        ("tags", {"tags": (("k" * 129, "v"),)}, None),
        ("tags", {"tags": (("k", "v" * 257),)}, None),
        ("tags", {"tags": (("a\r\nb", "v"),)}, None),
        ("tags", {"tags": (("k", "\x00"),)}, None),
        ("tags", {"tags": (("aws:cost", "v"),)}, None),
        ("tags", {"tags": (("b", ""), ("a", ""))}, None),
        ("tags", {"tags": (("a", ""), ("a", ""))}, None),
        ("checksums", {"checksums": (Checksum("MD5", "AAAA"),)}, None),
        ("checksums", {"checksums": (Checksum("CRC32", "AAAAAA==\r\nX: y"),)}, None),
        ("checksums", {"checksums": (Checksum("CRC32", "AAAAAAA="),)}, None),
        ("checksums", {"checksums": (Checksum("CRC32", "AAAAAA==-1"),)}, None),
        ("checksums", {"checksums": (Checksum("CRC32", "AAAAAA==", composite=True),)}, None),
        ("checksums", {"checksums": (Checksum("CRC32", "AAAAAA=="),) * 2}, None),
    ],
)
def test_a_field_beyond_its_bound_is_refused(
    field: str, change: dict[str, object], limit: str | None
) -> None:
    error = refused(pack(replace(PLAIN, **change)))  # type: ignore[arg-type]
    assert error.metadata["field"] == f"entry.{field}"
    assert error.reason is Reason.INVALID_ARGUMENT
    if limit is not None:
        assert error.metadata["limit"] == limit


def test_every_stored_header_is_checked() -> None:
    names = [
        *("content_type", "content_encoding", "cache_control", "content_disposition"),
        *("content_language", "expires", "lineage"),
    ]
    for name in names:
        for mark in "\r\n\x00\x1b\x7fŁ":
            change = {name: f"a{mark}b"}
            packed = pack(replace(PLAIN, **change))  # type: ignore[arg-type]
            for is_template in (False, True):
                error = refused(packed, is_template=is_template)
                assert error.metadata["field"] == f"entry.{name}"


def test_user_metadata_has_two_kibibytes() -> None:
    most = replace(PLAIN, metadata=(("ab", "µ" * (METADATA_BYTES_MAX // 2 - 1)),))
    check_entry(pack(most))
    more = replace(most, metadata=(*most.metadata, ("c", "")))
    error = refused(pack(more))
    assert error.reason is Reason.METADATA_TOO_LARGE
    assert error.metadata["limit"] == str(METADATA_BYTES_MAX)


def test_the_whole_entry_is_bounded() -> None:
    around = len(pack(replace(PLAIN, content_type="x", expires="x"))) - 2
    room = ENTRY_BYTES_MAX - around - HEADER_BYTES_MAX
    largest = replace(PLAIN, content_type="x" * HEADER_BYTES_MAX, expires="x" * room)
    assert len(pack(largest)) == ENTRY_BYTES_MAX
    check_entry(pack(largest))
    error = refused(pack(replace(largest, expires="x" * (room + 1))))
    assert error.reason is Reason.METADATA_TOO_LARGE
    error = refused(pack(largest), is_template=True)
    assert error.metadata["limit"] == str(TEMPLATE_BYTES_MAX)


@pytest.mark.parametrize(
    "tail",
    [
        [(TailTag.METADATA, strings(b"a"))],
        [(TailTag.METADATA, b"\x05\0ab")],
        [(TailTag.METADATA, strings(b"a", b"\xff"))],
        [(TailTag.CHECKSUMS, strings(b"CRC32", b"AAAAAA=="))],
        [(TailTag.CHECKSUMS, strings(b"CRC32", b"AAAAAA==", b"X"))],
        [(TailTag.ETAG_PARTS, b"\1\0\0")],
        [(TailTag.ETAG_PARTS, bytes(4))],
        [(TailTag.JUDGED_MOVE, bytes(7))],
        [(TailTag.CONTENT_TYPE, b"\xff")],
        [(TailTag.CONTENT_TYPE, b"")],
        [(TailTag.EXPIRES, b"0"), (TailTag.CONTENT_TYPE, b"a")],
        [(TailTag.EXPIRES, b"0"), (TailTag.EXPIRES, b"0")],
        [(14, b"a")],
        [(16, b"a")],
        [(255, b"a")],
        [(0, b"a")],
    ],
)
def test_a_malformed_tail_is_the_callers_mistake(tail: list[tuple[int, bytes]]) -> None:
    assert refused(with_tail(pack(PLAIN), *tail)).reason is Reason.INVALID_ARGUMENT


def test_malformed_bytes_are_the_callers_mistake() -> None:
    packed = pack(replace(PLAIN, content_type="a"))
    cuts = [packed[:length] for length in range(len(packed))]
    versions = [bytes([version]) + packed[1:] for version in (0, 2, 255)]
    flags = [packed[:1] + bytes([flag]) + packed[2:] for flag in (1, 2, 4, 128, 255)]
    for wrong in (*cuts, *versions, *flags, TOMBSTONE, b"junk" * 30):
        refused(wrong)
        refused(wrong, is_template=True)


def test_a_forged_identity_is_refused() -> None:
    """Otherwise other bytes under the identity of the committed entry would be no difference."""
    committed, evil = pack(PLAIN), pack(replace(PLAIN, size=999))
    forged = evil[:50] + committed[50:HEAD_BYTES] + evil[HEAD_BYTES:]
    assert refused(forged).metadata["field"] == "entry.identity"
    # A head without its tail, and a tail under the identity of the head.
    full = pack(replace(PLAIN, content_type="a"))
    refused(full[:HEAD_BYTES])
    refused(committed + full[HEAD_BYTES:])


def test_tags_are_checked_against_the_identity() -> None:
    tagged, plain = pack(replace(PLAIN, tags=(("a", "1"),))), pack(PLAIN)
    check_entry(tagged)
    check_entry(pack(replace(PLAIN, operation_id="op", judged_move_us=1, tags=(("a", "1"),))))
    assert refused(tagged[:HEAD_BYTES]).metadata["field"] == "entry.identity"
    assert refused(plain + tagged[HEAD_BYTES:]).metadata["field"] == "entry.identity"
    other = tagged[:-1] + b"2"
    assert refused(other).metadata["field"] == "entry.identity"
    three = with_tail(plain, (TailTag.TAGS, strings(b"a", b"1", b"b")))
    assert refused(three).metadata["field"] == "entry.tags"
    assert refused(with_tail(plain, (TailTag.TAGS, b"\1"))).metadata["field"] == "entry.tags"


@given(entries(), st.integers(0, HEAD_BYTES * 8 - 1))
def test_no_bit_of_the_content_changes_under_its_identity(made: Entry, bit: int) -> None:
    plain = replace(made, size=5, mtime_us=5, address=bytes(15) + b"a", external_address="")
    clean = replace(
        plain,
        **dict.fromkeys(("content_type", "content_encoding", "cache_control"), ""),  # type: ignore[arg-type]
        content_disposition="",
        content_language="",
        expires="",
        lineage="",
        operation_id="",
        judged_move_us=0,
        replaced_address=b"",
        parts=b"",
        metadata=(),
        checksums=(),
        tags=(),
    )
    packed = bytearray(pack(clean))
    check_entry(bytes(packed))
    packed[bit // 8] ^= 1 << bit % 8
    if 10 <= bit // 8 < 34:  # time and address are no part of the identity
        return
    refused(bytes(packed))


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused_as_the_callers_mistake(data: bytes) -> None:
    for packed in (data, pack(PLAIN) + data, pack(FULL)[:HEAD_BYTES] + data):
        for check in (check_entry, check_template):
            kind = None
            try:
                check(packed)
            except TarnError as error:
                kind = error.kind
            assert kind in (None, Kind.INVALID)


def test_a_template_has_only_what_the_first_request_of_an_upload_sends() -> None:
    nothing = Entry(0, 0, bytes(16), bytes(16))
    about = replace(nothing, content_type="a/b", metadata=(("a", "b"),), lineage="job", expires="0")
    about = replace(about, tags=(("team", "ada"),))
    check_template(pack(nothing))
    check_template(pack(about))
    for change in (
        {"operation_id": "op"},
        {"checksums": (Checksum("CRC32", "AAAAAA=="),)},
        {"etag_parts": 1},
        {"judged_move_us": 1},
        {"replaced_address": bytes(16)},
        {"parts": bytes(3)},
        {"external_address": "file:///etc/passwd"},
    ):
        packed = pack(replace(about, **change))
        assert refused(packed, is_template=True).metadata["field"] == f"entry.{next(iter(change))}"


def test_every_algorithm_has_one_form() -> None:
    for name, size in CHECKSUM_BYTES.items():
        text = base64.b64encode(bytes(range(255 - size, 255))).decode()
        check_entry(pack(replace(PLAIN, checksums=(Checksum(name, text),))))
        check_entry(
            pack(replace(PLAIN, checksums=(Checksum(name, f"{text}-10000", composite=True),)))
        )
        for wrong in (text[:-1], text + "=", "!" + text[1:], f"{text}-0", text.lower() + " "):
            refused(pack(replace(PLAIN, checksums=(Checksum(name, wrong),))))
