"""HTTP/1.1 for an ASGI application: uvicorn's protocol, with the bounds that it lacks, on a socket of ours.

uvicorn parses (llhttp), keeps connections alive and applies back-pressure to bodies and answers. It bounds neither the
head of a request nor the time that one takes, nor how long a client may leave an answer untaken, and its server owns
the process: signals, sockets, logs. So its protocol is used without its server. `docs/design/security.md` lists the
bounds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Self
from urllib.parse import unquote

import httptools
from starlette.types import Message
from uvicorn._types import ASGIVersions, HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from tarn.aio.task_set import TaskSet
from tarn.aio.tls_listener import TlsListener

__all__ = ["Asgi", "Exchange", "HttpBounds", "HttpServer"]

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


_FRAMING: Final = frozenset({b"connection", b"transfer-encoding"})
_ASGI: Final[ASGIVersions] = {"version": "3.0", "spec_version": "2.3"}
_NO_BODY: Final = (204, 304)
_NO_HEADERS: Final[list[tuple[bytes, bytes]]] = []
_JOINED_MAX: Final = 64 * 1024
"""To copy a larger body costs more than another write."""


class Exchange(RequestResponseCycle):
    """One request and its answer. An answer of one piece is sent by one write; uvicorn sends all others.

    Attributes:
        start: the head of an answer, which waits for the first piece of its body.
    """

    start: Message | None = None
    # What uvicorn's class sets for each request, and is the same for all, or until something changes it.
    logger = logging.getLogger("uvicorn.error")
    access_log = False
    default_headers = _NO_HEADERS
    disconnected = response_started = response_complete = False
    more_body = True
    chunked_encoding: bool | None = None
    expected_content_length = 0
    _event: asyncio.Event | None = None

    def __init__(
        self,
        scope: HTTPScope,
        transport: asyncio.Transport,
        flow: FlowControl,
        on_response: Callable[[], None],
        *,
        expect_100_continue: bool,
        keep_alive: bool,
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.on_response = on_response
        self.waiting_for_100_continue = expect_100_continue
        self.keep_alive = keep_alive
        self.body = bytearray()

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        """Is set while there is something to receive. Made for the first who waits: most requests wait for nothing."""
        event = self._event
        if event is None:
            event = self._event = asyncio.Event()
            if self.body or not self.more_body or self.disconnected or self.response_complete:
                event.set()
        return event

    def tell(self) -> None:
        """Tells whoever waits that there is something to receive."""
        if self._event is not None:
            self._event.set()

    def send_whole(self, status: int, lines: bytes, body: bytes) -> bool:
        """Sends an answer without the events of ASGI, which say the same in more steps.

        Args:
            status: of an answer that has a body.
            lines: of its head, each with its end; the length of the body and the framing are not among them. The caller
                answers for them: they are sent as they are.
            body: all of it.

        Returns:
            False if nothing was sent, because there is more to decide: send it by events.
        """
        if self.flow.write_paused or self.disconnected or not self.keep_alive:
            return False
        if self.response_started:
            return False
        self.response_started = True
        size = len(body)
        if self.scope["method"] == "HEAD":
            body = b""
        head = b"%bcontent-length: %d\r\n%b\r\n" % (STATUS_LINE[status], size, lines)
        self._write(head, body)
        return True

    def rest(self) -> bytes | None:
        """Takes what is left of the body, if all of it has come; None: wait for it (`receive`)."""
        if self.more_body or self.disconnected or self.response_complete:
            return None
        found, self.body = bytes(self.body), bytearray()
        if self._event is not None:
            self._event.clear()
        self.flow.resume_reading()
        return found

    async def send(self, message: Message) -> None:  # type: ignore[override]
        """Takes an event of ASGI."""
        if self.start is None:
            if self.response_started or message["type"] != "http.response.start":
                await super().send(message)  # type: ignore[arg-type]
            else:
                self.start = message
                # An application that fails now ends the connection, as one that fails in the body.
                self.response_started = True
            return
        start, self.start = self.start, None
        if message.get("more_body", False) or not self._send_whole(start, message):
            self.response_started = False
            await super().send(start)  # type: ignore[arg-type]
            await super().send(message)  # type: ignore[arg-type]

    def _send_whole(self, start: Message, message: Message) -> bool:
        """Sends an answer whose body is one piece; returns False if there is more to decide than its length."""
        if self.flow.write_paused or self.disconnected or not self.keep_alive:
            return False
        status, headers, body = start["status"], start["headers"], message.get("body", b"")
        names, values = zip(*headers, strict=True) if headers else ((), ())
        lengths, together = names.count(b"content-length"), b"".join(names)
        if HEADER_RE.search(together) or HEADER_VALUE_RE.search(b"".join(values)):
            return False
        if together != together.lower() or lengths > 1 or not _FRAMING.isdisjoint(names):
            return False
        if self.scope["method"] == "HEAD":
            body = b""
        elif lengths:
            if int(values[names.index(b"content-length")]) != len(body):
                return False
        elif body or status not in _NO_BODY:
            return False
        lines = (b"%b: %b\r\n" * len(names)) % tuple(chain.from_iterable(headers))
        self._write(b"%b%b\r\n" % (STATUS_LINE[status], lines), body)
        return True

    def _write(self, head: bytes, body: bytes) -> None:
        if len(body) <= _JOINED_MAX:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
        self.response_complete = True
        self.waiting_for_100_continue = False
        self.tell()
        self.on_response()


class _Protocol(HttpToolsProtocol):
    """One connection. A head that arrives in one piece, as nearly all do, needs no timer; and one timer waits for the
    next request, however many there were."""

    def __init__(self, server: HttpServer) -> None:
        # Each request has a copy of the outer dict; the inner one is the connection's.
        super().__init__(server.config, server.state, {"connection": {}})
        self.cycle: Exchange
        self._unsent = server.unsent
        self._bounds = server.bounds
        self._head_bytes_max = server.bounds.head_bytes_max
        self._header_count_max = server.bounds.header_count_max
        # Bytes that arrived after the piece in which the current head began, or in which the last of its body came.
        self._later_bytes = 0
        # Whether the current head may be larger than the bound.
        self._is_suspect = False
        self._refusal = (400, "the request is not HTTP/1.1")
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        # When the connection began to wait for a request; None: it does not.
        self._idle_since: float | None = None
        self._is_in_head = False
        self._is_body_whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self._bounds.connections_max:
            transport.abort()
            return
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._unsent.forget(self)
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        size = len(data)
        self._is_suspect = self._is_in_head or size > self._head_bytes_max
        self._later_bytes += size
        super().data_received(data)
        # A line that does not end, of a head or behind a body in chunks, reaches no callback: the parser keeps it.
        if self._later_bytes > self._head_bytes_max and not self._is_body_whole:
            if not self.transport.is_closing():
                self._refusal = self._large_head()
                self.send_400_response("")
        elif self._is_in_head and self._head_timer is None:
            self._await_head()

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.scope = {
            "type": "http",
            "asgi": _ASGI,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,  # type: ignore[typeddict-item]
            "root_path": "",
            "headers": self.headers,
            "state": self.app_state.copy(),
        }
        self._later_bytes = 0
        self._is_body_whole = False
        self._is_in_head = True
        self._idle_since = None
        if self._head_timer is not None:
            self._stop_head_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self.headers
        if len(headers) >= self._header_count_max:
            self._refuse((431, f"a request has at most {self._header_count_max} headers"))
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_suspect:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > self._head_bytes_max:
                self._refuse(self._large_head())
        self._is_in_head = False
        if self._head_timer is not None:
            self._stop_head_timer()
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        target = httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = target.path
        scope["query_string"] = target.query or b""
        before, self.cycle = (
            self.cycle,
            Exchange(
                scope,
                self.transport,
                self.flow,
                self.on_response_complete,
                expect_100_continue=self.expect_100_continue,
                keep_alive=version != "1.0" and parser.should_keep_alive(),
            ),
        )
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:  # a request that came before its predecessor was answered
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        self._later_bytes = 0
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.tell()

    def on_message_complete(self) -> None:
        self._is_body_whole = True
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.tell()
        else:
            # The rest of a body that no handler wanted has come: the connection waits for a request again.
            self._stop_head_timer()
            self._await_request()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._is_body_whole:
            self._await_request()
        else:
            self._stop_head_timer()
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
        self._is_in_head = False
        self._stop_head_timer()
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

    def _large_head(self) -> tuple[int, str]:
        return 431, f"the head of a request has at most {self._head_bytes_max} bytes"

    def _refuse(self, refusal: tuple[int, str]) -> None:
        self._refusal = refusal
        raise httptools.HttpParserError(refusal[1])

    def _await_head(self) -> None:
        timeout = self._bounds.head_timeout_s
        self._head_timer = self.loop.call_later(timeout, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_request(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._look_later(self._bounds.idle_timeout_s)

    def _look_later(self, seconds: float) -> None:
        self._idle_timer = self.loop.call_later(seconds, self._end_if_idle)

    def _end_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None or self.transport.is_closing():
            return
        left = self._idle_since + self._bounds.idle_timeout_s - self.loop.time()
        if left <= 0:
            self.transport.close()
        else:
            self._look_later(left)


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
