"""The head of a request: llhttp parses the grammar; this module enforces limits and the rules that S3 needs.

llhttp in its strict mode refuses the inputs of request smuggling: bare LF, folded lines, blanks before the
colon, a repeated Content-Length or one beside Transfer-Encoding. It receives one complete head at a time and
never sees a body, so pipelined requests and large bodies need no callbacks.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple

import httptools

from tarn_gateway.http.headers import Headers
from tarn_gateway.http.limits import HttpLimits

__all__ = ["Head", "HeadError", "parse_head"]


class HeadError(Exception):
    """A head that cannot be passed to a handler.

    Attributes:
        status: of the answer.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Head(NamedTuple):
    """A parsed head.

    Attributes:
        method: upper case.
        raw_path, raw_query: of the target, see `Request`.
        headers: names in lower case.
        body_length: Content-Length; None for a chunked body; 0 without a body.
        expects_continue: whether the request has `Expect: 100-continue`.
        keep_alive: whether the client wants to reuse the connection.
        http_1_0: whether the version is HTTP/1.0.
    """

    method: str
    raw_path: bytes
    raw_query: bytes
    headers: Headers
    body_length: int | None
    expects_continue: bool
    keep_alive: bool
    http_1_0: bool


@lru_cache(maxsize=1024)  # the same names appear in every request
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


class _Sink:
    """Collects llhttp's callbacks. It has those of distinct headers without a call of Python."""

    __slots__ = ("complete", "distinct", "on_header", "target")

    def __init__(self) -> None:
        self.target = b""
        self.distinct: dict[bytes, bytes] = {}
        self.on_header = self.distinct.__setitem__
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_headers_complete(self) -> None:
        self.complete = True


class _RepeatedSink:
    """Collects all headers, in order."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.lines.append((name, value))


def _headers_of(data: memoryview | bytes, distinct: dict[bytes, bytes]) -> Headers:
    """Returns the headers of a parsed head. Each is a line, so fewer distinct ones than lines mean that a name is
    repeated; then the head is parsed again."""
    names: Collection[bytes] = distinct
    texts = b"\n".join(distinct.values()).decode("latin-1").split("\n")  # all at once
    is_each_a_line = bytes(data).count(b"\r\n") == len(distinct) + 2  # those of request and end
    if not (is_each_a_line and len(texts) == len(names)):
        sink = _RepeatedSink()
        with suppress(httptools.HttpParserUpgrade):
            httptools.HttpRequestParser(sink).feed_data(data)
        names = [name for name, _ in sink.lines]
        texts = [value.decode("latin-1") for _, value in sink.lines]
    # llhttp keeps blanks after a value; they are not part of it (RFC 9110 §5.5).
    return Headers(zip(map(_lower, names), map(str.rstrip, texts, repeat(" \t")), strict=False))


_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})
"""Headers of requests with bodies."""


def _body_length(headers: Headers, *, http_1_0: bool) -> int | None:
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if coding.strip().lower() != "chunked" or http_1_0:
            raise HeadError(501, f"transfer coding {coding[:40]!r} is not implemented")
        if "content-length" in headers:
            raise HeadError(400, "Content-Length beside Transfer-Encoding")
        return None
    length = headers.get("content-length")
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise HeadError(400, "Content-Length is not a number of bytes")
    return int(length)


def _keep_alive(value: str, *, http_1_0: bool) -> bool:
    """Applies RFC 9112 §9.3 to the header Connection; without one, HTTP/1.1 keeps a connection and HTTP/1.0 ends it.
    llhttp's own answer is lost by the time a head without a body is parsed."""
    options = [option.strip() for option in value.lower().split(",")]
    return "close" not in options and (not http_1_0 or "keep-alive" in options)


def _split_target(target: bytes, limit: int) -> tuple[bytes, bytes]:
    if len(target) > limit:
        raise HeadError(414, f"the target is longer than {limit} bytes")
    if not target.startswith(b"/"):
        # The absolute form, which a server must accept (RFC 9112 §3.2.2).
        scheme, found, rest = target.partition(b"://")
        if not found or scheme.lower() not in (b"http", b"https"):
            raise HeadError(400, "the target is neither a path nor an http URL")
        slash = rest.find(b"/")
        target = rest[slash:] if slash >= 0 else b"/"
    if b"#" in target:
        raise HeadError(400, "the target has a fragment")
    path, _, query = target.partition(b"?")
    return path, query


def parse_head(data: memoryview | bytes, limits: HttpLimits) -> Head:
    """Parses a head that ends with its empty line.

    Raises:
        HeadError: 400 malformed, 405 CONNECT, 414 and 431 too long, 501 unknown transfer coding,
            505 another version of HTTP.
    """
    sink = _Sink()
    parser = httptools.HttpRequestParser(sink)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # `Upgrade: h2c` is an offer, which a server may ignore (RFC 9110 §7.8)
    except httptools.HttpParserError as error:
        raise HeadError(400, f"malformed request: {error}") from None
    if not sink.complete:
        raise HeadError(400, "malformed request: the headers do not end")
    method = parser.get_method().decode("ascii")
    if method == "CONNECT":
        raise HeadError(405, "CONNECT is not offered")
    version = parser.get_http_version()
    if version not in ("1.1", "1.0"):
        raise HeadError(505, f"HTTP/{version} is not offered")
    path, query = _split_target(sink.target, limits.url_bytes_max)
    headers = _headers_of(data, sink.distinct)
    if len(headers.pairs) > limits.header_count_max:
        raise HeadError(431, f"more than {limits.header_count_max} headers")
    http_1_0 = version == "1.0"
    host = headers.get("host")
    if not http_1_0 and (host is None or "," in host):
        raise HeadError(400, "exactly one Host header is required")
    return Head(
        method,
        path,
        query,
        headers,
        0 if _FRAMING.isdisjoint(headers) else _body_length(headers, http_1_0=http_1_0),
        "expect" in headers and not http_1_0 and headers["expect"].lower() == "100-continue",
        not http_1_0
        if "connection" not in headers
        else _keep_alive(headers["connection"], http_1_0=http_1_0),
        http_1_0,
    )
