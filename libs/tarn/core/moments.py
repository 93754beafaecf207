"""The grammar of moments: what stands between the braces of `main@{…}`.

@{2}                           the head before the second to last change of the head
@{2026-11-01}                  the head at the beginning of that day, UTC
@{2026-11-01T12:30}            or with seconds, a fraction, and `Z` or `+01:00`; UTC without a zone
@{1 day ago}, @{1.day.ago}     seconds, minutes, hours, days and weeks
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

__all__ = [
    "MOMENT_CHARS_MAX",
    "MOMENT_RULE",
    "Ago",
    "At",
    "Back",
    "Moment",
    "iso_seconds",
    "iso_time",
    "parse_moment",
]

MOMENT_CHARS_MAX = 64
MOMENT_RULE = (
    "the braces must hold a number of changes of at most six digits, such as @{2}; a time, such as "
    "@{2026-11-01} or @{2026-11-01T12:30:00Z}; or an age, such as @{1 day ago}"
)


@dataclass(frozen=True, slots=True)
class Back:
    """The head before the last `count` changes of the head; 0 is the present head."""

    count: int


@dataclass(frozen=True, slots=True)
class At:
    """The head at a time, in Unix microseconds; negative before 1970."""

    time_us: int


@dataclass(frozen=True, slots=True)
class Ago:
    """The head as it was some microseconds before the request."""

    age_us: int


Moment = Back | At | Ago

_BACK = re.compile(r"[0-9]{1,6}")
_AGO = re.compile(r"([0-9]{1,6})([ .])(second|minute|hour|day|week)s?\2ago")
_AT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?(?:Z|([+-])([0-9]{2}):([0-9]{2}))?)?"
)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment(text: str) -> Moment | None:
    """Parses what stands between the braces; None if it breaks the grammar, or is no date of the calendar."""
    if _BACK.fullmatch(text):
        return Back(int(text))
    if ago := _AGO.fullmatch(text):
        return Ago(int(ago[1]) * _SECONDS[ago[3]] * 1_000_000)
    at = _AT.fullmatch(text)
    return None if at is None else _time(at)


def _time(at: re.Match[str]) -> At | None:
    year, month, day, hour, minute, second = (int(at[index] or 0) for index in range(1, 7))
    fraction_us = int((at[7] or "").ljust(6, "0"))
    try:
        offset = timedelta(hours=int(at[9] or 0), minutes=int(at[10] or 0))
        zone = timezone(-offset if at[8] == "-" else offset)
        when = datetime(year, month, day, hour, minute, second, fraction_us, tzinfo=zone)
    except ValueError:
        return None
    return At((when - _EPOCH) // timedelta(microseconds=1))


def iso_time(time_us: int) -> str:
    """Returns Unix microseconds in the form that a moment takes, such as `2026-11-01T12:30:00.000001Z`."""
    when = _EPOCH + timedelta(microseconds=time_us)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def iso_seconds(time_us: int) -> str:
    """Returns Unix microseconds as a moment in whole seconds, not after it: `2026-11-01T12:30:00Z`."""
    when = _EPOCH + timedelta(seconds=time_us // 1_000_000)
    return when.isoformat().replace("+00:00", "Z")
