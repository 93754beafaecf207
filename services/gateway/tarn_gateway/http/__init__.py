"""HTTP/1.1 for the gateway: reads a `Request` from a socket, and writes a `Response` to it.

Knows nothing of S3. It is a raw `asyncio.BufferedProtocol` with llhttp's head parser: 1.65 times the
requests per second of Go's `net/http` at half the CPU (docs/design/hot-path.md, "HTTP").
"""

from tarn_gateway.http.body import (
    BodyError,
    BodyMalformedError,
    BodyReader,
    BodySlowError,
    BodyStalledError,
    BodyTruncatedError,
)
from tarn_gateway.http.headers import Headers
from tarn_gateway.http.limits import HttpLimits
from tarn_gateway.http.request import Request
from tarn_gateway.http.response import Response
from tarn_gateway.http.server import Exchange, Handler, HttpServer, Observer, OnError

__all__ = [
    "HttpServer",
    "HttpLimits",
    "Handler",
    "Observer",
    "OnError",
    "Exchange",
    "Request",
    "Headers",
    "BodyReader",
    "BodyError",
    "BodyMalformedError",
    "BodySlowError",
    "BodyStalledError",
    "BodyTruncatedError",
    "Response",
]
