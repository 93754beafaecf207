"""The admin port of a process: a small HTTP server for operators, apart from the ports of clients.

Its pages are `/metrics`, `/debug/stacks` and `/debug/profile?seconds=5`. They hold no secret, but names of
repositories: open the port to scrapers only. The pages below `/debug` cost time, so they answer clients of the same
machine only. The server is separate from the gateway's because every process has one, also those without the
gateway's packages; it answers one request per connection.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Final, Self
from urllib.parse import parse_qs

import structlog

from tarn.telemetry.debugging import SECONDS_MAX, Profiler, stacks
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
        meters: the metrics that it shows.
        timeout_s: time for one connection, from its start to the last byte, without that of a profile.
    """

    def __init__(self, meters: Meters, *, timeout_s: float = _TIMEOUT_SECONDS) -> None:
        self._meters = meters
        self._timeout_s = timeout_s
        self._profiler = Profiler()
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
            async with asyncio.timeout(self._timeout_s) as limit:
                head = await reader.readuntil(b"\r\n\r\n")
                peer = writer.get_extra_info("peername")[0]
                writer.write(await self._answer(head.decode("latin-1"), peer, limit))
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

    async def _answer(self, head: str, peer: str, limit: asyncio.Timeout) -> bytes:
        lines = head.split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        if method not in ("GET", "HEAD"):
            return _text("405 Method Not Allowed", "GET or HEAD only\n", method)
        if path == "/metrics":
            openmetrics = accepts_openmetrics(_header(lines, "accept"))
            kind = OPENMETRICS_TYPE if openmetrics else PROMETHEUS_TYPE
            body = render(self._meters.collect(), openmetrics=openmetrics)
            return _response("200 OK", kind, body, method)
        if path not in ("/debug/stacks", "/debug/profile"):
            pages = "this port has /metrics, /debug/stacks and /debug/profile?seconds=5\n"
            return _text("404 Not Found", pages, method)
        if not ip_address(peer.partition("%")[0]).is_loopback:
            refusal = "pages below /debug answer clients of the same machine only\n"
            return _text("403 Forbidden", refusal, method)
        if path == "/debug/stacks":
            return _text("200 OK", stacks(), method)
        return await self._profile(query, method, limit)

    async def _profile(self, query: str, method: str, limit: asyncio.Timeout) -> bytes:
        given = parse_qs(query).get("seconds", ["5"])[-1]
        try:
            seconds = float(given)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= SECONDS_MAX:
            text = f"seconds is a number above 0, up to {SECONDS_MAX:.0f}\n"
            return _text("400 Bad Request", text, method)
        if self._profiler.is_running:
            text = "another profile is being taken; try again when it has ended\n"
            return _text("409 Conflict", text, method)
        limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s + seconds)
        return _text("200 OK", await self._profiler.profile(seconds), method)


def _header(lines: list[str], wanted: str) -> str:
    """Returns the values of a header, separated by commas; empty if it is absent."""
    pairs = (line.partition(":") for line in lines[1:])
    return ",".join(value.strip() for name, _, value in pairs if name.strip().lower() == wanted)


def _text(status: str, text: str, method: str) -> bytes:
    return _response(status, "text/plain; charset=utf-8", text, method)


def _response(status: str, kind: str, text: str, method: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else body)
