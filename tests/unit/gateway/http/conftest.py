"""A server on a free port, raw clients, and both event loops: production uses uvloop, the simulator asyncio's."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
import uvloop
from tests.support.clock import ManualClock, SeededIds
from tests.support.unhandled import no_unhandled_errors

from tarn_gateway.http import Exchange, Handler, HttpLimits, HttpServer, OnError, Request, Response
from tarn_gateway.http.server import bare_error


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, method: str = "GET") -> Answer:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {n.lower(): v for n, v in (line.split(": ", 1) for line in lines)}
            status = int(first.split()[1])
            body = b""
            if method != "HEAD" and status not in (100, 204, 304):
                if headers.get("transfer-encoding") == "chunked":
                    while size := int(await self.reader.readline(), 16):
                        body += await self.reader.readexactly(size)
                        await self.reader.readexactly(2)
                    await self.reader.readexactly(2)
                elif "content-length" in headers:
                    body = await self.reader.readexactly(int(headers["content-length"]))
                else:
                    body = await self.reader.read()
            return Answer(status, headers, body)

    async def ask(self, data: bytes, method: str = "GET") -> Answer:
        self.send(data)
        return await self.answer(method)

    async def ended(self) -> bool:
        """Whether the server closes the connection without another byte."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def stop_reading(self) -> None:
        """Stops reading from the socket, as a stuck client does."""
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def reset(self) -> None:
        """Resets the connection, as a killed client does."""
        self.writer.transport.abort()


@dataclass
class Stage:
    server: HttpServer
    port: int
    exchanges: asyncio.Queue[Exchange]
    tls: ssl.SSLContext | None = None
    clients: list[Client] = field(default_factory=list)

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.tls, limit=1 << 22
        )
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def exchange(self) -> Exchange:
        """Waits for the next finished exchange and returns it."""
        async with asyncio.timeout(10):
            return await self.exchanges.get()


@contextlib.asynccontextmanager
async def serving(
    handler: Handler,
    limits: HttpLimits | None = None,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    on_error: OnError = bare_error,
) -> AsyncIterator[Stage]:
    clock = ManualClock()
    exchanges: asyncio.Queue[Exchange] = asyncio.Queue()
    server = HttpServer(
        handler,
        limits or HttpLimits(),
        clock=clock,
        ids=SeededIds(clock),
        on_error=on_error,
        observer=exchanges.put_nowait,
    )
    async with server:
        port = await server.listen("127.0.0.1", 0, tls=tls[0] if tls else None)
        stage = Stage(server, port, exchanges, tls[1] if tls else None)
        try:
            yield stage
        finally:
            for client in stage.clients:
                client.writer.close()
                with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
                    async with asyncio.timeout(2):
                        await client.writer.wait_closed()


async def echo(request: Request) -> Response:
    body = bytearray()
    async for piece in request.body:
        body += piece
    headers = [("X-Method", request.method), ("X-Path", request.raw_path.decode())]
    return Response(200, headers, bytes(body))


def get(path: str = "/", *lines: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: h", *lines, "", ""]).encode()


def put(body: bytes, *lines: str, path: str = "/k") -> bytes:
    length = f"Content-Length: {len(body)}"
    return "\r\n".join([f"PUT {path} HTTP/1.1", "Host: h", length, *lines, "", ""]).encode() + body


def chunked(parts: list[bytes], path: str = "/k") -> bytes:
    head = f"PUT {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


@pytest.fixture(autouse=True)
async def _no_defects() -> AsyncIterator[None]:
    """Fails the test for errors that asyncio would only log: errors of Tarn that were never retrieved."""
    async with no_unhandled_errors():
        yield


@pytest.fixture(name="serving")
def _serving() -> Callable[..., contextlib.AbstractAsyncContextManager[Stage]]:
    """`async with serving(handler, limits, tls=..., on_error=...) as stage`."""
    return serving


@pytest.fixture
def wire() -> SimpleNamespace:
    """Requests as bytes: `wire.get`, `wire.put`, `wire.chunked`; and `wire.echo`, a handler."""
    return SimpleNamespace(get=get, put=put, chunked=chunked, echo=echo)
