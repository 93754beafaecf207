"""Accepts TLS connections. The handshakes that are under way have a bound: beyond it the oldest one is closed.

The loop's own servers start a handshake for each connection that they accept, and report only its end. Each keeps some
50 KiB, so a client that opens connections and says nothing would take memory until its handshakes time out.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

import structlog

__all__ = ["TlsListener"]

_ACCEPTS_AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the loop."""
_FULL: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""No more files or memory: accepting goes on after a pause, when some connections have ended."""
_PAUSE_S: Final = 1.0

_log = structlog.get_logger()


class TlsListener:
    """Listens on sockets until it is closed. The caller owns the tasks of handshakes, by `spawn`.

    Args:
        factory: makes the protocol of a connection whose handshake has ended.
        tls: the server's context.
        timeout_s: from accepting to the end of the handshake.
        handshakes_max: handshakes under way.
        spawn: runs a handshake as a task.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext,
        timeout_s: float,
        handshakes_max: int,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._factory = factory
        self._tls = tls
        self._timeout_s = timeout_s
        self._handshakes_max = handshakes_max
        self._spawn = spawn
        self._sockets: list[socket.socket] = []
        # In the order in which they were accepted.
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def listen(
        self, host: str, port: int, *, reuse_port: bool, backlog: int
    ) -> Sequence[socket.socket]:
        """Binds the addresses of a host, and begins to accept; returns the sockets.

        Raises:
            OSError: an address cannot be bound.
        """
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                listener = socket.socket(family, socket.SOCK_STREAM)
                self._sockets.append(listener)
                listener.setblocking(False)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if reuse_port:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(backlog)
        except OSError:
            self.close()
            raise
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)
        return self._sockets

    def close(self) -> None:
        """Stops listening, and ends the handshakes that are under way. Idempotent."""
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        self._sockets.clear()
        for task in list(self._under_way):
            task.cancel()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                _log.warning("cannot accept connections for a second", error=str(error))
                self._loop.remove_reader(listener)
                self._loop.call_later(_PAUSE_S, self._go_on, listener)
                return
            connection.setblocking(False)
            if len(self._under_way) >= self._handshakes_max:
                oldest = next(iter(self._under_way))
                del self._under_way[oldest]
                oldest.cancel()
            task = self._spawn(self._shake_hands(connection))
            self._under_way[task] = None
            task.add_done_callback(partial(self._ended, connection))

    def _go_on(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            self._loop.add_reader(listener, self._accept, listener)

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=self._timeout_s,
            )
        except OSError:  # also of TLS, and after the time
            connection.close()

    def _ended(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        if task.cancelled():  # perhaps before it began, so the task cannot do it
            connection.close()
