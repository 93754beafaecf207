from __future__ import annotations

import pytest

from tarn_gateway.requests.byterange import ByteRange, parse_copy_range, parse_range
from tarn_gateway.s3error import S3Error


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
def test_a_range_outside_is_416_with_the_size(value: str, size: int) -> None:
    with pytest.raises(S3Error) as caught:
        parse_range(value, size)
    assert caught.value.status == 416
    assert caught.value.headers == {"Content-Range": f"bytes */{size}"}


def test_the_last_bytes_of_nothing_are_all_of_it() -> None:
    assert parse_range("bytes=-5", 0) is None


def test_no_header_is_the_whole_object() -> None:
    assert parse_range(None, 5) is None
    assert parse_copy_range(None, 5) is None


def test_copy_ranges_are_strict() -> None:
    assert parse_copy_range("bytes=1-4", 5) == ByteRange(1, 4, 5)
    for value, code in [
        ("bytes=1-", "InvalidArgument"),
        ("bytes=-1", "InvalidArgument"),
        ("bytes=3-2", "InvalidArgument"),
        ("bytes=0-5", "InvalidArgument"),
    ]:
        with pytest.raises(S3Error) as caught:
            parse_copy_range(value, 5)
        assert caught.value.code == code
