"""The counts of a month: repeated and late reports, sources that have ended, and rows that cannot be read."""

from __future__ import annotations

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.request_count_records import ENDED_AFTER_US, SOURCES_MAX, MonthCount, check_row

A, B = "a" * 32, "b" * 32


def test_sources_are_summed_and_a_repeated_or_late_report_changes_nothing() -> None:
    count = MonthCount().told(A, 5, 1).told(B, 7, 2).told(A, 6, 3)
    assert count.total == 13
    for late in (5, 6):
        assert count.told(A, late, 4) is count
    assert MonthCount.decode(count.encode()) == count
    assert MonthCount.decode(None).total == 0


def test_sources_that_have_ended_become_one_number() -> None:
    count = MonthCount().told(A, 5, 0)
    later = count.told(B, 1, ENDED_AFTER_US)
    assert (later.ended, set(later.sources), later.total) == (5, {B}, 6)
    # The source that tells something is alive.
    assert count.told(A, 6, ENDED_AFTER_US * 9).total == 6


def test_a_row_has_a_bound() -> None:
    full = MonthCount(2, {f"{each:032x}": (1, 0) for each in range(SOURCES_MAX)})
    assert full.told(f"{1:032x}", 3, 1).total == SOURCES_MAX + 4
    with pytest.raises(TarnError) as caught:
        full.told(A, 1, 1)
    assert caught.value.kind is Kind.EXHAUSTED
    assert full.told(A, 1, ENDED_AFTER_US).total == SOURCES_MAX + 3
    assert len(full.encode()) < 100_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"2026-11", b"{"),
        (b"2026-11", b"[]"),
        (b"2026-11", b'{"ended": 1}'),
        (b"2026-11", b'{"ended": 1, "sources": {"x": [1, 2]}}'),
        (b"2026-11", b'{"ended": 1, "sources": {"%s": [1]}}' % A.encode()),
        (b"2026-13", MonthCount().encode()),
        (b"2026-1", MonthCount().encode()),
        (b"\xff", MonthCount().encode()),
    ],
)
def test_a_row_that_cannot_be_read_is_an_error(key: bytes, value: bytes) -> None:
    check_row(b"2026-11", MonthCount().told(A, 1, 1).encode())
    with pytest.raises(TarnError):
        check_row(key, value)
