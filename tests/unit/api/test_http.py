"""The bounds of connections, over real sockets of the loopback."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, MountedSecret
from cryptography import x509
from http_exchanges import KeptSocket, exchange_of
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import LoopClock, ManualClock
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tarn.config import SecretChanges, SecretFiles, load
from tarn.rpc.process.endpoint_tls import endpoint_tls
from tarn.rpc.process.secret_watch import SecretWatch
from tarn.telemetry.meters import Meters
from tarn_api.http import Exchange, HttpBounds, HttpServer

SHORT = 0.2
LONG = 600.0
"""A bound that only `LoopClock` reaches, however slow the machine is."""


async def answering(scope: Any, receive: Any, send: Any) -> None:
    """Answers without reading the body; `/echo` reads it, `/large` sends much."""
    body = b"ok"
    if scope["path"] == "/echo":
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
    if scope["path"] == "/large":
        body = bytes(64 * 1024 * 1024)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(**bounds: Any) -> AsyncIterator[tuple[HttpServer, int]]:
    async with HttpServer(answering, HttpBounds(**bounds)) as server:
        port = await server.listen("127.0.0.1", 0, tls=None, reuse_port=False)
        yield server, port


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def status(self) -> int:
        """Reads an answer with a length; returns its status, 0 if the connection ended."""
        async with asyncio.timeout(5):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return 0
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await self.reader.readexactly(length)
        return int(head.split()[1])

    async def is_ended(self) -> bool:
        async with asyncio.timeout(5):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True


@asynccontextmanager
async def connected(port: int, limit: int = 2**27) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_requests_follow_each_other_on_a_connection() -> None:
    async with serving() as (server, port), connected(port) as client:
        for _ in range(3):
            await client.send(GET)
            assert await client.status() == 200
        await client.send(GET + GET)
        assert [await client.status(), await client.status()] == [200, 200]
        assert server.connection_count == 1


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\na: " + b"b" * 3000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 11 + b"\r\n",
    ],
)
async def test_a_large_head_is_431_and_ends_the_connection(head: bytes) -> None:
    async with (
        serving(head_bytes_max=2000, header_count_max=10) as (_, port),
        connected(port) as client,
    ):
        await client.send(head)
        assert await client.status() == 431
        assert await client.is_ended()


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\na: ",
        b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\na: ",
        b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2;",
    ],
)
async def test_a_line_that_does_not_end_is_431_before_it_takes_memory(begin: bytes) -> None:
    async with serving(head_bytes_max=2000) as (_, port), connected(port) as client:
        await client.send(begin)
        await asyncio.sleep(0.05)
        for _ in range(3):  # the parser keeps what has come, and tells nothing
            await client.send(b"b" * 900)
            await asyncio.sleep(0.05)
        assert await client.status() == 431
        assert await client.is_ended()


async def test_a_head_and_a_body_in_many_pieces_are_taken() -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\na: " + b"b" * 1900
    async with serving(head_bytes_max=2000) as (_, port), connected(port) as client:
        for _ in range(2):
            for piece in (head[:100], head[100:1000], head[1000:], b"\r\n\r\n" + bytes(1000)):
                await client.send(piece)
                await asyncio.sleep(0.01)
            for _ in range(8):
                await client.send(bytes(1000))
                await asyncio.sleep(0.01)
            assert await client.status() == 200


async def test_what_is_no_request_is_400_and_ends_the_connection() -> None:
    async with serving() as (_, port), connected(port) as client:
        await client.send(b"\x16\x03\x01 hello\r\n\r\n")
        assert await client.status() == 400
        assert await client.is_ended()


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\na: b\r\n"])
async def test_a_head_that_does_not_end_ends_the_connection(begin: bytes) -> None:
    async with serving(head_timeout_s=SHORT) as (_, port), connected(port) as client:
        await client.send(begin)
        assert await client.is_ended()


async def test_a_second_head_that_does_not_end_ends_the_connection() -> None:
    clock = LoopClock()
    async with serving(head_timeout_s=LONG) as (_, port), connected(port) as client:
        await client.send(GET)
        assert await client.status() == 200
        await client.send(
            b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nok" + GET[:-4]
        )
        assert await client.status() == 200  # the second head came in the same piece
        await clock.advance(LONG)
        assert await client.is_ended()


@pytest.mark.parametrize("more", [b"", b"\r\n", b"\r\n\r\n"])
async def test_a_connection_without_requests_ends(more: bytes) -> None:
    clock = LoopClock()
    async with serving(idle_timeout_s=LONG) as (_, port), connected(port) as client:
        for _ in range(3):
            await client.send(GET)
            assert await client.status() == 200
        await client.send(more)
        await clock.advance(LONG)
        assert await client.is_ended()


async def test_a_connection_is_not_idle_while_a_request_runs_or_others_come() -> None:
    clock = LoopClock()
    async with serving(idle_timeout_s=LONG) as (server, port), connected(port) as client:
        await client.send(GET)
        assert await client.status() == 200
        await client.send(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n12")
        async with asyncio.timeout(5):
            while not server.state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody
                await asyncio.sleep(0.001)
        await clock.advance(2 * LONG)
        await client.send(b"34")
        assert await client.status() == 200
        for _ in range(5):
            await clock.advance(LONG / 2)
            await client.send(GET)
            assert await client.status() == 200
        assert server.connection_count == 1
        await clock.advance(LONG)
        assert await client.is_ended()


async def test_connections_beyond_the_bound_are_closed() -> None:
    async with serving(connections_max=1) as (_, port), connected(port) as first:
        await first.send(GET)
        assert await first.status() == 200
        async with connected(port) as second:
            assert await second.is_ended()
        await first.send(GET)
        assert await first.status() == 200


async def test_the_rest_of_a_body_that_nobody_reads_ends_the_connection_or_comes() -> None:
    post = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345"
    clock = LoopClock()
    async with serving(unread_timeout_s=LONG) as (_, port):
        async with connected(port) as client:
            await client.send(post)
            assert await client.status() == 200
            await client.send(b"67890" + GET)
            assert await client.status() == 200
        async with connected(port) as client:
            await client.send(post)
            assert await client.status() == 200
            await clock.advance(LONG)
            assert await client.is_ended()


async def test_an_answer_that_nobody_takes_ends_the_connection() -> None:
    async with serving(write_stall_timeout_s=SHORT) as (server, port), connected(port) as client:
        await client.send(GET.replace(b"/ ", b"/large "))
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            while not server.state.total_requests:  # noqa: ASYNC110 - uvicorn tells nobody
                await asyncio.sleep(0.01)
            while server.connection_count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_drain_ends_idle_connections_and_answers_what_runs() -> None:
    async with serving() as (server, port), connected(port) as idle, connected(port) as busy:
        await idle.send(GET)
        assert await idle.status() == 200
        await busy.send(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n12")
        await asyncio.sleep(0.05)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.drain(5))
            assert await idle.is_ended()
            await busy.send(b"34")
            assert await busy.status() == 200
            assert await busy.is_ended()


READERS = 8
LARGE = 1024 * 1024


async def waiting(scope: Any, receive: Any, send: Any) -> None:
    body = bytes(LARGE * 8)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def test_answers_that_nobody_takes_have_a_bound_and_the_longest_waits_end_first() -> None:
    bounds = HttpBounds(unsent_bytes_max=20 * LARGE)
    async with HttpServer(waiting, bounds) as server, AsyncExitStack() as stack:
        port = await server.listen("127.0.0.1", 0, tls=None, reuse_port=False)
        clients = []
        for _ in range(READERS):
            client = await stack.enter_async_context(connected(port, limit=4096))
            clients.append(client)
            await client.send(GET)
            assert await client.reader.read(1)
            assert server.unsent.bytes <= 20 * LARGE
        assert 0 < server.connection_count < READERS
        assert server.unsent.bytes > LARGE
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):
                while await clients[0].reader.read(64 * 1024):
                    pass
            await clients[-1].reader.readexactly(8 * LARGE)
    assert server.unsent.bytes == 0


async def test_a_renewed_certificate_is_that_of_new_connections(tmp_path: Path) -> None:
    authority, mounted = Authority(tmp_path / "authority"), MountedSecret(tmp_path / "mounted")
    mounted.put(authority.issue("first"), authority)
    environment = {
        "HOME": "/",
        "TARN_API_TLS_CERT": str(mounted.files.certificate),
        "TARN_API_TLS_KEY": str(mounted.files.key),
    }
    config, changes = load(None, environment), SecretChanges()
    tls = endpoint_tls("api", config.api.tls, changes)
    watch = SecretWatch(config, SecretFiles(config, environment), changes, ManualClock(), Meters())
    trusted = ssl.create_default_context(cafile=authority.path)
    async with HttpServer(answering, HttpBounds()) as server:
        port = await server.listen("127.0.0.1", 0, tls=tls, reuse_port=False)

        async def name() -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
            client = Client(reader, writer)
            await client.send(GET)
            assert await client.status() == 200
            found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            (subject,) = x509.load_der_x509_certificate(found).subject
            return str(subject.value)

        assert await name() == "first"
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        old = Client(reader, writer)
        await old.send(GET)
        assert await old.status() == 200
        mounted.put(authority.issue("second"), authority)
        for _ in range(2):
            await watch.look()
        assert await name() == "second"
        await old.send(GET)
        assert await old.status() == 200
        writer.close()


async def test_handshakes_have_a_bound_and_the_oldest_gives_way(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    files = authority.issue("name")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert files.certificate is not None
    tls.load_cert_chain(files.certificate, files.key)
    async with (
        HttpServer(answering, HttpBounds(handshakes_max=2)) as server,
        AsyncExitStack() as stack,
    ):
        port = await server.listen("127.0.0.1", 0, tls=tls, reuse_port=False)
        silent = [await stack.enter_async_context(connected(port)) for _ in range(3)]
        assert await silent[0].is_ended()
        trusted = ssl.create_default_context(cafile=authority.path)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        client = Client(reader, writer)
        await client.send(GET)
        assert await client.status() == 200
        writer.close()


HEADERS = [
    (b"content-length", b"0"),
    (b"content-length", b"2"),
    (b"Content-Length", b"2"),
    (b"content-type", b"text/plain"),
    (b"X-Up", b"a"),
    (b"connection", b"close"),
    (b"connection", b"keep-alive"),
    (b"transfer-encoding", b"chunked"),
    (b"x-split", b"a\r\nb: c"),
    (b"x split", b"a"),
    (b"set-cookie", b"a=b"),
]


@given(
    status=st.sampled_from([200, 201, 204, 304, 404, 503]),
    headers=st.lists(st.sampled_from(HEADERS), max_size=4, unique=True),
    pieces=st.lists(st.sampled_from([b"", b"ab", bytes(70_000)]), min_size=1, max_size=2),
    method=st.sampled_from(["GET", "HEAD"]),
    keep_alive=st.booleans(),
)
async def test_an_answer_in_one_write_is_the_one_that_uvicorn_sends(
    status: int,
    headers: list[tuple[bytes, bytes]],
    pieces: list[bytes],
    method: str,
    keep_alive: bool,
) -> None:
    async def sent(kind: type[RequestResponseCycle]) -> tuple[object, ...]:
        to, ended = KeptSocket(), list[bool]()
        exchange = exchange_of(to, kind, method, keep_alive=keep_alive, ended=ended)
        failure = ""
        try:
            start = {"type": "http.response.start", "status": status, "headers": headers}
            await exchange.send(start)
            for number, piece in enumerate(pieces, 1):
                more = number < len(pieces)
                body = {"type": "http.response.body", "body": piece, "more_body": more}
                await exchange.send(body)
        except RuntimeError as error:
            failure = str(error)
        if failure:  # the connection ends; how much of the head was sent makes no difference
            return failure, exchange.response_complete, ended
        return to.written, to.is_closed, exchange.response_complete, ended

    assert await sent(Exchange) == await sent(RequestResponseCycle)
