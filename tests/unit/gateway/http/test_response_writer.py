from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tarn_gateway.http import Response
from tarn_gateway.http.response_writer import Framing, frame, render_head


async def _pieces() -> AsyncIterator[bytes]:
    yield b""


@pytest.mark.parametrize(
    ("response", "method", "http_1_0", "keep", "framing"),
    [
        (Response(200, [], b"abc"), "GET", False, True, Framing(3, False, "")),
        (Response(200, [], b"abc"), "GET", False, False, Framing(3, False, "close")),
        (Response(200, [], b"abc"), "GET", True, True, Framing(3, False, "keep-alive")),
        (Response(200, [], b"abc"), "HEAD", False, True, Framing(3, False, "", True)),
        (Response(200, length=9), "HEAD", False, True, Framing(9, False, "", True)),
        (Response(304), "GET", False, True, Framing(None, False, "", True)),
        (Response(200, [], _pieces()), "GET", False, True, Framing(None, True, "")),
        (Response(200, [], _pieces()), "GET", True, True, Framing(None, False, "close")),
        (
            Response(200, [], _pieces(), length=4),
            "GET",
            True,
            True,
            Framing(4, False, "keep-alive"),
        ),
    ],
)
def test_how_a_response_ends(
    response: Response, method: str, http_1_0: bool, keep: bool, framing: Framing
) -> None:
    assert frame(response, method, http_1_0=http_1_0, keep=keep) == framing


def test_a_rendered_head() -> None:
    response = Response(206, [("ETag", '"e"'), ("X", "caf\xe9")])
    rendered = render_head(
        response, "Date: now\r\n", "ID", Framing(3, False, "close"), "total;dur=0.1"
    )
    assert rendered == (
        b'HTTP/1.1 206 Partial Content\r\nETag: "e"\r\nX: caf\xe9\r\nx-amz-request-id: ID\r\n'
        b"Server-Timing: total;dur=0.1\r\n"
        b"Content-Length: 3\r\nConnection: close\r\nDate: now\r\n\r\n"
    )


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\rb", "a\x00b", "\u20ac"])
def test_a_value_cannot_write_other_headers(value: str) -> None:
    with pytest.raises(ValueError, match=r"header|latin-1"):
        render_head(Response(200, [("A", value)]), "", "ID", Framing(0, False, ""), "")
