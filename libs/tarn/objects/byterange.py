"""Parses the Range header of reads (RFC 9110 §14)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["ByteRange", "UnsatisfiableRangeError", "parse_range"]

# 19 digits are enough for every possible length; more would only waste time in int().
_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII | re.IGNORECASE)


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


class UnsatisfiableRangeError(TarnError):
    """No byte of the object is in the requested range."""

    def __init__(self, value: str, size: int) -> None:
        text = f"no byte of the object, which has {size}, is in the range {value[:80]!r}"
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, text, size=str(size))


def parse_range(value: str | None, size: int) -> ByteRange | None:
    """Returns the requested range, clipped to the object; None means the whole object with status 200.

    As in S3, a header that is not a single byte range (other units, several ranges, blanks, last before first) is
    ignored, as RFC 9110 §14.2 allows.

    Raises:
        UnsatisfiableRangeError: no byte of the object is in the range (416).
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
            raise UnsatisfiableRangeError(value, size)
        if not size:
            return None  # its last bytes are all of it (RFC 9110 §14.1.2)
        length = min(int(last), size)
        return ByteRange(size - length, length, size)
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        raise UnsatisfiableRangeError(value, size)
    end = min(int(last), size - 1) if last else size - 1
    return ByteRange(start, end - start + 1, size)
