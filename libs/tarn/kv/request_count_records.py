"""The counts of requests of a month: a row of JSON for each month (docs/operate/usage.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "COUNT_MAX",
    "ENDED_AFTER_US",
    "SOURCES_MAX",
    "MonthCount",
    "check_month",
    "check_row",
    "check_source",
    "month_of",
]

COUNT_MAX: Final = (1 << 53) - 1
"""Most requests of a source: JSON readers know no greater integer."""
SOURCES_MAX: Final = 1000
"""Most sources that a row tells apart: some 70 kB."""
ENDED_AFTER_US: Final = 7_200_000_000
"""A source that told nothing for so long has ended. `tarn.gate.request_counts` never uses one for as long as that."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_SOURCE: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class MonthCount:
    """The requests of one month.

    A source, which is a part of the life of a process, tells the same total again, or a greater one: so a repeated
    report, or one that arrives late, changes nothing.

    Attributes:
        ended: of sources that have ended.
        sources: by source: its total, and when it was told last, in microseconds since the epoch.
    """

    ended: int = 0
    sources: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def total(self) -> int:
        """All requests of the month."""
        return self.ended + sum(count for count, _ in self.sources.values())

    def told(self, source: str, total: int, now_us: int) -> MonthCount:
        """Returns the counts after a report; those of sources that have ended become one number.

        Raises:
            TarnError: EXHAUSTED: there are too many sources; nothing is counted.
        """
        before = self.sources.get(source)
        if before is not None and before[0] >= total:
            return self
        oldest_us = now_us - ENDED_AFTER_US
        kept = {
            name: each
            for name, each in self.sources.items()
            if each[1] > oldest_us and name != source
        }
        ended = self.ended + sum(
            count
            for name, (count, _) in self.sources.items()
            if name not in kept and name != source
        )
        if len(kept) >= SOURCES_MAX:
            text = f"more than {SOURCES_MAX} processes count requests; this count waits until some have ended"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        return MonthCount(ended, MappingProxyType({**kept, source: (total, now_us)}))

    def encode(self) -> bytes:
        """Encodes the row."""
        return json.dumps({"ended": self.ended, "sources": dict(self.sources)}).encode()

    @classmethod
    def decode(cls, value: bytes | None) -> MonthCount:
        """Decodes a row; None is one without requests. Fields of later releases are ignored.

        Raises:
            TarnError: CORRUPT.
        """
        if value is None:
            return cls()
        try:
            found = json.loads(value)
            sources = {
                check_source(name): (int(count), int(time_us))
                for name, (count, time_us) in found["sources"].items()
            }
            return cls(int(found["ended"]), MappingProxyType(sources))
        except (ValueError, TypeError, KeyError, AttributeError, TarnError) as error:
            text = "the requests of a month cannot be read"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error


def month_of(time_us: int, later: timedelta = timedelta()) -> str:
    """Returns the month of a time in microseconds since 1970, or of one that is `later`: in UTC, such as `2026-11`."""
    return f"{_EPOCH + timedelta(microseconds=time_us) + later:%Y-%m}"


def check_month(month: str) -> str:
    """Returns a month, such as `2026-11`.

    Raises:
        TarnError: INVALID.
    """
    if not _MONTH.fullmatch(month):
        text = f"month {month[:80]!r} is not written as 2026-11"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="month")
    return month


def check_source(source: str) -> str:
    """Returns the name of a source, 32 lower-case hex digits.

    Raises:
        TarnError: INVALID.
    """
    if not _SOURCE.fullmatch(source):
        text = f"source {source[:80]!r} is not 32 hex digits"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="source")
    return source


def check_row(key: bytes, value: bytes) -> None:
    """Checks a row.

    Raises:
        TarnError: its key or its value cannot be read.
    """
    check_month(key.decode("utf-8", "replace"))
    MonthCount.decode(value)
