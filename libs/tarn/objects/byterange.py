"""Parses the Range header of reads and the source range of UploadPartCopy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tarn_gateway.s3error import S3Error

__all__ = ["ByteRange", "parse_copy_range", "parse_range"]

# 19 digits are enough for every possible length; more would only waste time in int().
_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII | re.IGNORECASE)
_COPY_RANGE: Final = re.compile(r"bytes=(\d{1,19})-(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range that lies within an object.

    Attributes:
        start: first byte.
        length: number of bytes, at least 1.
        size: of the whole object.
    """

    start: int
    length: int
    size: int

    @property
    def content_range(self) -> str:
        """Returns the Content-Range of the 206 answer."""
        return f"bytes {self.start}-{self.start + self.length - 1}/{self.size}"


def parse_range(value: str | None, size: int) -> ByteRange | None:
    """Returns the requested range, clipped to the object; None means the whole object with status 200.

    As in S3, a header that is not a single byte range (other units, several ranges, blanks, last before first) is
    ignored, as RFC 9110 §14.2 allows.

    Raises:
        S3Error: InvalidRange (416, with Content-Range) if no byte of the object is in the range.
    """
    if value is None:
        return None
    match = _RANGE.fullmatch(value.strip())
    if match is None:
        return None
    first, last = match.groups()
    if not first:
        if not last:
            return None
        if not int(last):
            raise _unsatisfiable(value, size)
        if not size:
            return None  # its last bytes are all of it (RFC 9110 §14.1.2)
        length = min(int(last), size)
        return ByteRange(size - length, length, size)
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        raise _unsatisfiable(value, size)
    end = min(int(last), size - 1) if last else size - 1
    return ByteRange(start, end - start + 1, size)


def _unsatisfiable(value: str, size: int) -> S3Error:
    return S3Error(
        "InvalidRange",
        headers={"Content-Range": f"bytes */{size}"},
        RangeRequested=value[:80],
        ActualObjectSize=str(size),
    )


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
