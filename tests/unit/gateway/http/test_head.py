from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn_gateway.http import HttpLimits
from tarn_gateway.http.head import HeadError, parse_head

LIMITS = HttpLimits()


def head(*lines: str, first: str = "PUT /a?b=c HTTP/1.1") -> bytes:
    return "\r\n".join([first, "Host: h", *lines, "", ""]).encode("latin-1")


def test_the_parts_of_a_head() -> None:
    parsed = parse_head(head("Content-Length: 7", "Expect: 100-Continue"), LIMITS)
    assert (parsed.method, parsed.raw_path, parsed.raw_query) == ("PUT", b"/a", b"b=c")
    assert (parsed.body_length, parsed.expects_continue, parsed.keep_alive) == (7, True, True)


def test_names_are_lower_case_and_values_trimmed_bytes_as_latin_1() -> None:
    parsed = parse_head(head("X-AMZ-Meta-A: \t caf\xe9  x \t ", "Empty:   "), LIMITS)
    assert parsed.headers.pairs == [("host", "h"), ("x-amz-meta-a", "caf\xe9  x"), ("empty", "")]


@pytest.mark.parametrize(
    ("lines", "length"),
    [([], 0), (["Content-Length: 0"], 0), (["Transfer-Encoding: Chunked"], None)],
)
def test_body_lengths(lines: list[str], length: int | None) -> None:
    assert parse_head(head(*lines), LIMITS).body_length == length


@pytest.mark.parametrize(
    ("line", "first", "keep"),
    [
        ("A: b", "GET / HTTP/1.1", True),
        ("Connection: foo, Close", "GET / HTTP/1.1", False),
        ("A: b", "GET / HTTP/1.0", False),
        ("Connection: Keep-Alive", "GET / HTTP/1.0", True),
    ],
)
def test_keep_alive(line: str, first: str, keep: bool) -> None:
    assert parse_head(head(line, first=first), LIMITS).keep_alive is keep


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/", b"/", b""),
        ("/a?", b"/a", b""),
        ("/a?b?c", b"/a", b"b?c"),
        ("HTTP://h:1/a?b", b"/a", b"b"),
        ("https://h", b"/", b""),
        ("//a//b/../c", b"//a//b/../c", b""),
    ],
)
def test_targets(target: str, path: bytes, query: bytes) -> None:
    parsed = parse_head(head(first=f"GET {target} HTTP/1.1"), LIMITS)
    assert (parsed.raw_path, parsed.raw_query) == (path, query)


def test_a_head_without_its_end_is_refused() -> None:
    with pytest.raises(HeadError):
        parse_head(head()[:-2], LIMITS)


NAMES = st.sampled_from(["a", "A", "b", "x-amz-meta-c", "X-Amz-Meta-C"])
VALUES = st.text(st.sampled_from("a ,:\t\xe9\xa0\x85\xff"), max_size=6)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8))
def test_headers_are_those_that_were_sent_whether_or_not_a_name_is_repeated(
    sent: list[tuple[str, str]],
) -> None:
    """Distinct headers are collected in another way than repeated ones."""
    parsed = parse_head(head(*(f"{name}: {value}" for name, value in sent)), LIMITS)
    expected = [(name.lower(), value.strip(" \t")) for name, value in sent]
    assert parsed.headers.pairs == [("host", "h"), *expected]
    joined: dict[str, str] = {"host": "h"}
    for name, value in expected:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    assert parsed.headers == joined
    assert parsed.headers.amz_names == [name for name in joined if name.startswith("x-amz-")]
