"""Connections of clients that no handler has identified share a part of all connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tarn_gateway.http import HttpLimits, Request, Response
from tarn_gateway.http.admission import Admission

pytestmark = pytest.mark.timeout(20)

Serving = Callable[..., Any]
Wire = SimpleNamespace


@dataclass(eq=False)
class Fake:
    is_identified: bool = False
    is_serving: bool = False


def admission(connections: int, unidentified: int) -> Admission[Fake]:
    return Admission(HttpLimits(connections_max=connections, unidentified_max=unidentified))


def test_the_oldest_unidentified_connection_gives_way() -> None:
    door = admission(100, 2)
    first, second, third = Fake(), Fake(), Fake()
    assert door.admit(first, 0) == (True, None)
    assert door.admit(second, 1) == (True, None)
    assert door.admit(third, 2) == (True, first)
    assert door.admit(Fake(), 2) == (True, second)


def test_identified_connections_and_those_being_served_do_not_give_way() -> None:
    door = admission(100, 3)
    served, known, idle = Fake(is_serving=True), Fake(), Fake()
    for count, each in enumerate((served, known, idle)):
        assert door.admit(each, count) == (True, None)
    known.is_identified = True
    assert door.admit(Fake(), 3) == (True, None), "one of three was identified meanwhile"
    assert door.admit(Fake(), 4) == (True, idle)


def test_a_full_server_of_identified_clients_refuses() -> None:
    door = admission(2, 2)
    for count in range(2):
        assert door.admit(Fake(is_identified=True), count) == (True, None)
    assert door.admit(Fake(), 2) == (False, None)


def test_a_full_server_still_takes_a_client_for_an_unidentified_one() -> None:
    door = admission(4, 2)
    for count in range(2):
        door.admit(Fake(is_identified=True), count)
    idlers = [Fake(), Fake()]
    for count, each in enumerate(idlers, 2):
        door.admit(each, count)
    assert door.admit(Fake(), 4) == (True, idlers[0])


def test_a_connection_that_ended_does_not_give_way() -> None:
    door = admission(100, 1)
    gone = Fake()
    door.admit(gone, 0)
    door.leave(gone)
    assert door.admit(Fake(), 0) == (True, None)


async def test_idle_strangers_lose_their_connections_and_clients_keep_theirs(
    serving: Serving, wire: Wire
) -> None:
    async def handler(request: Request) -> Response:
        request.identified = b"known" in request.raw_path
        return Response(200, [], b"x")

    async with serving(handler, HttpLimits(connections_max=8, unidentified_max=4)) as stage:
        known = [await stage.connect() for _ in range(4)]
        for client in known:
            assert (await client.ask(wire.get("/known"))).status == 200
        strangers = [await stage.connect() for _ in range(4)]
        for client in strangers[:2]:  # a request that is refused identifies no one
            assert (await client.ask(wire.get("/stranger"))).status == 200
        late = await stage.connect()
        assert (await late.ask(wire.get("/known"))).status == 200
        assert await strangers[0].ended()
        for client in (*known, late):
            assert (await client.ask(wire.get("/known"))).status == 200
        assert stage.server.connection_count == 8


async def test_a_client_is_identified_while_its_first_request_runs(
    serving: Serving, wire: Wire
) -> None:
    """A long upload is no stranger."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        request.identified = True
        begun.set()
        await go.wait()
        return Response(200, [], b"done")

    async with serving(handler, HttpLimits(connections_max=2, unidentified_max=1)) as stage:
        upload = await stage.connect()
        upload.send(wire.put(b"x"))
        await begun.wait()
        await stage.connect()
        late = await stage.connect()
        late.send(wire.get())
        go.set()
        assert (await late.answer()).status == 200
        assert (await upload.answer()).body == b"done"


async def test_a_stranger_whose_request_waits_for_its_turn_gives_way(
    serving: Serving, wire: Wire
) -> None:
    """Else requests that nobody works on would hold all connections."""
    queued: asyncio.Queue[Request] = asyncio.Queue()

    async def handler(request: Request) -> Response:
        request.is_queued = True
        queued.put_nowait(request)
        await asyncio.sleep(60)
        return Response(200)

    async with serving(handler, HttpLimits(connections_max=2, unidentified_max=1)) as stage:
        for method in (wire.get(), wire.put(b"x")):
            stranger = await stage.connect()
            stranger.send(method)
            await queued.get()
            await stage.connect()
            assert await stranger.ended()


@pytest.mark.parametrize("length", [1000, 100_000, 10**9])
async def test_a_body_that_no_handler_reads_takes_no_buffer(
    length: int, serving: Serving, wire: Wire
) -> None:
    async def handler(request: Request) -> Response:
        return Response(403, [], b"no")

    async with serving(handler, HttpLimits(linger_s=0.1)) as stage:
        pool = stage.server._context.pool
        pool.take = lambda: pytest.fail("a buffer was taken")
        client = await stage.connect()
        head = f"PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n".encode()
        assert (await client.ask(head + bytes(min(length - 1, 200_000)))).status == 403
        if length < 10**9:
            client.send(bytes(1) if length < 200_000 else b"")
            assert (await client.ask(wire.get())).status == 403, "the connection is kept"
        else:
            assert await client.ended()
