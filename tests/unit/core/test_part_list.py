"""The parts of an object, in the compact form that its entry keeps."""

from __future__ import annotations

import base64
import itertools
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.entry import (
    ENTRY_BYTES_MAX,
    Checksum,
    Entry,
    identity_of,
    judged_at,
    listed_of,
    pack,
    replacing,
    unpack,
    with_parts,
)
from tarn.core.entry_check import CHECKSUM_BYTES, OBJECT_BYTES_MAX, PARTS_MAX, check_entry
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.part_list import (
    PART_LIST_BYTES_MAX,
    KeptPart,
    PartList,
    PartListError,
    check_parts,
    decode_parts,
    parts_of,
    parts_to_keep,
)

MIB5 = 5 * 1024**2

SIZES = st.lists(
    st.tuples(st.sampled_from([0, 1, MIB5, MIB5 + 1, 5 << 30]), st.integers(1, 40)), min_size=1
).map(lambda runs: [size for size, count in runs for _ in range(count)])


def object_of(sizes: list[int], algorithm: str = "") -> Entry:
    """The entry of a multipart object."""
    sums = (Checksum(algorithm, "AAAA-1", composite=True),) if algorithm else ()
    return Entry(sum(sizes), 1, b"a" * 16, b"m" * 16, etag_parts=len(sizes), checksums=sums)


def digests_of(algorithm: str, count: int) -> list[bytes]:
    width = CHECKSUM_BYTES.get(algorithm, 0)
    return [number.to_bytes(width, "big") for number in range(count)] if algorithm else []


@given(SIZES, st.sampled_from(["", *CHECKSUM_BYTES]))
def test_parts_of_the_compact_form_are_those_of_the_list(sizes: list[int], algorithm: str) -> None:
    digests = digests_of(algorithm, len(sizes))
    parts = decode_parts(PartList.of(sizes, algorithm, digests).encode())
    starts = itertools.accumulate([0, *sizes[:-1]])
    sums = [base64.b64encode(each).decode() for each in digests] or [""] * len(sizes)
    numbers = range(1, len(sizes) + 1)
    listed = [KeptPart(*each) for each in zip(numbers, starts, sizes, sums, strict=True)]
    assert (parts.count, parts.size) == (len(sizes), sum(sizes))
    assert [parts.part(number) for number in numbers] == listed
    for marker in (0, 1, len(sizes) - 1, len(sizes), PARTS_MAX):
        assert list(parts.after(marker)) == listed[marker:]
    for number in (-1, 0, len(sizes) + 1, PARTS_MAX):
        assert parts.part(number) is None or number == len(sizes)


@given(st.binary(max_size=60))
def test_any_bytes_are_the_one_form_of_a_list_or_are_refused(data: bytes) -> None:
    with suppress(PartListError):
        assert decode_parts(data).encode() == data


@given(st.lists(st.integers(0, 2**64 - 1), max_size=6), st.integers(0, 7), st.binary(max_size=9))
def test_runs_of_any_numbers_are_within_the_limits_or_are_refused(
    words: list[int], algorithm: int, rest: bytes
) -> None:
    runs = b"".join(word.to_bytes(8, "little") for word in words)
    data = bytes([algorithm]) + len(words).to_bytes(2, "little") + runs + rest
    with suppress(PartListError):
        parts = decode_parts(data)
        assert 1 <= parts.count <= PARTS_MAX
        assert parts.size <= OBJECT_BYTES_MAX
        assert parts.encode() == data


def run(size: int, count: int) -> bytes:
    return (size << 16 | count).to_bytes(8, "little")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\1",
        b"\0\0\0",
        b"\6\1\0" + run(1, 1) + bytes(4),
        b"\0\1\0" + run(1, 1)[:-1],
        b"\0\1\0" + run(1, 1) + b"\0",
        b"\1\1\0" + run(1, 2) + bytes(7),
        b"\0\1\0" + run(1, 0),
        b"\0\2\0" + run(1, 1) + run(1, 1),
        b"\0\1\0" + run(1, PARTS_MAX + 1),
        b"\0\1\0" + run(OBJECT_BYTES_MAX + 1, 1),
        b"\0\1\0" + run(OBJECT_BYTES_MAX // 2 + 1, 2),
    ],
)
def test_what_is_not_a_list_is_refused(data: bytes) -> None:
    with pytest.raises(PartListError):
        decode_parts(data)


