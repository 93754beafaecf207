from __future__ import annotations

from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn_gateway.requests.query import parse_query, refuse_version
from tarn_gateway.s3error import S3Error


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=5))
def test_form_encoding_is_read_back(pairs: dict[str, str]) -> None:
    raw = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs.items())
    query = parse_query(raw.encode())
    pairs = {name: value for name, value in pairs.items() if name or value}
    assert {name: query.text(name) for name in query} == pairs | (
        {"": ""} if "" in query and "" not in pairs else {}
    )


def test_presence_and_first_value() -> None:
    query = parse_query(b"uploads&prefix=a%2Fb+c&prefix=z&&x=%2541")
    assert "uploads" in query
    assert query.get("uploads") == ""
    assert query.text("prefix") == "a/b c"
    assert query.text("x") == "%41"
    assert query.get("absent") is None
    assert len(query) == 3


@pytest.mark.parametrize(
    ("raw", "value"), [(b"", 1000), (b"n=", 1000), (b"n=0", 0), (b"n=7", 7), (b"n=5000", 1000)]
)
def test_numbers_are_capped(raw: bytes, value: int) -> None:
    assert parse_query(raw).integer("n", 1000, least=0, most=1000) == value


@pytest.mark.parametrize(
    "raw", [b"n=-1", b"n=x", b"n=1.5", b"n=%D9%A3", b"n=99999999999", b"n=--1", b"n=-"]
)
def test_an_invalid_number_is_refused(raw: bytes) -> None:
    with pytest.raises(S3Error, match="InvalidArgument"):
        parse_query(raw).integer("n", 1000, least=0, most=1000)


def test_bad_utf8_and_too_many_parameters_are_refused() -> None:
    with pytest.raises(S3Error, match="InvalidURI"):
        parse_query(b"prefix=%FF")
    parse_query(b"&".join(b"a%d" % i for i in range(64)))
    with pytest.raises(S3Error, match="InvalidRequest"):
        parse_query(b"&".join(b"a%d" % i for i in range(65)))


def test_versions_other_than_null_are_refused() -> None:
    with pytest.raises(S3Error, match="NotImplemented") as caught:
        refuse_version(parse_query(b"versionId=abc"))
    assert caught.value.extra["Parameter"] == "versionId"
    refuse_version(parse_query(b"list-type=2&prefix=a&uploads&versionId=null&x-id=PutObject"))
