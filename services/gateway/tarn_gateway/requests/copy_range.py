"""Parses the source range of UploadPartCopy."""

from __future__ import annotations

import re
from typing import Final

from tarn.objects.byterange import ByteRange
from tarn_gateway.s3error import S3Error

__all__ = ["parse_copy_range"]

_COPY_RANGE: Final = re.compile(r"bytes=(\d{1,19})-(\d{1,19})", re.ASCII)


def parse_copy_range(value: str | None, size: int) -> ByteRange | None:
    """Parses the `x-amz-copy-source-range` header, which S3 reads strictly: `bytes=first-last`, inside the object.

    Raises:
        S3Error: as in S3, InvalidArgument (400) for any other form, and for bytes outside the source.
    """
    if value is None:
        return None
    match = _COPY_RANGE.fullmatch(value)
    if match is None or int(match[2]) < int(match[1]):
        form = "where first and last are the zero-based offsets of the first and last bytes to copy"
        text = f"The x-amz-copy-source-range value must be of the form bytes=first-last {form}"
        raise _refused_copy(value, text)
    start, last = int(match[1]), int(match[2])
    if last >= size:
        text = f"Range specified is not valid for source object of size: {size}"
        raise _refused_copy(value, text)
    return ByteRange(start, last - start + 1, size)


def _refused_copy(value: str, text: str) -> S3Error:
    return S3Error(
        "InvalidArgument",
        text,
        ArgumentName="x-amz-copy-source-range",
        ArgumentValue=value[:80],
    )