def test_the_bytes_of_a_list_are_golden() -> None:
    parts = PartList.of([MIB5, MIB5, 3], "CRC32", [b"aaaa", b"bbbb", b"cccc"])
    golden = "010200" + "0200000050000000" + "0100030000000000" + b"aaaabbbbcccc".hex()
    assert parts.encode().hex() == golden


def test_the_usual_upload_of_10000_parts_takes_few_bytes() -> None:
    sizes = [MIB5] * (PARTS_MAX - 1) + [7]
    assert len(PartList.of(sizes).encode()) == 19


# What an entry keeps


def test_checksums_are_left_out_before_sizes() -> None:
    for count, is_kept in ((1000, True), (1100, False)):
        packed = pack(object_of([MIB5] * count, "CRC32"))
        full = PartList.of([MIB5] * count, "CRC32", digests_of("CRC32", count))
        kept = decode_parts(parts_to_keep(packed, full))
        assert (kept.algorithm, kept.count) == ("CRC32" if is_kept else "", count)
    different = [MIB5 + number for number in range(PARTS_MAX)]
    assert parts_to_keep(pack(object_of(different)), PartList.of(different)) == b""


def test_a_list_fits_into_the_entry_or_is_left_out() -> None:
    sizes = [MIB5, MIB5 + 1] * 100
    whole = PartList.of(sizes)
    seen = set()
    for length in range(ENTRY_BYTES_MAX - 1900, ENTRY_BYTES_MAX - 1500):
        entry = object_of(sizes)
        bare = pack(entry)
        packed = pack(replace(entry, content_type="x" * (length - len(bare) - 3)))
        kept = parts_to_keep(packed, whole)
        seen.add(bool(kept))
        stored = check_parts(packed, kept) if kept else packed
        assert len(stored) <= ENTRY_BYTES_MAX
        if not kept:
            with pytest.raises(TarnError, match="at most"):
                check_parts(packed, whole.encode())
    assert seen == {True, False}


def test_the_list_is_not_part_of_the_identity() -> None:
    """The same object is no change, whether a release wrote it that keeps parts or one that does not."""
    sizes = [MIB5, 3]
    bare = pack(object_of(sizes))
    kept = check_parts(bare, PartList.of(sizes).encode())
    assert identity_of(kept) == identity_of(bare)
    assert pack(unpack(kept)) == kept
    assert with_parts(kept, b"") == bare
    assert listed_of([kept])[0][:4] == listed_of([bare])[0][:4]
    assert unpack(judged_at(kept, 5)).parts == unpack(replacing(kept, b"r" * 16)).parts != b""
    assert replacing(replacing(kept, b"r" * 16), b"") == kept


# What is refused, and what is not believed

FORGED = [
    PartList.of([MIB5, 4]).encode(),
    PartList.of([MIB5 + 3]).encode(),
    PartList.of([MIB5, 2, 1]).encode(),
    PartList.of([MIB5, 3], "SHA256", [bytes(32)] * 2).encode(),
    b"nonsense",
    PartList.of([MIB5, 3]).encode() + bytes(PART_LIST_BYTES_MAX),
]


@pytest.mark.parametrize("kept", FORGED)
def test_a_list_of_another_object_is_refused(kept: bytes) -> None:
    packed = pack(object_of([MIB5, 3], "CRC32"))
    with pytest.raises(TarnError) as caught:
        check_parts(packed, kept)
    assert (caught.value.kind, caught.value.reason) == (Kind.INVALID, Reason.INVALID_ARGUMENT)
    assert caught.value.metadata["field"] == "parts"


@pytest.mark.parametrize("kept", FORGED)
def test_a_stored_list_of_another_object_is_not_believed(kept: bytes) -> None:
    entry = unpack(with_parts(pack(object_of([MIB5, 3], "CRC32")), kept))
    assert parts_of(entry) is None


def test_an_object_that_is_not_made_of_parts_has_no_list() -> None:
    packed = pack(Entry(3, 1, b"a" * 16, b"m" * 16))
    assert parts_of(unpack(packed)) is None
    with pytest.raises(TarnError, match="has 1 parts, and the object 0"):
        check_parts(packed, PartList.of([3]).encode())


def test_callers_cannot_put_a_list_into_an_entry() -> None:
    sizes = [MIB5, 3]
    kept = check_parts(pack(object_of(sizes)), PartList.of(sizes).encode())
    with pytest.raises(TarnError, match="set by graveler") as caught:
        check_entry(kept)
    assert caught.value.metadata["field"] == "entry.parts"
