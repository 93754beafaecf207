"""The HTTP server: listens, owns its connections, and drains them on a stop."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final, Self

from tarn.aio.tls_listener import TlsListener
from tarn.core.clock import Clock, IdSource
from tarn_gateway.http.connection import Connection
from tarn_gateway.http.context import (
    Exchange,
    Handler,
    Observer,
    OnError,
    OnHeadError,
    ServerContext,
)
from tarn_gateway.http.limits import HttpLimits
from tarn_gateway.http.request import Request
from tarn_gateway.http.response import Response
from tarn_gateway.http.unsent import give_way

__all__ = [
    "Exchange",
    "Handler",
    "HttpServer",
    "Observer",
    "OnError",
    "bare_error",
    "bare_head_error",
]

SWEEP_S: Final = 1.0


def bare_head_error(status: int, detail: str, _request_id: str) -> Response:
    """The default `OnHeadError`: a line of text."""
    return Response(status, [("Content-Type", "text/plain")], f"{detail}\n".encode())


def bare_error(_request: Request, _error: Exception) -> Response:
    """Returns a 500 without details; the observer receives the exception."""
    return Response(500)


class HttpServer:
    """An HTTP/1.1 server: an async context manager that owns all of its tasks and connections.

        async with HttpServer(handler, limits, clock=clock, ids=ids) as server:
            port = await server.listen("127.0.0.1", 0)
            ...
            await server.drain(grace_s=20.0)

    Leaving the context aborts remaining connections.

    Args:
        handler: answers requests; see `Handler` for when it is cancelled.
        limits: see `HttpLimits`.
        clock: for the Date header only.
        ids: for the prefix of request ids.
        on_error: returns the answer for an exception of the handler; must not raise.
        observer: called for every exchange.
        server_name: the Server header.
        on_head_error: returns the answer to a head that no handler receives; must not raise.
    """

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits,
        *,
        clock: Clock,
        ids: IdSource,
        on_error: OnError = bare_error,
        observer: Observer | None = None,
        server_name: str = "Tarn",
        on_head_error: OnHeadError = bare_head_error,
    ) -> None:
        self._limits = limits
        # The context belongs to the running loop, which may not exist yet.
        self._make_context = functools.partial(
            ServerContext,
            handler,
            limits,
            clock,
            ids,
            on_error,
            observer,
            server_name,
            on_head_error,
        )
        self._context: ServerContext | None = None
        self._tasks = asyncio.TaskGroup()
        self._sweeper: asyncio.Task[None] | None = None
        self._listeners: list[asyncio.AbstractServer | TlsListener] = []

    async def __aenter__(self) -> Self:
        self._context = self._make_context()
        await self._tasks.__aenter__()
        self._sweeper = self._tasks.create_task(self._sweep(self._context))
        return self

    async def __aexit__(self, *exc: object) -> None:
        context = self._entered()
        self._stop_listening(context)
        for connection in list(context.connections):
            connection.abort()
        assert self._sweeper is not None, "started by __aenter__"
        self._sweeper.cancel()
        # The exception of the body is not passed to the group: there is nothing left to cancel, and the
        # group would wrap it.
        await self._tasks.__aexit__(None, None, None)

    def _entered(self) -> ServerContext:
        if self._context is None:
            raise RuntimeError("HttpServer is an async context manager; enter it first")
        return self._context

    @property
    def connection_count(self) -> int:
        """Connections whose task has not ended, for metrics."""
        return len(self._entered().connections)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that clients had not taken a second ago, for metrics."""
        return self._entered().unsent_bytes

    async def listen(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        reuse_port: bool = False,
        backlog: int = 1024,
    ) -> int:
        """Accepts connections; returns the port (useful with port 0). May be called several times.

        Raises:
            OSError: the address cannot be bound.
        """
        context = self._entered()

        def connect() -> Connection:
            return Connection(context, self._spawn)

        if tls is not None:
            limits = self._limits
            listener = TlsListener(
                connect,
                tls,
                limits.tls_handshake_timeout_s,
                limits.tls_handshakes_max,
                self._spawn,
            )
            self._listeners.append(listener)
            sockets = await listener.listen(host, port, reuse_port=reuse_port, backlog=backlog)
        else:
            server = await context.loop.create_server(
                connect, host, port, reuse_port=reuse_port or None, backlog=backlog
            )
            self._listeners.append(server)
            sockets = server.sockets
        bound: int = sockets[0].getsockname()[1]
        return bound

    def _spawn(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        return self._tasks.create_task(coroutine)

    async def _sweep(self, context: ServerContext) -> None:
        """Ends overdue waits of all connections together: a timer per request costs a microsecond
        each, this costs a few nanoseconds. A `DeadlineSweep` does not fit: the deadline of a connection
        moves with each piece that it receives, so the connection keeps it."""
        limits = self._limits
        shortest = min(
            limits.header_timeout_s,
            limits.idle_timeout_s,
            limits.body_stall_timeout_s,
            limits.write_stall_timeout_s,
        )
        period = min(SWEEP_S, shortest / 4)
        last = context.loop.time()
        while True:
            await asyncio.sleep(period)
            now = context.loop.time()
            # Late if the loop had no turn, or the machine slept: clients could not be received either.
            late = now - last - 2 * period
            last = now
            for connection in list(context.connections):
                if late > 0:
                    connection.excuse(late)
                connection.sweep(now)
            context.unsent_bytes, ended = give_way(context.connections, limits, now)
            for connection in ended:
                connection.cut_answer()

    def _stop_listening(self, context: ServerContext) -> None:
        context.draining = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def drain(self, grace_s: float) -> None:
        """Stops listening, and answers current requests with `Connection: close`, also those that arrive within
        `HttpLimits.idle_drain_s`; then closes idle connections. After `grace_s` aborts the rest. Idempotent."""
        context = self._entered()
        self._stop_listening(context)
        try:
            async with asyncio.timeout(grace_s):
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.idle_drain_s):
                        await context.wait_empty()
                context.ends_idle = True
                for connection in list(context.connections):
                    connection.end_idle()
                await context.wait_empty()
        except TimeoutError:
            for connection in list(context.connections):
                connection.abort()
            await context.wait_empty()
