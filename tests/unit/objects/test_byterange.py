from __future__ import annotations

import pytest

from tarn.objects.byterange import ByteRange, UnsatisfiableRangeError, parse_range


@pytest.mark.parametrize(
    ("value", "size", "start", "length"),
    [
        ("bytes=0-9", 100, 0, 10),
        ("bytes=90-200", 100, 90, 10),
        ("bytes=99-", 100, 99, 1),
        ("bytes=0-", 100, 0, 100),
        ("bytes=-1", 100, 99, 1),
        ("bytes=-262144", 100, 0, 100),
        ("Bytes=5-6", 100, 5, 2),
        (" bytes=5-6 ", 100, 5, 2),
        ("bytes=0-9999999999999999999", 100, 0, 100),
    ],
)
def test_ranges_are_clipped(value: str, size: int, start: int, length: int) -> None:
    found = parse_range(value, size)
    assert found == ByteRange(start, length, size)
    assert found.content_range == f"bytes {start}-{start + length - 1}/{size}"


@pytest.mark.parametrize(
    "value",
    [
        "bytes=5-4",
        "bytes=a-b",
        "bytes=",
        "bytes=-",
        "items=0-1",
        "0-1",
        "bytes=0-1,3-4",
        "",
        "bytes=1",
        "bytes= -1",
        "bytes=0 -1",
        "bytes=0- 1",
        "bytes =0-1",
        "bytes=--1",
    ],
)
def test_an_invalid_range_is_ignored(value: str) -> None:
    assert parse_range(value, 100) is None


@pytest.mark.parametrize(
    ("value", "size"), [("bytes=100-", 100), ("bytes=-0", 100), ("bytes=0-0", 0), ("bytes=-0", 0)]
)
def test_a_range_outside_is_unsatisfiable(value: str, size: int) -> None:
    with pytest.raises(UnsatisfiableRangeError) as caught:
        parse_range(value, size)
    assert caught.value.metadata == {"size": str(size)}


def test_the_last_bytes_of_nothing_are_all_of_it() -> None:
    assert parse_range("bytes=-5", 0) is None


def test_no_header_is_the_whole_object() -> None:
    assert parse_range(None, 5) is None
