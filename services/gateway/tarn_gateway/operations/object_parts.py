"""The parts of an object that a multipart upload made: reads of one part.

As in S3, a part is named by its place among the parts, and an object that was not made of parts is one part. So is a
multipart object whose entry keeps no list of its parts (`tarn.core.part_list`): a client that reads part 1 and finds
no `x-amz-mp-parts-count` has read all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.entry import Checksum, Entry
from tarn.core.part_list import parts_of
from tarn_gateway.requests.query import part_number
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["ObjectPart", "part_of", "requested_part"]


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """One part of an object.

    Attributes:
        start: its first byte in the object.
        size: bytes; 0 only for an empty object or an empty last part.
        count: number of parts of the object; None if it is not known to have parts.
        checksums: of these bytes.
    """

    start: int
    size: int
    count: int | None
    checksums: tuple[Checksum, ...]


def requested_part(request: S3Request) -> int | None:
    """Returns the part that a GET or HEAD asks for; None for the object.

    Raises:
        S3Error: InvalidArgument for a number that is not 1 to 10,000; InvalidRequest beside a range.
    """
    if "partNumber" not in request.query:
        return None
    number = part_number(request.query)
    if "range" in request.headers:
        text = "Cannot specify both Range header and partNumber query parameter"
        raise S3Error("InvalidRequest", text)
    return number


def part_of(entry: Entry, number: int) -> ObjectPart:
    """Returns a part of an object.

    Raises:
        S3Error: InvalidPartNumber (416) if it has no such part.
    """
    parts = parts_of(entry)
    if parts is None:
        if number == 1:
            return ObjectPart(0, entry.size, None, entry.checksums)
        count = 1
    else:
        count = parts.count
        if (found := parts.part(number)) is not None:
            sums = (Checksum(parts.algorithm, found.checksum, composite=True),)
            return ObjectPart(found.start, found.size, count, sums if found.checksum else ())
    raise S3Error("InvalidPartNumber", PartNumberRequested=str(number), ActualPartCount=str(count))
