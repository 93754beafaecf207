"""Conditional reads and ranges: RFC 9110 §13 and §14, as S3 interprets them. Pure: decides on the entry alone.

Conditions of writes are not decided here: graveler decides whether they hold, together with the write.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from tarn.core.entry import shown_time_us
from tarn.core.value import hot_value
from tarn.objects.byterange import UnsatisfiableRangeError, parse_range

__all__ = [
    "NO_CONDITIONS",
    "ReadAnswer",
    "answer_to",
    "ReadConditions",
    "Verdict",
    "conditions_of",
    "http_date",
    "judge_read",
    "parse_http_date",
    "quoted",
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


NO_CONDITIONS = ReadConditions()


def conditions_of(header: Callable[[str], str | None], prefix: str = "") -> ReadConditions:
    """Returns the conditions of a request.

    Args:
        header: returns the value of a header, by its name in lower case; None without one.
        prefix: before the names of the four headers.
    """
    since = header(prefix + "if-modified-since")
    unmodified = header(prefix + "if-unmodified-since")
    return ReadConditions(
        header(prefix + "if-match"),
        header(prefix + "if-none-match"),
        None if since is None else parse_http_date(since),
        None if unmodified is None else parse_http_date(unmodified),
    )


@hot_value
class ReadAnswer:
    """What of an object answers a read.

    Attributes:
        status: 200: the whole object; 206: a range of it; 304: the client has it; 412: a condition does not hold; 416:
            no byte is in the range.
        start: first byte.
        length: number of bytes; 0 unless the status is 200 or 206.
        size: of the whole object.
    """

    status: int
    start: int
    length: int
    size: int

    @property
    def content_range(self) -> str:
        """The header Content-Range of a 206 or 416; empty for all others."""
        if self.status == 206:
            return f"bytes {self.start}-{self.start + self.length - 1}/{self.size}"
        return f"bytes */{self.size}" if self.status == 416 else ""


_JUDGED = frozenset(
    {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "range", "if-range"}
)
"""The headers that `judge_read` decides on."""


def answer_to(headers: Mapping[str, str], etag: str, mtime_us: int, size: int) -> ReadAnswer:
    """Decides a GET or HEAD by its headers: as `judge_read`, which most of them do not need.

    Args:
        headers: of the request, by their names in lower case.
        etag: of the object, without quotes.
        mtime_us: of the object.
        size: of the object in bytes.
    """
    if _JUDGED.isdisjoint(headers):
        return ReadAnswer(200, 0, size, size)
    header = headers.get
    return judge_read(
        conditions_of(header), etag, mtime_us, size, header("range"), header("if-range")
    )


def judge_read(
    conditions: ReadConditions,
    etag: str,
    mtime_us: int,
    size: int,
    wanted: str | None = None,
    if_range: str | None = None,
) -> ReadAnswer:
    """Decides a GET or HEAD in the order of RFC 9110 §13.2.2.

    Args:
        conditions: of the request.
        etag: of the object, without quotes.
        mtime_us: of the object.
        size: of the object in bytes.
        wanted: the header Range; None without one.
        if_range: the header If-Range. Only the object's ETag in quotes lets the range apply; any other value, also a
            date, answers the whole object.
    """
    match conditions.judge(etag, mtime_us):
        case Verdict.FAILED:
            return ReadAnswer(412, 0, 0, size)
        case Verdict.NOT_MODIFIED:
            return ReadAnswer(304, 0, 0, size)
        case Verdict.PROCEED:
            pass
    if wanted is None or if_range not in (None, quoted(etag)):
        # RFC 9110 §13.1.5: a client cannot use a range of another version and wants the whole new one.
        return ReadAnswer(200, 0, size, size)
    try:
        span = parse_range(wanted, size)
    except UnsatisfiableRangeError:
        return ReadAnswer(416, 0, 0, size)
    if span is None:
        return ReadAnswer(200, 0, size, size)
    return ReadAnswer(206, span.start, span.length, size)
