"""The admin port of a process: a small HTTP server for operators, apart from the ports of clients.

`GET /metrics` is its only page. It holds no secret, but names of repositories: open the port to scrapers only. The
server is separate from the gateway's because every process has one, also those without the gateway's packages; it
answers one request per connection.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

import structlog

from tarn.telemetry.exposition import (
    OPENMETRICS_TYPE,
    PROMETHEUS_TYPE,
    accepts_openmetrics,
    render,
)
from tarn.telemetry.meters import Meters

__all__ = ["CONNECTIONS_MAX", "AdminServer"]

CONNECTIONS_MAX: Final = 16
"""Further connections are closed at once."""

_HEAD_BYTES_MAX: Final = 16 * 1024
_TIMEOUT_SECONDS: Final = 10.0
_BACKLOG: Final = 16

_log = structlog.get_logger()


class AdminServer:
    """Serves the metrics of a process; an async context manager.

    Args:
        meters: what it shows.
        timeout_s: time for one connection, from its start to the last byte.
    """

    def __init__(self, meters: Meters, *, timeout_s: float = _TIMEOUT_SECONDS) -> None:
        self._meters = meters
        self._timeout_s = timeout_s
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def open_count(self) -> int:
        """Number of open connections."""
        return len(self._open)

    async def listen(self, address: str) -> str:
        """Starts to listen at `host:port`; returns the address with the port that was bound.

        Raises:
            OSError: the address is in use or does not belong to this machine.
        """
        host, _, port = address.rpartition(":")
        self._server = await asyncio.start_server(
            self._serve, host.strip("[]"), int(port), limit=_HEAD_BYTES_MAX, backlog=_BACKLOG
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return f"{host}:{bound}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            async with asyncio.timeout(self._timeout_s):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.decode("latin-1")))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that is slow, hangs up or sends no request
        except asyncio.CancelledError:
            pass  # the stop of the server; the task has nothing else to end
        finally:
            self._open.discard(task)
            writer.transport.abort()

    def _answer(self, head: str) -> bytes:
        lines = head.split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "text/plain", "GET or HEAD only\n", method)
        if path != "/metrics":
            return _response("404 Not Found", "text/plain", "this port has /metrics\n", method)
        openmetrics = accepts_openmetrics(_header(lines, "accept"))
        kind = OPENMETRICS_TYPE if openmetrics else PROMETHEUS_TYPE
        body = render(self._meters.collect(), openmetrics=openmetrics)
        return _response("200 OK", kind, body, method)


def _header(lines: list[str], wanted: str) -> str:
    """Returns the values of a header, separated by commas; empty if it is absent."""
    pairs = (line.partition(":") for line in lines[1:])
    return ",".join(value.strip() for name, _, value in pairs if name.strip().lower() == wanted)


def _response(status: str, kind: str, text: str, method: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else body)
