from __future__ import annotations

import pytest

from tarn.objects.byterange import ByteRange
from tarn_gateway.requests.copy_range import parse_copy_range
from tarn_gateway.s3error import S3Error


def test_no_header_is_the_whole_object() -> None:
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
