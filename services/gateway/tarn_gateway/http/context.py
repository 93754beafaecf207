"""State that the connections of one server share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final, Protocol

from tarn.core.clock import Clock, IdSource
from tarn.core.value import hot_value
from tarn_gateway.http.admission import Admission, Admitted
from tarn_gateway.http.body import BufferPool
from tarn_gateway.http.limits import HttpLimits
from tarn_gateway.http.patience import Patience
from tarn_gateway.http.request import Request
from tarn_gateway.http.response import Response
from tarn_gateway.http.unsent import Sending

__all__ = [
    "Exchange",
    "Handler",
    "Observer",
    "OnError",
    "OnHeadError",
    "ServerContext",
    "Spawn",
    "Sweepable",
]


@hot_value
class Exchange:
    """The outcome of a request, for the access log and metrics.

    Attributes:
        request: as the handler received it.
        status: the status sent; 0 if the connection was lost before.
        sent_bytes: bytes of the response body handed to the socket.
        received_bytes: bytes of the request body, chunk framing included.
        seconds: from the last header received to the last byte handed to the socket.
        error: the exception of the handler or of its response's iterator, if any.
    """

    request: Request
    status: int
    sent_bytes: int
    received_bytes: int
    seconds: float
    error: Exception | None


Handler = Callable[[Request], Awaitable[Response]]
"""Answers a request. If the client disconnects, it is cancelled during GET or HEAD, but never for another
method (a mutation with its whole body runs to its end; one without meets `BodyTruncatedError`)."""

OnError = Callable[[Request, Exception], Response]
OnHeadError = Callable[[int, str, str], Response]
"""Makes the answer to a head that no handler receives, from its status, what is wrong, and the request id."""
"""Returns the answer for an exception of a handler, or of its response's iterator before its first piece."""

Observer = Callable[[Exchange], None]
"""Called for every exchange when it is over; must not raise."""

Spawn = Callable[[Coroutine[object, object, None]], asyncio.Task[None]]

HEAD_BUFFER_BYTES: Final = 64 * 1024
IDLE_BUFFERS_MAX: Final = 64


class Sweepable(Admitted, Sending, Protocol):
    """The functions of a connection that the server uses."""

    def sweep(self, now: float) -> None:
        """Ends waits that exceed their limits, at loop time `now`."""
        ...

    def excuse(self, seconds: float) -> None:
        """Takes time in which the process stood still from the present waits."""
        ...

    def cut_answer(self) -> None:
        """Ends the connection while its client does not take an answer."""
        ...

    def end_idle(self) -> None:
        """Ends the connection if it waits for a request."""
        ...

    def abort(self) -> None:
        """Ends the connection immediately, whatever its state."""
        ...


class ServerContext:
    """Shared by the connections of one server; belongs to one event loop.

    Attributes:
        patience: of threads with clients that take a file.
        head_buffer: everything except bodies is received into this one buffer and is parsed or copied
            before the loop's tick ends, so idle connections need no memory for it.
        draining: whether each connection ends with its next answer, and no further one is taken.
        ends_idle: whether idle connections end.
        connections: those whose task has not ended.
        unsent_bytes: bytes of answers that clients had not taken at the last sweep.
        clock: gives the time of answers.
        now: its monotonic time, which measures exchanges (the loop's own time has only milliseconds).
    """

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits,
        clock: Clock,
        ids: IdSource,
        on_error: OnError,
        observer: Observer | None,
        server_name: str,
        on_head_error: OnHeadError,
    ) -> None:
        self.on_head_error = on_head_error
        self.handler = handler
        self.limits = limits
        self.on_error = on_error
        self.observer = observer
        self.loop = asyncio.get_running_loop()
        self.pool = BufferPool(limits.body_buffer_bytes, IDLE_BUFFERS_MAX, limits.body_buffers_max)
        self.patience = Patience(limits.patient_threads_max, limits.patience_ms)
        self.head_buffer = bytearray(HEAD_BUFFER_BYTES)
        self.head_view = memoryview(self.head_buffer)
        self.draining = False
        self.ends_idle = False
        self.connections: set[Sweepable] = set()
        self.unsent_bytes = 0
        self._admission: Admission[Sweepable] = Admission(limits)
        self._empty = asyncio.Event()
        self.clock = clock
        self.now = clock.monotonic
        self._server_name = server_name
        self._date_s = -1
        self._common = ""
        # Unique without a system call per request: 48 random bits of this server, then a count.
        self._id_prefix = ids.nonce()[:6].hex().upper()
        self._requests = 0

    def admit(self, connection: Sweepable) -> bool:
        """Returns whether a new connection is taken; may end another one for it."""
        if self.draining:
            return False
        is_taken, loser = self._admission.admit(connection, len(self.connections))
        if loser is not None:
            # Its task ends a moment later; it no longer counts.
            self.connections.discard(loser)
            loser.abort()
        if is_taken:
            self.connections.add(connection)
        return is_taken

    def leave(self, connection: Sweepable) -> None:
        """Called when a connection's task ends."""
        self.connections.discard(connection)
        self._admission.leave(connection)
        if not self.connections:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Waits until no connection is left."""
        while self.connections:
            self._empty.clear()
            await self._empty.wait()

    def next_request_id(self) -> str:
        """Returns 20 upper-case hex digits, unique."""
        self._requests += 1
        return f"{self._id_prefix}{self._requests:08X}"

    def common_headers(self) -> str:
        """Returns the lines that every answer has, rendered once per second: `Date`, `Server`, and the one that keeps
        browsers from guessing a type other than that of `Content-Type`."""
        now_s = self.clock.now_us() // 1_000_000
        if now_s != self._date_s:
            self._date_s = now_s
            date = format_datetime(datetime.fromtimestamp(now_s, UTC), usegmt=True)
            lines = (
                f"Date: {date}",
                f"Server: {self._server_name}",
                "X-Content-Type-Options: nosniff",
            )
            self._common = "".join(f"{line}\r\n" for line in lines)
        return self._common
