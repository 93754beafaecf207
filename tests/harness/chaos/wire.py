"""One HTTP/1.1 connection of a client, and whether a request is outstanding on it.

Written for these tests: an HTTP library would repeat requests, pool connections, and hide the socket of a
request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Answer", "BrokenError", "Exchange", "Wire", "Wires"]

_HEAD_BYTES_MAX = 64 << 10
_CODE = re.compile(rb"<Code>([A-Za-z0-9]+)</Code>")


class BrokenError(Exception):
    """The connection ended before the answer was complete."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """S3's error code; empty if it has none, as in the answer to a HEAD."""
        found = _CODE.search(self.body)
        return found[1].decode() if found else ""

    @property
    def etag(self) -> str:
        return self.headers.get("etag", "").strip('"')


@dataclass(slots=True)
class Exchange:
    """A request, from its first byte on.

    Attributes:
        is_open: neither answered nor broken, and the client still waits.
        is_broken: the connection ended before the answer did; False if the client gave up first.
        is_doomed: it was open when its process was killed.
    """

    is_open: bool = True
    is_broken: bool = False
    is_doomed: bool = False


class Wire:
    """A connection that carries one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.local_port: int = writer.get_extra_info("sockname")[1]
        self.exchange = Exchange(is_open=False)

    @property
    def is_usable(self) -> bool:
        """False as soon as the other side is known to have closed."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    async def ask(self, method: str, head: bytes, body: bytes) -> Answer:
        """Sends a request and waits for the answer; the wire must be idle.

        Raises:
            BrokenError: the connection cannot be used any more.
        """
        assert not self.exchange.is_open, "one request at a time"
        self.exchange = exchange = Exchange()
        try:
            self._writer.write(head + body)
            await self._writer.drain()
            return await self._answer(method)
        except (OSError, asyncio.IncompleteReadError) as error:
            exchange.is_broken = True
            raise BrokenError(type(error).__name__) from error
        finally:
            exchange.is_open = False

    async def _answer(self, method: str) -> Answer:
        while True:
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ", 2)[1])
            if status >= 200:
                break
        pairs = (line.split(":", 1) for line in lines[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = 0
        if method != "HEAD" and status not in (204, 304):
            length = int(headers["content-length"])
        body = await self._reader.readexactly(length)
        if headers.get("connection", "").lower() == "close":
            self._writer.close()
        return Answer(status, headers, body)

    def abort(self) -> None:
        """Closes the connection immediately, as a dying client does."""
        self._writer.transport.abort()


class Wires:
    """All open connections of this process."""

    def __init__(self) -> None:
        self._open: set[Wire] = set()

    async def open(self, host: str, port: int) -> Wire:
        """Opens a connection.

        Raises:
            OSError: no process listens.
        """
        reader, writer = await asyncio.open_connection(host, port, limit=_HEAD_BYTES_MAX)
        wire = Wire(reader, writer)
        self._open.add(wire)
        return wire

    def close(self, wire: Wire) -> None:
        """Forgets a connection; idempotent."""
        wire.abort()
        self._open.discard(wire)

    async def close_all(self) -> None:
        """Closes all connections at the end of a run."""
        for wire in [*self._open]:
            self.close(wire)
        await asyncio.sleep(0)  # transports release their sockets in the next tick

    def outstanding(self) -> Iterator[tuple[int, Exchange]]:
        """Yields local port and request of every connection with a waiting client."""
        for wire in self._open:
            if wire.exchange.is_open:
                yield wire.local_port, wire.exchange
