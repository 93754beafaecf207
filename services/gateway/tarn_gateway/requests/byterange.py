"""The Range header of reads and of UploadPartCopy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tarn_gateway.s3error import S3Error

__all__ = ["ByteRange", "parse_copy_range", "parse_range"]

# 19 digits hold every length that there can be; more would only burn time in int().
_RANGE: Final = re.compile(
    r"bytes[ \t]*=[ \t]*(\d{0,19})[ \t]*-[ \t]*(\d{0,19})[ \t]*", re.ASCII | re.IGNORECASE
)
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
        """The Content-Range of the 206 answer."""
        return f"bytes {self.start}-{self.start + self.length - 1}/{self.size}"


def parse_range(value: str | None, size: int) -> ByteRange | None:
    """The range asked for, clipped to the object; None means the whole object with status 200.

    As S3 does: what is no single byte range (other units, several ranges, last before first) is
    ignored, as RFC 9110 §14.2 allows.

    Raises:
        S3Error: InvalidRange (416, with Content-Range) when no byte of the object is in the range.
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
        length = min(int(last), size)
        if length == 0:
            raise _unsatisfiable(value, size)
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
    """The `x-amz-copy-source-range` header, which S3 reads strictly: `bytes=first-last`, inside.

    Raises:
        S3Error: InvalidArgument for any other form, InvalidRange (as S3 spells it: 400
            InvalidArgument is for the form, 416 for bytes that the source has not).
    """
    if value is None:
        return None
    match = _COPY_RANGE.fullmatch(value)
    if match is None or int(match[2]) < int(match[1]):
        raise S3Error(
            "InvalidArgument",
            "x-amz-copy-source-range must be bytes=first-last.",
            ArgumentName="x-amz-copy-source-range",
            ArgumentValue=value[:80],
        )
    start, last = int(match[1]), int(match[2])
    if last >= size:
        raise _unsatisfiable(value, size)
    return ByteRange(start, last - start + 1, size)
