"""CORS rules: what they accept, what they match, and their JSON."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.cors import (
    CORS_BYTES_MAX,
    CORS_METHODS,
    CORS_RULES_MAX,
    CorsRule,
    cors_to_json,
    match_cors,
    parse_cors,
)
from tarn.core.errors import Reason, TarnError

FULL = {
    "ID": "app",
    "AllowedOrigins": ["https://*.example.com"],
    "AllowedMethods": ["GET", "PUT"],
    "AllowedHeaders": ["x-amz-*", "Content-Type"],
    "ExposeHeaders": ["ETag"],
    "MaxAgeSeconds": 600,
}


BAD_FIELDS: list[dict[str, object]] = [
    {"Other": 1},
    {"AllowedOrigins": []},
    {"AllowedOrigins": "https://a"},
    {"AllowedOrigins": ["https://*.*.com"]},
    {"AllowedOrigins": ["https://a\r\nX-Evil: 1"]},
    {"AllowedOrigins": [""]},
    {"AllowedMethods": []},
    {"AllowedMethods": ["OPTIONS"]},
    {"AllowedMethods": ["get"]},
    {"AllowedHeaders": ["a*b*"]},
    {"AllowedHeaders": ["a b"]},
    {"ExposeHeaders": ["*"]},
    {"ExposeHeaders": ["a\r\nb"]},
    {"ExposeHeaders": ["a,b"]},
    {"MaxAgeSeconds": -(2**31)},
    {"MaxAgeSeconds": True},
    {"MaxAgeSeconds": 1.5},
    {"MaxAgeSeconds": 2**31},
    {"ID": "x" * 256},
    {"ID": 1},
    {"ID": "\n"},
]


def text(*rules: object) -> str:
    return json.dumps({"CORSRules": rules})


def test_rules_are_read_and_written() -> None:
    rules = parse_cors(text(FULL, {"AllowedOrigins": ["*"], "AllowedMethods": ["HEAD"]}))
    assert json.loads(cors_to_json(rules))["CORSRules"][0] == FULL
    assert parse_cors(cors_to_json(rules)) == rules
    assert (parse_cors(""), cors_to_json(())) == ((), "")


@pytest.mark.parametrize(
    "bad",
    [
        "[]",
        "{",
        "[" * 8000,
        text(),
        json.dumps({"CORSRules": [FULL], "More": 1}),
        text(*[FULL] * (CORS_RULES_MAX + 1)),
        text(FULL | {"ID": "x" * CORS_BYTES_MAX}),
        *[text(FULL | fields) for fields in BAD_FIELDS],
    ],
)
def test_rules_that_are_not_acceptable_are_refused(bad: str) -> None:
    with pytest.raises(TarnError) as caught:
        parse_cors(bad)
    assert caught.value.reason is Reason.INVALID_ARGUMENT


def test_what_is_written_has_the_bound_of_what_is_read() -> None:
    rule = CorsRule(("https://" + "a" * 500,), ("GET",))
    with pytest.raises(TarnError):
        cors_to_json([rule] * 20)


@pytest.mark.parametrize(
    ("allowed", "origin", "answer"),
    [
        ("*", "https://a", "*"),
        ("https://a", "https://a", "https://a"),
        ("https://a", "https://A", ""),
        ("https://a", "http://a", ""),
        ("https://*.a", "https://b.a", "https://b.a"),
        ("https://*.a", "https://.a", "https://.a"),
        ("https://*.a", "https://a", ""),
        ("ab*ba", "aba", ""),
        ("*suffix", "foo.suffix", "foo.suffix"),
        ("*suffix", "foo.suffix.get", ""),
        ("https://a", "null", ""),
        ("*", "null", "*"),
    ],
)
def test_origins(allowed: str, origin: str, answer: str) -> None:
    found = match_cors([CorsRule((allowed,), ("GET",))], origin, "GET")
    assert (found[1] if found else "") == answer


def test_the_first_rule_that_allows_all_of_it_decides() -> None:
    rules = [
        CorsRule(("https://a",), ("PUT",), ("x-*",)),
        CorsRule(("*",), ("PUT", "GET"), ("*",)),
    ]
    found = match_cors(rules, "https://a", "PUT", frozenset({"x-one"}))
    assert found == (rules[0], "https://a")
    assert match_cors(rules, "https://a", "PUT", frozenset({"x-one", "y"})) == (rules[1], "*")
    assert match_cors(rules, "https://a", "DELETE") is None
    assert match_cors(rules[:1], "https://a", "PUT", frozenset({"X"})) is None
    many = frozenset(f"x-{number}" for number in range(101))
    assert match_cors(rules, "https://a", "PUT", many) is None


@given(
    st.lists(
        st.builds(
            CorsRule,
            st.lists(st.sampled_from(["*", "https://a", "h*b"]), min_size=1, max_size=3).map(tuple),
            st.lists(st.sampled_from(CORS_METHODS), min_size=1, max_size=5).map(tuple),
            st.lists(st.sampled_from(["*", "x-*", "etag"]), max_size=3).map(tuple),
            st.lists(st.sampled_from(["ETag", "x"]), max_size=3).map(tuple),
            st.none() | st.integers(0, 2**31 - 1),
            st.text(max_size=20).filter(str.isprintable),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_json_keeps_every_rule(rules: list[CorsRule]) -> None:
    assert list(parse_cors(cors_to_json(rules))) == rules


@given(st.text(max_size=60))
def test_any_text_is_rules_or_refused(given_text: str) -> None:
    with suppress(TarnError):
        assert parse_cors(given_text) == ()
