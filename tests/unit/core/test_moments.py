"""The grammar of moments."""

from datetime import UTC, datetime

import pytest

from tarn.core.moments import Ago, At, Back, iso_seconds, iso_time, parse_moment

SECOND = 1_000_000


def at(*parts: int) -> At:
    return At(int(datetime(*parts, tzinfo=UTC).timestamp()) * SECOND)  # type: ignore[arg-type,misc]


def test_a_number_is_a_number_of_changes() -> None:
    assert parse_moment("0") == Back(0)
    assert parse_moment("007") == Back(7)
    assert parse_moment("999999") == Back(999_999)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0 seconds ago", 0),
        ("1 second ago", 1),
        ("90.minutes.ago", 5400),
        ("2 hours ago", 7200),
        ("1 day ago", 86_400),
        ("1.day.ago", 86_400),
        ("2 weeks ago", 1_209_600),
        ("999999 weeks ago", 604_799_395_200),
    ],
)
def test_an_age_is_a_moment_relative_to_now(text: str, seconds: int) -> None:
    assert parse_moment(text) == Ago(seconds * SECOND)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01", at(2026, 11, 1)),
        ("2026-11-01T12:30", at(2026, 11, 1, 12, 30)),
        ("2026-11-01 12:30:05", at(2026, 11, 1, 12, 30, 5)),
        ("2026-11-01T12:30:05Z", at(2026, 11, 1, 12, 30, 5)),
        ("2026-11-01T12:30:05+01:30", at(2026, 11, 1, 11, 0, 5)),
        ("2026-11-01T00:30-05:00", at(2026, 11, 1, 5, 30)),
        ("2026-11-01T12:30:05.25Z", At(at(2026, 11, 1, 12, 30, 5).time_us + 250_000)),
        ("1969-12-31T23:59:59Z", At(-SECOND)),
        ("2024-02-29", at(2024, 2, 29)),
    ],
)
def test_a_date_or_time_is_an_absolute_moment(text: str, expected: At) -> None:
    assert parse_moment(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-1", "1234567", "\u0661", "2026-11", "20261101", "2026-11-31", "2025-02-29"),
        *("2026-13-01", "2026-00-01", "2026-11-00", "0000-01-01", "2026-11-01T24:00"),
        *("2026-11-01T12:60", "2026-11-01T12:30:60", "2026-11-01T12", "2026-11-01Z"),
        *("2026-11-01T12:30:05.1234567", "2026-11-01T12:30+24:00", "2026-11-01T12:30z"),
        *(
            "2026-11-01t12:30",
            " 2026-11-01",
            "1 day ago ",
            "1 Day ago",
            "-1 day ago",
            "1.5 days ago",
        ),
    ],
)
def test_other_texts_are_not_parsed_as_moments(text: str) -> None:
    assert parse_moment(text) is None


def test_a_printed_time_is_a_moment() -> None:
    for time_us in (0, 1, 1_793_491_200_123_456):
        assert parse_moment(iso_time(time_us)) == At(time_us)
    assert iso_time(1) == "1970-01-01T00:00:00.000001Z"


def test_a_time_in_whole_seconds_is_not_later() -> None:
    assert iso_seconds(1_793_491_200_999_999) == "2026-11-01T00:00:00Z"
    assert iso_seconds(-1) == "1969-12-31T23:59:59Z"
