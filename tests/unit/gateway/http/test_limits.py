"""The limits of a connection: refused requests and time-outs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tarn_gateway.http import (
    BodyError,
    BodyStalledError,
    HttpLimits,
    Request,
    Response,
)

pytestmark = pytest.mark.timeout(20)

Serving = Callable[..., Any]
Wire = SimpleNamespace


# --- refused requests


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: h\n\n\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400),
        (b"GET noslash HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999999999999\r\n\r\n", 400),
        (
            b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 33_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 40_000, 431),
        (b"GET / HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * 100 + b"\r\n", 431),
    ],
)
async def test_bad_heads_are_refused_and_the_connection_ends(
    data: bytes, status: int, serving: Serving, wire: Wire
) -> None:
    async with serving(wire.echo, HttpLimits(linger_s=0.1)) as stage:
        client = await stage.connect()
        answer = await client.ask(data + wire.get("/smuggled"))
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await client.ended()
        assert stage.exchanges.empty()


async def test_a_broken_chunk_is_an_error_of_the_body(serving: Serving, wire: Wire) -> None:
    errors: list[BodyError] = []

    async def handler(request: Request) -> Response:
        for _ in range(2):  # and again on the next read
            try:
                await request.body.read_all(1000)
            except BodyError as error:
                errors.append(error)
        return Response(400)

    async with serving(handler, HttpLimits(linger_s=0.1)) as stage:
        client = await stage.connect()
        bad = b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
        assert (await client.ask(bad)).headers["connection"] == "close"
        assert await client.ended()
        assert len(errors) == 2


async def test_one_connection_too_many_is_told_to_come_back(serving: Serving, wire: Wire) -> None:
    async with serving(wire.echo, HttpLimits(connections_max=2)) as stage:
        first, second = await stage.connect(), await stage.connect()
        for client in (first, second):
            assert (await client.ask(wire.get())).status == 200
        third = await stage.connect()
        assert (await third.answer()).status == 503
        assert await third.ended()
        first.reset()
        statuses = [503]
        while statuses[-1] == 503:  # until the server has seen the first one go
            statuses.append((await (await stage.connect()).ask(wire.get())).status)
        assert statuses[-1] == 200


# --- time limits


SHORT = HttpLimits(
    header_timeout_s=0.1, idle_timeout_s=0.1, body_stall_timeout_s=0.1, write_stall_timeout_s=0.1,
    linger_s=0.1,
)  # fmt: skip


async def test_a_silent_client_is_dropped(serving: Serving, wire: Wire) -> None:
    async with serving(wire.echo, SHORT) as stage:
        assert await (await stage.connect()).ended()
        idle = await stage.connect()
        assert (await idle.ask(wire.get())).status == 200
        assert await idle.ended()


async def test_a_slow_head_is_answered_408(serving: Serving, wire: Wire) -> None:
    async with serving(wire.echo, HttpLimits(header_timeout_s=0.1, linger_s=0.1)) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.get())).status == 200
        client.send(b"GET / HT")
        await client.writer.drain()
        client.send(b"TP/1.1\r\n")
        assert (await client.answer()).status == 408
        assert await client.ended()


async def test_a_stalled_body_fails_the_read(serving: Serving, wire: Wire) -> None:
    raised: list[BodyError] = []

    async def handler(request: Request) -> Response:
        try:
            await request.body.read_all(100)
        except BodyStalledError as error:
            raised.append(error)
        return Response(400)

    async with serving(handler, SHORT) as stage:
        client = await stage.connect()
        client.send(wire.put(b"0123456789")[:-5])
        assert (await client.answer()).status == 400
        assert await client.ended()
        assert "after 5 bytes" in str(raised[0])


async def test_a_client_that_does_not_read_is_cut_off(serving: Serving, wire: Wire) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, [], endless(), length=1 << 40)

    closed = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1 << 20)
        finally:
            closed.set()

    async with serving(handler, SHORT) as stage:
        client = await stage.connect()
        client.stop_reading()
        client.send(wire.get())
        async with asyncio.timeout(10):
            await closed.wait()
        assert (await stage.exchange()).status == 0
