from __future__ import annotations

import base64
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarn.core.entry import Entry, pack, unpack
from tarn.core.entry_check import CHECKSUM_BYTES, check_entry
from tarn.core.errors import TarnError
from tarn.objects.checksums import Algorithm
from tarn.objects.headers import StoredHeaders
from tarn_gateway.http import Headers, Response
from tarn_gateway.http.head import HeadError, parse_head
from tarn_gateway.http.limits import HttpLimits
from tarn_gateway.http.response_writer import Framing, render_head
from tarn_gateway.requests.encoded_words import decode_words, encode_words
from tarn_gateway.requests.object_headers import (
    SYSTEM,
    override_headers,
    parse_object_headers,
    response_headers,
)
from tarn_gateway.requests.query import parse_query
from tarn_gateway.s3error import S3Error


def entry(stored: StoredHeaders) -> Entry:
    made = Entry(
        1, 2, bytes(16), bytes(16), content_type=stored.content_type, metadata=stored.metadata,
        content_encoding=stored.content_encoding, cache_control=stored.cache_control,
        content_disposition=stored.content_disposition, content_language=stored.content_language,
        expires=stored.expires,
    )  # fmt: skip
    assert unpack(pack(made)) == made
    return made


def test_headers_come_back_as_they_were_sent() -> None:
    sent = [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-encoding", "aws-chunked,gzip"),
        ("cache-control", "no-cache"),
        ("content-disposition", 'attachment; filename="\xe9.txt"'),
        ("content-language", "de"),
        ("expires", "Thu, 01 Dec 1994 16:00:00 GMT"),
        ("x-amz-meta-zeta", "2"),
        ("x-amz-meta-alpha", "1"),
        ("x-amz-meta-alpha", "3"),
    ]
    assert response_headers(entry(parse_object_headers(Headers(sent)))) == [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Encoding", "gzip"),
        ("Cache-Control", "no-cache"),
        ("Content-Disposition", 'attachment; filename="\xe9.txt"'),
        ("Content-Language", "de"),
        ("Expires", "Thu, 01 Dec 1994 16:00:00 GMT"),
        ("x-amz-meta-alpha", "1,3"),
        ("x-amz-meta-zeta", "2"),
    ]


def test_no_headers_give_the_default_type() -> None:
    stored = parse_object_headers(Headers([]))
    assert stored == StoredHeaders()
    assert response_headers(entry(stored)) == [("Content-Type", "binary/octet-stream")]


@pytest.mark.parametrize(
    ("sent", "kept", "answered"),
    [
        ("plain", "plain", "plain"),
        ("=?UTF-8?B?w6k=?=", "é", "=?UTF-8?B?w6k=?="),
        ("=?UTF-8?Q?=C3=A9?= x", "é x", "=?UTF-8?B?w6kgeA==?="),
        ("é".encode().decode("latin-1"), "é", "=?UTF-8?B?w6k=?="),
        ("\xe9", "é", "=?UTF-8?B?w6k=?="),
        ("=?UTF-8?Q?plain_text?=", "plain text", "plain text"),
        # a word that says a word: another decoding of the answer would change it
        ("=?UTF-8?B?PT9VVEYtOD9RP2E/PQ==?=", "=?UTF-8?Q?a?=", "=?UTF-8?B?PT9VVEYtOD9RP2E/PQ==?="),
        ("=?UTF-8?Q?_a?=", " a", "=?UTF-8?B?IGE=?="),
    ],
)
def test_metadata_beyond_ascii(sent: str, kept: str, answered: str) -> None:
    stored = parse_object_headers(Headers([("x-amz-meta-a", sent)]))
    assert stored.metadata == (("a", kept),)
    value = dict(response_headers(entry(stored)))["x-amz-meta-a"]
    assert value == answered
    # The kept headers survive another round trip.
    again = parse_object_headers(Headers([("x-amz-meta-a", value)]))
    assert again.metadata == stored.metadata


@pytest.mark.parametrize(
    "sent",
    [
        "=?no-such-charset?B?w6k=?=",
        "=?hex?B?w6k=?=",
        "=?UTF-8?B?w6k?=",
        "=?UTF-8?B?!!!?=",
        "=?UTF-8?B?/////w==?=",
        "=?UTF-8?Q?=ZZ?=",
        "=?UTF-8?Q?=C3?=",
        "=?UTF-8?X?abc?=",
        "a=?UTF-8?Q?b?=c",
        "(=?UTF-8?Q?b?=)",
        "=?UTF-8?Q?b?==?UTF-8?Q?c?=",
        "=?utf-7?q?+2AA-?=",
        "two  blanks and\ta tab",
        "=?=?==?",
    ],
)
def test_what_only_looks_like_an_encoded_word_comes_back_as_it_was_sent(sent: str) -> None:
    stored = parse_object_headers(Headers([("x-amz-meta-a", sent)]))
    assert dict(response_headers(entry(stored)))["x-amz-meta-a"] == sent


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_every_text_comes_back_as_it_was_kept(text: str) -> None:
    value = encode_words(text)
    assert value.isascii()
    assert value == value.strip()
    assert not any(each in value for each in "\r\n\0")
    assert decode_words(value) == text


