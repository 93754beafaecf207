"""A head that follows another one on a connection is parsed as it would be alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tarn_gateway.http import HttpLimits
from tarn_gateway.http import last_head as module
from tarn_gateway.http.head import Head, HeadError, parse_head
from tarn_gateway.http.last_head import LastHead

LIMITS = HttpLimits(url_bytes_max=64, header_count_max=7)

TARGETS = st.sampled_from(
    [
        "/",
        "/lake/main/a",
        "/lake/main/b?x=y",
        "/a?",
        "/a?b?c",
        "//a",
        "/%41",
        "/a#b",
        "/a b",
        "/a\tb",
        *(
            "*",
            "http://h/a",
            "a",
            "",
            "/ä",
            "/a\x00",
            "/a\\b",
            '/a"b',
            "/a|b",
            "/" + "a" * 60,
            "/[a]",
        ),
    ]
)
FIRSTS = st.builds(
    lambda method, target, version: f"{method} {target} {version}",
    st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE", "CONNECT", "get", ""]),
    TARGETS,
    st.sampled_from(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.1 ", "http/1.1"]),
)
NAMES = st.sampled_from(
    [
        "Host",
        "host",
        "Authorization",
        "x-amz-date",
        "X-Amz-Date",
        "Range",
        "range",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "Upgrade",
        "x-amz-meta-a",
        "User-Agent",
        " a",
        "a b",
    ]
)
VALUES = st.sampled_from(
    [
        "h",
        "a",
        "b",
        "",
        " ",
        "a ",
        " a",
        "a\tb",
        "a,b",
        "1",
        "2",
        "chunked",
        "close",
        "keep-alive",
        "\xe9",
        "bytes=0-1",
        "100-continue",
        "a\nb",
        "a\rb",
        "a\x00b",
        "a\r\n b",
        "a\r\nContent-Length: 3",
        "h2c",
    ]
)
LINES = st.builds(
    lambda name, colon, value: f"{name}{colon}{value}",
    NAMES,
    st.sampled_from([": ", ": ", ": ", ":", " : ", ":\t", ""]),
    VALUES,
)


def bytes_of(first: str, lines: list[str]) -> bytes:
    # A head ends with its first empty line: the connection has cut it there.
    text = "\r\n".join([first, *lines, "", ""]).encode("latin-1")
    return text[: text.index(b"\r\n\r\n") + 4]


def alone(data: bytes) -> Head | int:
    try:
        return parse_head(data, LIMITS)
    except HeadError as error:
        return error.status


def after(heads: LastHead, data: bytes) -> Head | int:
    try:
        head, method, path, query, headers = heads.parse(data, LIMITS)
    except HeadError as error:
        return error.status
    return head._replace(method=method, raw_path=path, raw_query=query, headers=headers)


def agree(one: Head | int, other: Head | int) -> None:
    assert one == other
    if isinstance(one, Head) and isinstance(other, Head):
        assert one.headers.pairs == other.headers.pairs
        assert one.headers.amz_names == other.headers.amz_names


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """Heads of one connection, most of which differ from the last one in few lines."""
    first = draw(st.one_of(st.just("GET /lake/main/a HTTP/1.1"), FIRSTS))
    lines = ["Host: h", *draw(st.lists(LINES, max_size=6))]
    heads = [bytes_of(first, lines)]
    for _ in range(draw(st.integers(1, 4))):
        lines = list(lines)
        if draw(st.booleans()):
            first = draw(FIRSTS)
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(lines) - 1))
            name, _, _ = lines[at].partition(": ")
            lines[at] = draw(st.one_of(LINES, VALUES.map(f"{name}: {{}}".format)))
        heads.append(bytes_of(first, lines))
    return heads


@settings(max_examples=2000)
@given(conversations())
@example([bytes_of("GET /a HTTP/1.1", ["Host: h", f"Range: {value}"]) for value in ("a", "b ")])
def test_a_head_means_the_same_whatever_was_before_it(conversation: list[bytes]) -> None:
    heads = LastHead()
    for data in conversation:
        agree(after(heads, data), alone(data))


@settings(max_examples=500)
@given(st.data(), conversations())
def test_neither_do_other_bytes_in_a_head_that_is_known(
    data: st.DataObject, conversation: list[bytes]
) -> None:
    heads = LastHead()
    known = conversation[0]
    after(heads, known)
    changed = bytearray(known)
    changed[data.draw(st.integers(0, len(known) - 5))] = data.draw(st.integers(0, 255))
    cut = bytes(changed)[: changed.index(b"\r\n\r\n") + 4]
    agree(after(heads, cut), alone(cut))


def test_a_head_like_the_last_one_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the tests above could compare the general way with itself."""
    lines = ["Host: h", "x-amz-date: 1", "Authorization: a Signature=1"]
    heads = LastHead()
    after(heads, bytes_of("GET /a HTTP/1.1", lines))
    monkeypatch.setattr(module, "parse_head", None)
    found = after(
        heads, bytes_of("HEAD /b?c HTTP/1.1", [*lines[:2], "Authorization: a Signature=2"])
    )
    assert isinstance(found, Head)
    assert (found.method, found.raw_path, found.raw_query) == ("HEAD", b"/b", b"c")
    assert found.headers["authorization"] == "a Signature=2"


@pytest.mark.parametrize(
    "lines",
    [["Host: h", f"User-Agent: {'a' * 3000}"], ["Host: h", "a: b", "a: c"]],
)
def test_long_heads_and_repeated_names_are_not_remembered(lines: list[str]) -> None:
    heads = LastHead()
    after(heads, bytes_of("GET /a HTTP/1.1", lines))
    assert not heads._lines
