from __future__ import annotations

from datetime import timedelta, timezone
from email.utils import parsedate_to_datetime

import pytest

from tarn.core.condition import WriteCondition
from tarn.objects.conditions import Verdict, http_date, parse_http_date
from tarn_gateway.documents.xml_out import iso_date
from tarn_gateway.http import Headers
from tarn_gateway.requests.condition_headers import (
    check_copy_source,
    read_conditions,
    write_condition,
)
from tarn_gateway.s3error import S3Error

ETAG = "5d41402abc4b2a76b9719d911017c592"
MTIME_US = 784_111_777_999_999
THEN, LATER, EARLIER = (http_date((784_111_777 + d) * 1_000_000) for d in (0, 1, -1))
OK, SAME, FAILED = Verdict.PROCEED, Verdict.NOT_MODIFIED, Verdict.FAILED


def test_dates() -> None:
    assert THEN == "Sun, 06 Nov 1994 08:49:37 GMT"
    assert parse_http_date(THEN) == 784_111_777
    assert parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT") == 784_111_777
    assert parse_http_date("Sun Nov  6 08:49:37 1994") == 784_111_777
    for bad in ("", "yesterday", "99999", "Sun, 99 Nov 1994 08:49:37 GMT"):
        assert parse_http_date(bad) is None


@pytest.mark.parametrize(
    ("time_us", "date"),
    [
        (2**63 - 1, "Thu, 30 Dec 9999 23:59:59 GMT"),
        (-(2**63), "Thu, 01 Jan 1970 00:00:00 GMT"),
        (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
    ],
)
def test_a_time_that_no_calendar_has_is_shown_as_the_nearest(time_us: int, date: str) -> None:
    assert http_date(time_us) == date
    then = parsedate_to_datetime(date)
    assert then.astimezone(timezone(timedelta(hours=14))) == then
    assert then.astimezone(timezone(timedelta(hours=-12))) == then
    assert iso_date(time_us) == then.isoformat()[:19] + ".000Z"


@pytest.mark.parametrize(
    ("headers", "verdict"),
    [
        ({}, OK),
        ({"if-match": f'"{ETAG}"'}, OK),
        ({"if-match": ETAG}, OK),
        ({"if-match": "*"}, OK),
        ({"if-match": f'"x", "{ETAG}"'}, OK),
        ({"if-match": '"x"'}, FAILED),
        ({"if-none-match": f'"{ETAG}"'}, SAME),
        ({"if-none-match": f'W/"{ETAG}"'}, SAME),
        ({"if-none-match": "*"}, SAME),
        ({"if-none-match": '"x"'}, OK),
        ({"if-modified-since": THEN}, SAME),
        ({"if-modified-since": LATER}, SAME),
        ({"if-modified-since": EARLIER}, OK),
        ({"if-modified-since": "no date"}, OK),
        ({"if-unmodified-since": THEN}, OK),
        ({"if-unmodified-since": EARLIER}, FAILED),
        # RFC 9110 §13.2.2: an entity tag beats the date of the same kind, 412 beats 304.
        ({"if-match": f'"{ETAG}"', "if-unmodified-since": EARLIER}, OK),
        ({"if-none-match": '"x"', "if-modified-since": LATER}, OK),
        ({"if-match": '"x"', "if-none-match": f'"{ETAG}"'}, FAILED),
        ({"if-match": f'"{ETAG}"', "if-none-match": f'"{ETAG}"'}, SAME),
        ({"if-unmodified-since": LATER, "if-modified-since": LATER}, SAME),
    ],
)
def test_reads(headers: dict[str, str], verdict: Verdict) -> None:
    assert read_conditions(Headers(headers.items())).judge(ETAG, MTIME_US) is verdict
    copies = Headers((f"x-amz-copy-source-{name}", value) for name, value in headers.items())
    if verdict is OK:
        check_copy_source(copies, ETAG, MTIME_US)
    else:
        with pytest.raises(S3Error, match="PreconditionFailed"):
            check_copy_source(copies, ETAG, MTIME_US)


@pytest.mark.parametrize(
    ("headers", "condition"),
    [
        ({}, WriteCondition()),
        ({"if-none-match": "*"}, WriteCondition(if_none_match=True)),
        ({"if-match": f'"{ETAG}"'}, WriteCondition(if_match=ETAG)),
        ({"if-match": "*"}, WriteCondition(if_match="*")),
    ],
)
def test_writes(headers: dict[str, str], condition: WriteCondition) -> None:
    found = write_condition(Headers(headers.items()))
    assert found == condition
    assert bool(found) is bool(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"if-none-match": f'"{ETAG}"'},
        {"if-none-match": "*", "if-match": "*"},
        {"if-match": '"a", "b"'},
        {"if-match": ""},
    ],
)
def test_other_conditions_of_writes_are_refused_not_ignored(headers: dict[str, str]) -> None:
    with pytest.raises(S3Error, match="NotImplemented"):
        write_condition(Headers(headers.items()))