SCRAPS = [
    "=?UTF-8?Q?",
    "=?utf-8*en?b?",
    "?=",
    "=C3=A9",
    "w6k=",
    "=?",
    "?",
    " ",
    "\t",
    "_",
    "a",
    "=",
    "%41",
]


@given(st.lists(st.sampled_from(SCRAPS), max_size=12).map("".join).map(str.strip))
def test_a_header_without_a_whole_word_comes_back_as_it_was_sent(sent: str) -> None:
    kept = decode_words(sent)
    again = encode_words(kept)
    assert decode_words(again) == kept
    if kept == sent:
        assert again == sent
    else:
        assert re.search(r"(?<!\S)=\?[^?\s]+\?[bBqQ]\?[^?\s]*\?=(?!\S)", sent)


def test_a_character_may_be_cut_between_two_words() -> None:
    assert decode_words("x =?UTF-8?Q?=C3?=  =?utf-8?B?qQ==?= y") == "x é y"


def poisoned(**fields: Any) -> list[tuple[str, str]]:
    """The headers of an entry that no S3 client could have stored; they can be sent."""
    made = response_headers(Entry(1, 2, bytes(16), bytes(16), **fields))
    framing = Framing(0, chunked=False, connection="")
    render_head(Response(200, made), "", "1", framing, "total;dur=0.1")
    return made


@pytest.mark.parametrize("field", ["content_type", "cache_control", "content_disposition",
                                   "content_encoding", "content_language", "expires"])  # fmt: skip
@pytest.mark.parametrize("bad", ["a\r\nSet-Cookie: a=b", "a\nb", "a\0", "\x1b[31m", "\x7f"])
def test_a_stored_header_with_a_control_character_is_left_out(field: str, bad: str) -> None:
    assert poisoned(**{field: bad}) == [("Content-Type", "binary/octet-stream")]


def test_a_stored_header_beyond_latin_1_is_sent_as_utf_8() -> None:
    assert poisoned(content_type="☃")[0] == ("Content-Type", "☃".encode().decode("latin-1"))
    assert poisoned(content_type="a\tb")[0] == ("Content-Type", "a\tb")


def test_metadata_that_no_header_can_have_is_counted() -> None:
    metadata = (("a\r\nX: y", "v"), ("a b:c", "v"), ("", "v"), ("ü", "v"), ("ok", "a\r\nb"))
    assert poisoned(metadata=metadata)[1:] == [
        ("x-amz-meta-ok", "=?UTF-8?B?YQ0KYg==?="),
        ("x-amz-missing-meta", "4"),
    ]


def test_metadata_above_two_kib_is_refused() -> None:
    parse_object_headers(Headers([("x-amz-meta-ab", "v" * 2046)]))
    with pytest.raises(S3Error, match="MetadataTooLarge"):
        parse_object_headers(Headers([("x-amz-meta-ab", "v" * 2047)]))
    with pytest.raises(S3Error, match="InvalidArgument"):
        parse_object_headers(Headers([("cache-control", "v" * 8193)]))


def test_overrides_replace_headers_of_a_read() -> None:
    query = parse_query(b"response-content-type=text/x&response-content-disposition=a%3D%C3%A9")
    headers = override_headers([("Content-Type", "a/b"), ("ETag", "e")], query)
    assert headers == [
        ("ETag", "e"),
        ("Content-Type", "text/x"),
        ("Content-Disposition", "a=é".encode().decode("latin-1")),
    ]
    with pytest.raises(S3Error, match="InvalidArgument"):
        override_headers([], parse_query(b"response-expires=a%0D%0AX-Evil:1"))


_VALUES = st.text(st.characters(codec="latin-1"), max_size=40)
_WORDS = st.text(max_size=20).map(
    lambda text: f"=?UTF-8?B?{base64.b64encode(text.encode()).decode()}?="
)
_TOKENS = st.text("!#$%&'*+-.^_`|~AZaz09", max_size=8)
_NAMES = st.one_of(st.sampled_from(SYSTEM), _TOKENS.map("x-amz-meta-{}".format))


@given(st.lists(st.tuples(_NAMES, st.one_of(_VALUES, _WORDS)), max_size=6))
@example([("content-type", "text/html\r\nSet-Cookie: a=b")])
@example([("content-disposition", "a\tb\x7f")])
@example([("x-amz-meta-a", "=?UTF-8?B?DQo=?=")])
@example([("expires", "x" * 8192), ("x-amz-meta-a", "y" * 2047)])
def test_graveler_takes_what_a_request_can_send(pairs: list[tuple[str, str]]) -> None:
    """And refuses what no request can: the characters that the HTTP parser lets through are those of the check."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    sent = None
    with suppress(HeadError):
        sent = parse_head(
            f"PUT / HTTP/1.1\r\nhost: a\r\n{lines}\r\n".encode("latin-1"), HttpLimits()
        )
    # A line break in a value begins another header.
    is_sent = sent is not None and len(sent.headers.pairs) == 1 + len(pairs)
    headers = sent.headers if is_sent and sent is not None else Headers(pairs)
    packed = pack(replace(entry(parse_object_headers(headers)), address=bytes(range(16))))
    refusal = ""
    try:
        check_entry(packed)
    except TarnError as error:
        refusal = error.message
    assert not (is_sent and refusal), refusal


def test_the_checksum_algorithms_are_those_that_graveler_takes() -> None:
    assert set(Algorithm) == set(CHECKSUM_BYTES)
