"""Large bodies that a thread receives: the same bytes, the same end, and no thread is kept by a slow client."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tarn_gateway.http import HttpLimits, Request, Response
from tarn_gateway.http.body import BodyReader, BodyTruncatedError, BufferPool
from tarn_gateway.http.patience import Patience
from tarn_gateway.http.receiver import WAITS_MAX, Receiver

pytestmark = pytest.mark.timeout(30)

Serving = Callable[..., Any]
Wire = SimpleNamespace
Pair = tuple[socket.socket, socket.socket]
BODY = bytes(range(256)) * 8192
MOST = 8 << 20
NO_PATIENCE = Patience(0, 1)


@pytest.fixture
def pair() -> Iterator[Pair]:
    server, client = socket.socketpair()
    with server, client:
        server.setblocking(False)
        yield server, client


def receiver(server: socket.socket, left: int, held: bytes = b"", size: int = 1000) -> Receiver:
    buffer = memoryview(bytearray(held.ljust(size, b"\xee")))
    return Receiver(server.fileno(), buffer, len(held), left, NO_PATIENCE)


def test_pieces_are_the_held_bytes_and_those_that_follow_up_to_the_end_of_the_body(
    pair: Pair,
) -> None:
    server, client = pair
    client.sendall(bytes(range(200)) * 10 + b"GET /next")
    got = receiver(server, 2000, b"held")
    pieces = [bytes(each) for each in got.pieces(MOST)]
    assert b"".join(pieces) == b"held" + bytes(range(200)) * 10
    assert max(map(len, pieces)) == 1000
    assert got.received == 2000
    assert server.recv(100) == b"GET /next"


def test_a_client_that_sends_nothing_more_ends_the_turn(pair: Pair) -> None:
    server, client = pair
    client.sendall(b"x" * 10)
    got = receiver(server, 2000)
    assert [bytes(each) for each in got.pieces(MOST)] == [b"x" * 10]
    assert got.received == 10


def test_a_client_that_has_left_ends_the_turn(pair: Pair) -> None:
    server, client = pair
    client.sendall(b"x" * 10)
    client.close()
    got = receiver(server, 2000)
    got._patience = Patience(1, 20_000)
    assert b"".join(map(bytes, got.pieces(MOST))) == b"x" * 10


def test_a_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its bytes, if the client is fast; by its waits, if the client sends little by little."""
    monkeypatch.setattr(os, "readv", lambda _, buffers: len(buffers[0]))
    fast = Receiver(0, memoryview(bytearray(1 << 20)), 0, 1 << 30, NO_PATIENCE)
    assert sum(map(len, fast.pieces(MOST))) == fast.received == MOST

    given = iter([None, b"x"] * 1000)

    def drip(_: int, buffers: list[memoryview]) -> int:
        if (found := next(given)) is None:
            raise BlockingIOError
        return len(found)

    monkeypatch.setattr(os, "readv", drip)
    slow = Receiver(0, memoryview(bytearray(1)), 0, 1 << 30, NO_PATIENCE)
    monkeypatch.setattr(NO_PATIENCE, "wait", lambda *_, **__: True)
    assert sum(map(len, slow.pieces(MOST))) == slow.received == WAITS_MAX


def joined(got: Receiver) -> bytes:
    return b"".join(map(bytes, got.pieces(MOST)))


async def by_threads(request: Request) -> tuple[bytes, int]:
    """Reads a body, by threads where that is possible; returns it and the bytes that threads have received."""
    body, by_thread = bytearray(), 0
    while piece := await request.body.read():
        with request.body.by_thread() as got:
            body += piece
            if got is not None:
                body += await asyncio.to_thread(joined, got)
                by_thread += got.received
    return bytes(body), by_thread


async def counted(request: Request) -> Response:
    body, by_thread = await by_threads(request)
    return Response(200, [("X-By-Thread", str(by_thread))], body)


async def test_bodies_are_the_same_and_the_next_request_begins_behind_them(
    serving: Serving, wire: Wire
) -> None:
    async with serving(counted) as stage:
        client = await stage.connect()
        client.send(wire.put(BODY) + wire.put(b"second") + wire.put(BODY[::-1]))
        first, second, third = [await client.answer() for _ in range(3)]
        assert first.body == BODY
        assert second.body == b"second"
        assert third.body == BODY[::-1]
        assert int(first.headers["x-by-thread"]) > 0
        assert second.headers["x-by-thread"] == "0"


async def test_a_client_that_pauses_or_leaves_is_met_by_the_event_loop(
    serving: Serving, wire: Wire
) -> None:
    failed = asyncio.Event()

    async def told(request: Request) -> Response:
        try:
            return await counted(request)
        except BodyTruncatedError:
            failed.set()
            raise

    async with serving(told) as stage:
        client, whole = await stage.connect(), wire.put(BODY)
        for part in (whole[:900_000], whole[900_000:900_001], whole[900_001:]):
            client.send(part)
            await client.writer.drain()
            await asyncio.sleep(0.1)
        assert (await client.answer()).body == BODY
        client.send(whole[:900_000])
        await client.writer.drain()
        client.writer.close()
        async with asyncio.timeout(10):
            await failed.wait()


async def test_work_that_fails_leaves_the_connection_in_order(serving: Serving, wire: Wire) -> None:
    """What a thread has received counts as received, so the rest of the body is known."""

    async def fails(request: Request) -> Response:
        await request.body.read()
        with request.body.by_thread() as got:
            assert got is not None
            while got.received < len(BODY) - 200_000:
                await asyncio.to_thread(next, got.pieces(MOST), None)
        return Response(507)

    async def handler(request: Request) -> Response:
        return await (fails if request.raw_path == b"/fails" else counted)(request)

    async with serving(handler) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.put(BODY, path="/fails"))).status == 507
        assert (await client.ask(wire.put(BODY))).body == BODY


@pytest.mark.parametrize("how", ["chunked", "small buffers", "no descriptors"])
async def test_other_bodies_stay_with_the_event_loop(
    how: str, serving: Serving, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those over TLS, too: see test_server."""

    def full(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    if how == "no descriptors":
        monkeypatch.setattr(os, "dup", full)
    limits = HttpLimits(body_buffers_max=0) if how == "small buffers" else HttpLimits()
    async with serving(counted, limits) as stage:
        client = await stage.connect()
        sent = wire.chunked([BODY[:1_000_000], BODY[1_000_000:]])
        answer = await client.ask(sent if how == "chunked" else wire.put(BODY))
        assert answer.body == BODY
        assert answer.headers["x-by-thread"] == "0"


async def test_a_body_gives_its_buffers_back(serving: Serving, wire: Wire) -> None:
    pools: list[BufferPool] = []

    async def handler(request: Request) -> Response:
        assert isinstance(request.body, BodyReader)
        assert request.body._pool is not None
        pools.append(request.body._pool)
        return await counted(request)

    async with serving(handler) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.put(BODY))).body == BODY
        await stage.exchange()
        assert pools[0]._used == 0
