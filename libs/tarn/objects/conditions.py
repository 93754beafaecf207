"""Conditional requests: RFC 9110 §13, as S3 interprets it.

Conditions of reads are decided here. For writes this module only reads the headers; graveler decides whether
the condition holds, together with the write.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import shown_time_us
from tarn_gateway.http import Headers
from tarn_gateway.s3error import S3Error

__all__ = [
    "ReadConditions",
    "Verdict",
    "copy_source_conditions",
    "delete_condition",
    "http_date",
    "quoted",
    "parse_http_date",
    "read_conditions",
    "size_in_bytes",
    "write_condition",
]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def quoted(etag: str) -> str:
    """Returns an ETag in quotes, as in headers."""
    return f'"{etag}"'


def http_date(time_us: int) -> str:
    """Formats a time as `Sun, 06 Nov 1994 08:49:37 GMT`; fractions of a second are truncated."""
    return _http_date(shown_time_us(time_us) // 1_000_000)


@lru_cache(maxsize=4096)  # objects written together are read together
def _http_date(seconds: int) -> str:
    at = datetime.fromtimestamp(seconds, UTC)
    return (
        f"{_DAYS[at.weekday()]}, {at.day:02d} {_MONTHS[at.month - 1]} {at.year:04d} "
        f"{at.hour:02d}:{at.minute:02d}:{at.second:02d} GMT"
    )


def parse_http_date(value: str) -> int | None:
    """Returns seconds since the epoch; None for an invalid date (then the header is ignored, RFC 9110 §13.1.3)."""
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    try:
        return int(at.timestamp())
    except (ValueError, OverflowError):
        return None


class Verdict(enum.Enum):
    """The outcome of a read's conditions."""

    PROCEED = "proceed"
    NOT_MODIFIED = "not modified"
    FAILED = "failed"


def _matches(value: str, etag: str) -> bool:
    """Returns whether a list of entity tags contains `etag` or `*`; quotes may be missing, as S3 allows."""
    for item in value.split(","):
        tag = item.strip()
        if tag == "*":
            return True
        if tag.removeprefix("W/").strip('"') == etag:
            return True
    return False


@dataclass(frozen=True, slots=True)
class ReadConditions:
    """The conditions of a GET, a HEAD or a copy's source. None: header absent."""

    if_match: str | None = None
    if_none_match: str | None = None
    if_modified_since_s: int | None = None
    if_unmodified_since_s: int | None = None

    def judge(self, etag: str, mtime_us: int) -> Verdict:
        """Decides in the order of RFC 9110 §13.2.2.

        Args:
            etag: without quotes.
            mtime_us: of the object; compared in whole seconds, as Last-Modified shows them.
        """
        mtime_s = shown_time_us(mtime_us) // 1_000_000
        if self.if_match is not None:
            if not _matches(self.if_match, etag):
                return Verdict.FAILED
        elif self.if_unmodified_since_s is not None and mtime_s > self.if_unmodified_since_s:
            return Verdict.FAILED
        if self.if_none_match is not None:
            if _matches(self.if_none_match, etag):
                return Verdict.NOT_MODIFIED
        elif self.if_modified_since_s is not None and mtime_s <= self.if_modified_since_s:
            return Verdict.NOT_MODIFIED
        return Verdict.PROCEED

    def check_copy_source(self, etag: str, mtime_us: int) -> None:
        """Checks the conditions of a copy, for which both refusals are 412.

        Raises:
            S3Error: PreconditionFailed if a condition does not hold.
        """
        if self.judge(etag, mtime_us) is not Verdict.PROCEED:
            raise S3Error("PreconditionFailed", Condition="x-amz-copy-source-if")


NO_CONDITIONS = ReadConditions()

_SIZE, _MTIME = "x-amz-if-match-size", "x-amz-if-match-last-modified-time"
_DIGITS = re.compile(r"[0-9]{1,18}")
_NAMES = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"})


def _read(headers: Headers, prefix: str) -> ReadConditions:
    since = headers.get(prefix + "if-modified-since")
    unmodified = headers.get(prefix + "if-unmodified-since")
    return ReadConditions(
        headers.get(prefix + "if-match"),
        headers.get(prefix + "if-none-match"),
        None if since is None else parse_http_date(since),
        None if unmodified is None else parse_http_date(unmodified),
    )


def read_conditions(headers: Headers) -> ReadConditions:
    """Reads the conditions of a GET or HEAD. A FAILED verdict is answered with 412 PreconditionFailed, a
    NOT_MODIFIED one with 304, with ETag and Last-Modified and no body."""
    return NO_CONDITIONS if _NAMES.isdisjoint(headers) else _read(headers, "")


def copy_source_conditions(headers: Headers) -> ReadConditions:
    """Reads the `x-amz-copy-source-if-*` conditions."""
    return _read(headers, "x-amz-copy-source-")


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
