"""Turns the bytes of a head into a request, as the server does."""

from __future__ import annotations

from tarn_gateway.http import BodyReader, HttpLimits, Request
from tarn_gateway.http.head import Head, HeadError, parse_head

__all__ = ["LIMITS", "request_of"]

LIMITS = HttpLimits()


def request_of(data: bytes) -> Request:
    """Returns the request of a head that ends with an empty line.

    Raises:
        HeadError: the server would answer and close.
    """
    # As a connection does: it parses nothing before the end of the head has arrived.
    end = data.find(b"\r\n\r\n", 0, LIMITS.header_bytes_max) + 4
    if end < 4:
        raise HeadError(431, "the head does not end")
    head: Head = parse_head(memoryview(data)[:end], LIMITS)
    return Request(
        head.method,
        head.raw_path,
        head.raw_query,
        head.headers,
        BodyReader(0),
        request_id="0" * 20,
        keep_alive=head.keep_alive,
        http_1_0=head.http_1_0,
    )
