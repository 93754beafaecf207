"""The headers of conditional requests, as S3 reads them.

`tarn.objects.conditions` decides the conditions of reads. For writes this module only reads the headers; graveler
decides whether the condition holds, together with the write.
"""

from __future__ import annotations

import re

from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.objects.conditions import (
    NO_CONDITIONS,
    ReadConditions,
    Verdict,
    conditions_of,
    parse_http_date,
)
from tarn_gateway.http import Headers
from tarn_gateway.s3error import S3Error

__all__ = [
    "check_copy_source",
    "delete_condition",
    "read_conditions",
    "size_in_bytes",
    "write_condition",
]

_SIZE, _MTIME = "x-amz-if-match-size", "x-amz-if-match-last-modified-time"
_DIGITS = re.compile(r"[0-9]{1,18}")
_NAMES = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"})


def read_conditions(headers: Headers) -> ReadConditions:
    """Reads the conditions of a GET or HEAD."""
    return NO_CONDITIONS if _NAMES.isdisjoint(headers) else conditions_of(headers.get)


def check_copy_source(headers: Headers, etag: str, mtime_us: int) -> None:
    """Checks the `x-amz-copy-source-if-*` conditions, for which both refusals are 412.

    Raises:
        S3Error: PreconditionFailed if a condition does not hold.
    """
    conditions = conditions_of(headers.get, "x-amz-copy-source-")
    if conditions.judge(etag, mtime_us) is not Verdict.PROCEED:
        raise S3Error("PreconditionFailed", Condition="x-amz-copy-source-if")


def write_condition(headers: Headers) -> WriteCondition:
    """Reads the condition of a write.

    Raises:
        S3Error: NotImplemented for forms that S3 also refuses: If-None-Match of an ETag, both headers
            together, and several ETags. (`header_table` refuses the two date conditions.)
    """
    none_match, match = headers.get("if-none-match"), headers.get("if-match")
    if none_match is None and match is None:
        return UNCONDITIONAL
    if none_match is not None:
        if match is not None or none_match.strip() != "*":
            raise _refused("if-none-match")
        return WriteCondition(if_none_match=True)
    assert match is not None, "one of the two is set"
    return WriteCondition(if_match=_one_tag(match))


def delete_condition(headers: Headers) -> WriteCondition:
    """Reads the condition of DeleteObject, whose parts must all hold (S3 API, DeleteObject).

    Raises:
        S3Error: NotImplemented for several ETags; InvalidArgument for a size or a time that is none: a condition that
            is not understood must not be ignored.
    """
    match, size = headers.get("if-match"), headers.get(_SIZE)
    mtime = headers.get(_MTIME)
    if match is None and size is None and mtime is None:
        return UNCONDITIONAL
    condition = WriteCondition(
        if_match="" if match is None else _one_tag(match),
        size_bytes=None if size is None else size_in_bytes(size),
        mtime_s=None if mtime is None else parse_http_date(mtime),
    )
    for name, value, found in (
        (_SIZE, size, condition.size_bytes),
        (_MTIME, mtime, condition.mtime_s),
    ):
        if value is not None and found is None:
            text = f"The header {name} must be a size in bytes, or a date as in Last-Modified."
            raise S3Error("InvalidArgument", text, ArgumentName=name)
    return condition


def size_in_bytes(text: str) -> int | None:
    """Returns the size that a condition names; None if it is not a decimal number of at most 18 digits."""
    found = _DIGITS.fullmatch(text)
    return int(text) if found else None


def _one_tag(value: str) -> str:
    tag = value.strip().removeprefix("W/").strip('"')
    if not tag or "," in tag:
        raise _refused("if-match")
    return tag


def _refused(name: str) -> S3Error:
    return S3Error(
        "NotImplemented",
        f"This form of the header {name} is not implemented for writes.",
        Header=name,
    )
