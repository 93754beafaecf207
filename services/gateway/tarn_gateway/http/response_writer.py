"""The writing side of a connection: back pressure, and the head of a response."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

from tarn.core.value import hot_value
from tarn_gateway.http.patience import Patience
from tarn_gateway.http.response import Response

__all__ = ["ConnectionLostError", "Framing", "ResponseWriter", "frame", "render_head"]

_BEGINS: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}" for each in HTTPStatus}

_EMPTY: Final = frozenset({204, 304})
"""Statuses of answers without a body."""


class ConnectionLostError(Exception):
    """The client has disconnected, so nothing can be sent. Never leaves this package."""


class ResponseWriter:
    """Writes to a transport and waits while too many bytes are unsent.

    Attributes:
        begun: whether anything was written since this was last set to False.
        full: whether too many bytes are unsent: then `drain` waits.
        lost: whether the connection is lost; writing then raises.
        patience: of the server's threads with clients that take a file.
        waiting_since: loop time at which a wait began, None without a wait.
    """

    __slots__ = (
        "_drained",
        "_loop",
        "begun",
        "full",
        "high_bytes",
        "lost",
        "patience",
        "transport",
        "waiting_since",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        high_bytes: int,
        patience: Patience,
    ) -> None:
        self.transport = transport
        self.patience = patience
        self.begun = False
        self.lost = False
        self.waiting_since: float | None = None
        self.high_bytes = high_bytes
        self._loop = loop
        self.full = False
        self._drained: asyncio.Future[None] | None = None
        transport.set_write_buffer_limits(high=high_bytes)

    def write(self, data: bytes | memoryview) -> None:
        """Hands bytes to the transport, which sends them now or later.

        Raises:
            ConnectionLostError: the client has disconnected.
        """
        if self.lost:
            raise ConnectionLostError
        self.begun = True
        self.transport.write(data)

    async def drain(self) -> None:
        """Waits until few enough bytes are unsent.

        Raises:
            ConnectionLostError: the client has disconnected.
        """
        if self.full and not self.lost:
            await self._wait()
        if self.lost:
            raise ConnectionLostError

    async def writable(self, descriptor: int) -> None:
        """Waits until a duplicate of the socket's descriptor accepts more bytes.

        Raises:
            ConnectionLostError: the client has disconnected.
        """
        self._loop.add_writer(descriptor, self._wake)
        try:
            await self._wait()
        finally:
            self._loop.remove_writer(descriptor)
        if self.lost:
            raise ConnectionLostError

    async def _wait(self) -> None:
        self._drained = self._loop.create_future()
        self.waiting_since = self._loop.time()
        try:
            await self._drained
        finally:
            self._drained = None
            self.waiting_since = None

    async def flush(self) -> None:
        """Waits until the kernel has every byte.

        Raises:
            ConnectionLostError: the client has disconnected.
        """
        if self.lost or self.transport.is_closing():
            raise ConnectionLostError
        self.transport.set_write_buffer_limits(high=0)
        try:
            await self.drain()
        finally:
            if not (self.lost or self.transport.is_closing()):  # uvloop refuses to be set then
                self.transport.set_write_buffer_limits(high=self.high_bytes)

    def pause(self) -> None:
        """Called when the transport holds more than its high-water mark."""
        self.full = True

    def resume(self) -> None:
        """Called when the transport holds less than its low-water mark."""
        self.full = False
        self._wake()

    def lose(self) -> None:
        """Called when the connection is lost."""
        self.lost = True
        self._wake()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


@hot_value
class Framing:
    """How a response ends.

    Attributes:
        length: Content-Length; None for none.
        chunked: whether the body is sent chunked.
        connection: `close`, `keep-alive` (sent only to HTTP/1.0) or empty.
        bodiless: whether no body is sent, even if the response has one.
    """

    length: int | None
    chunked: bool
    connection: str
    bodiless: bool = False


def frame(response: Response, method: str, *, http_1_0: bool, keep: bool) -> Framing:
    """Decides how a response ends (RFC 9112 §6.3)."""
    length, status = response.length, response.status
    if length is None and isinstance(response.body, bytes):
        length = len(response.body)
    if status in _EMPTY:
        length, bodiless = None, True
    else:
        bodiless = method == "HEAD"
    chunked = False
    if length is None and not bodiless:
        chunked = not http_1_0
        keep = keep and chunked  # else the end of the connection is the end of the body
    connection = "close" if not keep else "keep-alive" if http_1_0 else ""
    return Framing(length, chunked, connection, bodiless)


def render_head(
    response: Response, common: str, request_id: str, framing: Framing, timing: str
) -> bytes:
    """Renders the status line and all headers. It alone adds those of every answer.

    Args:
        response: with the headers of the handler.
        common: lines that every response has.
        request_id: of the request.
        framing: see `frame`.
        timing: the value of `Server-Timing`.

    Raises:
        ValueError: a header contains a line end, a NUL or a character beyond Latin-1.
    """
    status, headers, length = response.status, response.headers, framing.length
    begin = _BEGINS.get(status) or f"HTTP/1.1 {status} Unknown"
    text = "\r\n".join([begin, *map(": ".join, headers)])
    # A line end in a value would let a client's metadata write our headers.
    ends = len(headers)
    if text.count("\n") != ends or text.count("\r") != ends or "\x00" in text:
        raise ValueError("a response header contains a line end or NUL")
    own = "" if length is None else f"Content-Length: {length}\r\n"
    if framing.chunked:
        own = "Transfer-Encoding: chunked\r\n"
    if framing.connection:
        own += f"Connection: {framing.connection}\r\n"
    told = f"x-amz-request-id: {request_id}\r\nServer-Timing: {timing}\r\n"
    return f"{text}\r\n{told}{own}{common}\r\n".encode("latin-1")
