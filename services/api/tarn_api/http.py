"""HTTP/1.1 for an ASGI application: uvicorn's protocol, with the bounds that it lacks, on a socket of ours.

uvicorn parses (llhttp), keeps connections alive and applies back-pressure to bodies and answers. It bounds neither the
head of a request nor the time that one takes, nor how long a client may leave an answer untaken, and its server owns
the process: signals, sockets, logs. So its protocol is used without its server. `docs/design/security.md` lists the
bounds.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from tarn.aio.task_set import TaskSet
from tarn.aio.tls_listener import TlsListener

__all__ = ["Asgi", "HttpBounds", "HttpServer"]

Asgi = Any
"""An ASGI application."""

_BACKLOG: Final = 2048


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """Limits of one server and of each of its connections.

    Attributes:
        connections_max: open connections; further ones are closed at once.
        head_bytes_max: target and header lines of a request; more is 431.
        header_count_max: header lines of a request; more is 431.
        head_timeout_s: from the first byte of a request, or from connecting, to the end of its head.
        idle_timeout_s: between two requests of a connection.
        unsent_bytes_max: of answers that clients do not take, in sum; beyond it, connections whose answers wait for the
            longest time are closed.
        handshakes_max: TLS handshakes under way; beyond it the oldest one is closed.
        write_stall_timeout_s: without the client taking enough of an answer to continue.
        unread_timeout_s: in which the rest of a body may come that no handler wanted.
    """

    connections_max: int = 10_000
    head_bytes_max: int = 32 * 1024
    header_count_max: int = 100
    head_timeout_s: float = 20.0
    idle_timeout_s: float = 120.0
    write_stall_timeout_s: float = 60.0
    unread_timeout_s: float = 2.0
    unsent_bytes_max: int = 64 * 1024 * 1024
    handshakes_max: int = 1024


class _Protocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, server: HttpServer) -> None:
        # Each request has a copy of the outer dict; the inner one is the connection's.
        super().__init__(server.config, server.state, {"connection": {}})
        self._unsent = server.unsent
        self._bounds = server.bounds
        self._head_bytes = 0
        self._refusal = (400, "the request is not HTTP/1.1")
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._is_body_whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._bounds.connections_max:
            transport.abort()
            return
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self._unsent.forget(self)
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._is_body_whole = False
        self._await_head()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if len(self.headers) >= self._bounds.header_count_max:
            self._refuse(f"a request has at most {self._bounds.header_count_max} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timers()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_body_whole = True
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            # The rest of a body that no handler wanted has come: the connection waits for a request again.
            self._stop_timers()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_body_whole and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._stop_timers()
            timeout = self._bounds.unread_timeout_s
            self._head_timer = self.loop.call_later(timeout, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        timeout = self._bounds.write_stall_timeout_s
        self._stall_timer = self.loop.call_later(timeout, self.transport.abort)
        self._unsent.note(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unsent.forget(self)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's text
        """Answers what is no request, or one with too large a head, and ends the connection."""
        self._stop_timers()
        status, text = self._refusal
        body = json.dumps({"message": text}).encode()
        lines = [
            STATUS_LINE[status],
            b"content-type: application/json\r\nconnection: close\r\n",
            b"content-length: %d\r\n\r\n" % len(body),
            body,
        ]
        self.transport.write(b"".join(lines))
        self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._bounds.head_bytes_max:
            self._refuse(f"the head of a request has at most {self._bounds.head_bytes_max} bytes")

    def _refuse(self, text: str) -> None:
        self._refusal = (431, text)
        raise httptools.HttpParserError(text)

    def _await_head(self) -> None:
        self._stop_timers()
        timeout = self._bounds.head_timeout_s
        self._head_timer = self.loop.call_later(timeout, self.transport.close)

    def _stop_timers(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Unsent:
    """Answers that clients do not take. While one waits, its connection gets no other one (`pause_writing`).

    Args:
        bytes_max: in sum.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        # The one that waits for the longest time is first.
        self._sizes: dict[_Protocol, int] = {}

    def note(self, connection: _Protocol, size: int) -> None:
        """Notes an answer that waits, and closes connections that have waited longer if there are too many bytes."""
        self.forget(connection)
        self._sizes[connection] = size
        self.bytes += size
        while self.bytes > self._bytes_max and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self.forget(oldest)
            oldest.transport.abort()

    def forget(self, connection: _Protocol) -> None:
        """Forgets an answer that was taken, or whose connection has ended."""
        self.bytes -= self._sizes.pop(connection, 0)


class HttpServer:
    """Serves an application.

    Args:
        application: as ASGI 3 has it; without lifespan events.
        bounds: see `HttpBounds`.

    Attributes:
        config: uvicorn's.
        state: the connections and tasks.
        unsent: answers that clients do not take.
    """

    def __init__(self, application: Asgi, bounds: HttpBounds) -> None:
        self.bounds = bounds
        self.config = Config(
            application,
            http="httptools",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=int(bounds.idle_timeout_s),
        )
        self.state = ServerState()
        self.unsent = _Unsent(bounds.unsent_bytes_max)
        self._server: asyncio.Server | TlsListener | None = None
        self._handshakes = TaskSet()

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self.state.connections)

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, reuse_port: bool
    ) -> int:
        """Starts to listen; returns the port.

        Raises:
            OSError: the address is in use or does not belong to this machine.
        """
        self.config.load()
        loop = asyncio.get_running_loop()
        sockets: Sequence[socket.socket]
        if tls is None:
            server = self._server = await loop.create_server(
                lambda: _Protocol(self), host, port, backlog=_BACKLOG, reuse_port=reuse_port
            )
            sockets = server.sockets
        else:
            bounds = self.bounds
            listener = self._server = TlsListener(
                lambda: _Protocol(self),
                tls,
                bounds.head_timeout_s,
                bounds.handshakes_max,
                self._handshakes.spawn,
            )
            sockets = await listener.listen(host, port, reuse_port=reuse_port, backlog=_BACKLOG)
        found: int = sockets[0].getsockname()[1]
        return found

    async def drain(self, timeout_s: float) -> None:
        """Stops listening and lets current requests finish, for at most `timeout_s`."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        if self.state.tasks:
            await asyncio.wait(self.state.tasks, timeout=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Aborts remaining requests; call `drain` first to lose none."""
        if self._server is not None:
            self._server.close()
        tasks = list(self.state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._handshakes.close()
        for connection in list(self.state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # the loop tells them
