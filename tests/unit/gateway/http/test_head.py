from __future__ import annotations

import pytest

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


def test_a_head_must_be_whole() -> None:
    with pytest.raises(HeadError):
        parse_head(head()[:-2], LIMITS)
