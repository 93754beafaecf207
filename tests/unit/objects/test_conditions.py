from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.objects.conditions import (
    NO_CONDITIONS,
    ReadAnswer,
    ReadConditions,
    answer_to,
    conditions_of,
    http_date,
    judge_read,
)

ETAG = "5d41402abc4b2a76b9719d911017c592"
MTIME_US = 784_111_777_999_999
THEN = http_date(MTIME_US)


@pytest.mark.parametrize(
    ("wanted", "if_range", "status", "start", "length", "content_range"),
    [
        (None, None, 200, 0, 100, ""),
        ("bytes=10-19", None, 206, 10, 10, "bytes 10-19/100"),
        ("bytes=-5", None, 206, 95, 5, "bytes 95-99/100"),
        ("bytes=0-", None, 206, 0, 100, "bytes 0-99/100"),
        ("bytes=100-", None, 416, 0, 0, "bytes */100"),
        ("pages=1-2", None, 200, 0, 100, ""),
        ("bytes=1-2,5-6", None, 200, 0, 100, ""),
        ("bytes=10-19", f'"{ETAG}"', 206, 10, 10, "bytes 10-19/100"),
        # A range of another version is of no use, not even to learn that it does not exist.
        ("bytes=10-19", '"other"', 200, 0, 100, ""),
        ("bytes=100-", '"other"', 200, 0, 100, ""),
        ("bytes=10-19", f'W/"{ETAG}"', 200, 0, 100, ""),
        ("bytes=10-19", THEN, 200, 0, 100, ""),
        (None, '"other"', 200, 0, 100, ""),
    ],
)
def test_ranges(
    wanted: str | None,
    if_range: str | None,
    status: int,
    start: int,
    length: int,
    content_range: str,
) -> None:
    told = judge_read(NO_CONDITIONS, ETAG, MTIME_US, 100, wanted, if_range)
    assert told == ReadAnswer(status, start, length, 100)
    assert told.content_range == content_range


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        (ReadConditions(if_match=f'"{ETAG}"'), 206),
        (ReadConditions(if_match='"other"'), 412),
        (ReadConditions(if_none_match=f'"{ETAG}"'), 304),
        (ReadConditions(if_none_match='"other"'), 206),
        (ReadConditions(if_modified_since_s=784_111_777), 304),
        (ReadConditions(if_unmodified_since_s=784_111_776), 412),
        (ReadConditions(if_match='"other"', if_none_match="*"), 412),
    ],
)
def test_conditions_come_before_ranges(conditions: ReadConditions, status: int) -> None:
    told = judge_read(conditions, ETAG, MTIME_US, 100, "bytes=0-4")
    assert told.status == status
    assert told.length == (5 if status == 206 else 0)
    outside = judge_read(conditions, ETAG, MTIME_US, 100, "bytes=100-")
    assert outside.status == (416 if status == 206 else status)


def test_the_headers_of_conditions_are_read() -> None:
    headers = {
        "if-match": "*",
        "if-none-match": '"x"',
        "if-modified-since": THEN,
        "if-unmodified-since": "yesterday",
    }
    expected = ReadConditions("*", '"x"', 784_111_777, None)
    assert conditions_of(headers.get) == expected
    assert (
        conditions_of({f"a-{name}": value for name, value in headers.items()}.get, "a-") == expected
    )
    assert conditions_of(dict[str, str]().get) == NO_CONDITIONS


HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("if-match", "if-none-match", "if-modified-since", "if-unmodified-since"),
            *("range", "if-range", "host", "x-other"),
        ]
    ),
    st.sampled_from([f'"{ETAG}"', '"other"', "*", THEN, "bytes=1-2", "bytes=100-", "x"]),
    max_size=3,
)


@given(HEADERS)
def test_headers_without_conditions_are_judged_as_all_others(headers: dict[str, str]) -> None:
    """Most reads have none of the headers, and are not judged one by one."""
    judged = judge_read(
        conditions_of(headers.get),
        *(ETAG, MTIME_US, 100),
        headers.get("range"),
        headers.get("if-range"),
    )
    assert answer_to(headers, ETAG, MTIME_US, 100) == judged
