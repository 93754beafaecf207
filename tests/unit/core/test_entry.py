"""The packed entry: its bytes, its round trip, and damage."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.listings import entries

from tarn.core.entry import (
    HEAD_BYTES,
    TOMBSTONE,
    Checksum,
    Entry,
    EntryCorruptError,
    address_of,
    etag_of,
    has_tags,
    identity_of,
    is_tombstone,
    judged_at,
    judged_move_of,
    listed_of,
    operation_of,
    pack,
    replaced_of,
    replacing,
    shown_time_us,
    tombstone_of,
    unpack,
)
from tarn.core.errors import Kind, Reason, TarnError

PLAIN = Entry(
    size=1024, mtime_us=1_790_000_000_000_000, address=bytes(range(16)), md5=bytes(range(16, 32))
)
FULL = replace(
    PLAIN,
    etag_parts=3,
    content_type="text/csv",
    metadata=(("owner", "ada"), ("ünit", "µ")),
    content_encoding="gzip",
    cache_control="no-cache",
    content_disposition="inline",
    content_language="de",
    expires="0",
    lineage="job-1",
    checksums=(Checksum("CRC32C", "AAAAAA==-3", composite=True),),
    parts=bytes.fromhex("0002000200000200000000010000040000000000"),
    tags=(("team", "ada"), ("zone", "ü")),
)

PLAIN_GOLDEN = (
    "0100000400000000000000e025dafe5b0600000102030405060708090a0b0c0d0e0f1011121314151617"
    "18191a1b1c1d1e1f26cf40e862a81dc833459fff3a4210ab"
)
TAGS_GOLDEN = "10150004007465616d030061646104007a6f6e650200c3bc"
FULL_GOLDEN = (
    "0100000400000000000000e025dafe5b0600000102030405060708090a0b0c0d0e0f1011121314151617"
    "18191a1b1c1d1e1fa655f523f2d75851a0fdd75d76d8403d010800746578742f63737602170005006f77"
    "6e657203006164610500c3bc6e69740200c2b5030400677a69700408006e6f2d6361636865050600696e"
    "6c696e650602006465070100300804000300000009170006004352433332430a004141414141413d3d2d"
    "330100430a05006a6f622d310e14000002000200000200000000010000040000000000"
    f"{TAGS_GOLDEN}"
)
EXTERNAL_GOLDEN = (
    "010201000000000000000200000000000000000000000000000000000000000000000000000000000000"
    "00000000000000002270e2d1b8925c3e050275f44316d4ba0f080073333a2f2f622f6b"
)


def test_the_bytes_of_a_plain_entry_are_golden() -> None:
    assert pack(PLAIN).hex() == PLAIN_GOLDEN


def test_the_bytes_of_an_entry_with_every_field_are_golden() -> None:
    assert pack(FULL).hex() == FULL_GOLDEN


def test_the_bytes_of_an_external_entry_are_golden() -> None:
    packed = pack(Entry(1, 2, bytes(16), bytes(16), external_address="s3://b/k"))
    assert packed.hex() == EXTERNAL_GOLDEN


def test_the_tombstone_is_a_head_of_zeros() -> None:
    assert b"\1\1" + bytes(64) == TOMBSTONE
    assert is_tombstone(TOMBSTONE)
    assert not is_tombstone(pack(PLAIN))


def test_the_tombstone_of_a_conditional_delete_names_its_operation() -> None:
    packed = tombstone_of("op-1")
    assert packed.hex() == "0101" + "00" * 64 + "0b0400" + b"op-1".hex()
    assert is_tombstone(packed)
    assert (operation_of(packed), judged_move_of(packed), address_of(packed)) == ("op-1", 0, None)
    staged = judged_at(packed, 7)
    assert is_tombstone(staged)
    assert (operation_of(staged), judged_move_of(staged)) == ("op-1", 7)
    assert judged_at(staged, 0) == packed
    assert replacing(staged, b"") == staged
    assert (operation_of(TOMBSTONE), judged_move_of(TOMBSTONE)) == ("", 0)


@pytest.mark.parametrize("tail", [b"\x0b\1\0\xff", b"\x0b\2\0x", b"\x0c\1\0x", b"\x0c\0\0\x0b\0\0"])
def test_a_damaged_tombstone_is_no_plain_one(tail: bytes) -> None:
    for read in (operation_of, judged_move_of):
        with pytest.raises(EntryCorruptError):
            read(TOMBSTONE + tail)


def test_the_identity_of_an_entry_without_tags_is_that_of_earlier_releases() -> None:
    packed = pack(replace(FULL, tags=()))
    assert packed.hex() == FULL_GOLDEN.replace(TAGS_GOLDEN, "").replace(
        identity_of(pack(FULL)).hex(), "7024cc808202f7c419884982a5434491"
    )
    assert not has_tags(packed)
    assert has_tags(pack(FULL))
    with pytest.raises(EntryCorruptError):
        unpack(packed + b"\x10\3\0\1\0a")


@given(entries())
def test_an_entry_survives_packing(entry: Entry) -> None:
    packed = pack(entry)
    assert unpack(packed) == entry
    assert pack(unpack(packed)) == packed
    assert etag_of(packed) == entry.etag


def in_listings(entry: Entry) -> tuple[object, ...]:
    """What a listing may show of an entry beside its path."""
    where = entry.external_address or entry.address
    about = (entry.content_type, entry.metadata)
    return (entry.size, entry.etag, shown_time_us(entry.mtime_us), where, *about)


@given(st.lists(entries(), min_size=1, max_size=4), st.data())
def test_a_listing_shows_the_fields_of_each_entry(
    different: list[Entry], data: st.DataObject
) -> None:
    """Also of entries whose tails have the same beginning, which are not unpacked each."""
    picks = st.integers(0, len(different) - 1)
    page = [
        replace(
            different[at], size=number, md5=bytes([number]) * 16, lineage=data.draw(st.text("ab"))
        )
        for number, at in enumerate(data.draw(st.lists(picks, max_size=8)))
    ]
    shown = [
        (size, etag, time, like.external_address or address, like.content_type, like.metadata)
        for size, etag, time, address, like in listed_of(map(pack, page))
    ]
    assert shown == [in_listings(entry) for entry in page]


@pytest.mark.parametrize("more", [b"\1", b"\1\2", b"\1\1\0", b"\2\xff\xff", b"\x08\5\0ab"])
def test_damage_behind_the_tail_of_an_entry_before_is_found(more: bytes) -> None:
    good = pack(replace(PLAIN, content_type="text/csv"))
    assert len(listed_of([good, good])) == 2
    with pytest.raises(EntryCorruptError):
        listed_of([good, good + more])


@given(st.binary(max_size=200))
def test_any_bytes_are_listed_or_refused_by_name(data: bytes) -> None:
    with suppress(EntryCorruptError):
        ((size, *_),) = listed_of([data])
        assert size >= 0


@given(entries(), entries())
def test_identity_excludes_address_time_and_operation(one: Entry, other: Entry) -> None:
    moved = replace(
        one,
        mtime_us=other.mtime_us,
        address=other.address,
        lineage=other.lineage,
        operation_id=other.operation_id,
        judged_move_us=other.judged_move_us,
        external_address=other.external_address,
    )
    assert identity_of(pack(one)) == identity_of(pack(moved))


@pytest.mark.parametrize(
    "change",
    [
        {"size": 1025},
        {"md5": bytes(16)},
        {"etag_parts": 4},
        {"content_type": "text/plain"},
        {"metadata": ()},
        {"content_encoding": ""},
        {"cache_control": ""},
        {"content_disposition": ""},
        {"content_language": ""},
        {"expires": ""},
        {"checksums": ()},
        {"replaced_address": b"a" * 16},
        {"tags": ()},
        {"tags": (("team", "ada"), ("zone", ""))},
    ],
)
def test_identity_includes_every_field_that_readers_see(change: dict[str, object]) -> None:
    changed = replace(FULL, **change)  # type: ignore[arg-type]  # any field
    assert identity_of(pack(changed)) != identity_of(pack(FULL))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_refused_by_name(data: bytes) -> None:
    with suppress(EntryCorruptError):
        assert unpack(data).address == data[18:34]


@given(entries(), st.data())
def test_a_damaged_tail_is_another_entry_or_refused(entry: Entry, data: st.DataObject) -> None:
    packed = bytearray(pack(replace(entry, content_type="text/plain")))
    at = data.draw(st.integers(HEAD_BYTES, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    with suppress(EntryCorruptError):
        assert unpack(bytes(packed)) != entry


@given(entries(), st.integers(1, HEAD_BYTES))
def test_a_head_cut_off_is_refused(entry: Entry, missing: int) -> None:
    with pytest.raises(EntryCorruptError, match="shorter than the head"):
        unpack(pack(entry)[: HEAD_BYTES - missing])


@pytest.mark.parametrize(
    ("packed", "match"),
    [
        (b"\2" + bytes(65), "version 2"),
        (TOMBSTONE, "tombstone"),
        (pack(PLAIN) + b"\1", "inside a field head"),
        (pack(PLAIN) + b"\1\2\0x", "over the end"),
        (pack(PLAIN) + b"\3\0\0\1\0\0", "field 1 after field 3"),
        (pack(PLAIN) + b"\1\0\0\1\0\0", "field 1 after field 1"),
        (pack(PLAIN) + b"\1\1\0\xff", "not UTF-8"),
        (pack(PLAIN) + b"\2\1\0\0", "inside a length"),
        (pack(PLAIN) + b"\2\3\0\2\0x", "inside a string"),
        (pack(PLAIN) + b"\2\3\0\1\0x", "wrong length"),
        (pack(PLAIN) + b"\x08\1\0\1", "part count"),
    ],
)
def test_damage_is_refused_with_what_was_found(packed: bytes, match: str) -> None:
    with pytest.raises(EntryCorruptError, match=match):
        unpack(packed)


@pytest.mark.parametrize(
    "packed",
    [
        TOMBSTONE,
        b"",
        pack(PLAIN)[: HEAD_BYTES - 1],
        b"\x02" + pack(PLAIN)[1:],
        pack(PLAIN)[:2] + (-1).to_bytes(8, "little", signed=True) + pack(PLAIN)[10:],
        pack(PLAIN) + b"\x01\x00",
    ],
    ids=["tombstone", "empty", "short", "later version", "negative size", "broken field"],
)
def test_a_listing_shows_no_damaged_entry_and_no_tombstone(packed: bytes) -> None:
    with pytest.raises(EntryCorruptError) as raised:
        listed_of([pack(PLAIN), packed])
    assert raised.value.kind is Kind.CORRUPT


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert unpack(pack(PLAIN) + b"\x63\2\0hi") == PLAIN


@given(entries(), st.binary(min_size=16, max_size=16))
def test_the_address_that_an_entry_replaces_is_set_and_taken_off(
    entry: Entry, address: bytes
) -> None:
    plain = pack(replace(entry, replaced_address=b""))
    replaced = replacing(pack(entry), address)
    assert replaced == pack(replace(entry, replaced_address=address))
    assert unpack(replaced).replaced_address == address
    assert identity_of(replaced) != identity_of(plain)
    assert replaced_of(replaced) == address
    assert replaced_of(plain) == b""
    assert replacing(replaced, b"") == plain
    other = replacing(pack(replace(entry, mtime_us=1, address=bytes(16))), address)
    assert identity_of(other) == identity_of(replaced), (
        "equal objects over one erased entry are equal"
    )


@pytest.mark.parametrize("address", [b"", b"a" * 16])
def test_an_entry_that_has_the_replaced_address_stays_byte_for_byte(address: bytes) -> None:
    """Its identity, too, which a later version may compute in another way."""
    packed = pack(replace(PLAIN, replaced_address=address)) + b"\x63\2\0hi"
    assert replacing(packed, address) == packed


@given(entries(), st.integers(0, 2**62))
def test_the_move_by_which_a_condition_was_judged_is_set_and_taken_off(
    entry: Entry, move_time_us: int
) -> None:
    judged = judged_at(pack(entry), move_time_us)
    assert judged == pack(replace(entry, judged_move_us=move_time_us))
    assert judged_move_of(judged) == move_time_us
    assert judged_at(judged_at(judged, 7), move_time_us) == judged
    later = judged_at(pack(entry), 0) + b"\x63\2\0hi"
    assert judged_at(judged_at(later, 7), 0) == later, "fields of a later version stay"


@pytest.mark.parametrize(
    "entry",
    [
        replace(PLAIN, cache_control="x" * 65_536),
        replace(PLAIN, metadata=(("k", "v" * 65_536),)),
        replace(PLAIN, metadata=tuple((f"k{n:05}", "v") for n in range(10_000))),
    ],
)
def test_a_field_that_does_not_fit_is_refused(entry: Entry) -> None:
    with pytest.raises(TarnError) as caught:
        pack(entry)
    assert caught.value.reason is Reason.METADATA_TOO_LARGE


def test_an_entry_of_negative_size_is_damaged() -> None:
    packed = bytearray(pack(Entry(1, 0, bytes(16), bytes(16))))
    packed[2:10] = (-1).to_bytes(8, "little", signed=True)
    with pytest.raises(EntryCorruptError, match="negative"):
        unpack(bytes(packed))
