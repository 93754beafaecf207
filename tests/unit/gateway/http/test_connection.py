"""One connection over a real loopback socket: requests in, in order, within limits."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tarn_gateway.http import (
    BodyError,
    BodyTruncatedError,
    HttpLimits,
    Request,
    Response,
)

pytestmark = pytest.mark.timeout(20)

Serving = Callable[..., Any]
Wire = SimpleNamespace


# --- requests and answers


async def test_keep_alive_serves_one_request_after_the_other(serving: Serving, wire: Wire) -> None:
    async with serving(wire.echo) as stage:
        client = await stage.connect()
        ids = set()
        for i in range(5):
            answer = await client.ask(wire.get(f"/{i}"))
            assert answer.headers["x-path"] == f"/{i}"
            assert answer.headers["content-length"] == "0"
            assert answer.headers["server"] == "Tarn"
            assert answer.headers["date"].endswith("GMT")
            assert "connection" not in answer.headers
            ids.add(answer.headers["x-amz-request-id"])
        assert len(ids) == 5


async def test_pipelined_requests_are_answered_in_order(serving: Serving, wire: Wire) -> None:
    slow = asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.raw_path == b"/0":
            await slow.wait()
        answer: Response = await wire.echo(request)
        return answer

    async with serving(handler) as stage:
        client = await stage.connect()
        client.send(
            wire.get("/0")
            + wire.put(b"one", path="/1")
            + wire.chunked([b"t", b"wo"], "/2")
            + wire.get("/3")
        )
        await asyncio.sleep(0)
        slow.set()
        answers = [await client.answer() for _ in range(4)]
        assert [a.headers["x-path"] for a in answers] == ["/0", "/1", "/2", "/3"]
        assert [a.body for a in answers] == [b"", b"one", b"two", b""]


async def test_a_flood_of_pipelined_requests_is_served_with_bounded_memory(
    serving: Serving, wire: Wire
) -> None:
    async with serving(wire.echo) as stage:
        client = await stage.connect()
        count = 3000  # far more bytes than the head limit: reading pauses and continues

        async def send() -> None:
            for i in range(count):
                client.send(wire.get(f"/{i}"))
                await client.writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            for i in range(count):
                assert (await client.answer()).headers["x-path"] == f"/{i}"


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_heads_and_bodies_may_come_in_any_pieces(
    step: int, serving: Serving, wire: Wire
) -> None:
    data = (
        b"\r\n"
        + wire.put(b"a" * 3000, "X-Long: " + "v" * 500)
        + wire.chunked([b"b" * 900, b"c"])
        + wire.get("/z")
    )
    async with serving(wire.echo) as stage:
        client = await stage.connect()
        client.writer.transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        for at in range(0, len(data), step):
            client.send(data[at : at + step])
            await asyncio.sleep(0)
        assert (await client.answer()).body == b"a" * 3000
        assert (await client.answer()).body == b"b" * 900 + b"c"
        assert (await client.answer()).headers["x-path"] == "/z"


async def test_head_announces_the_length_and_sends_no_body(serving: Serving, wire: Wire) -> None:
    async def handler(request: Request) -> Response:
        if request.raw_path == b"/given":
            return Response(200, [], b"12345")
        return Response(200, [], length=7)

    async with serving(handler) as stage:
        client = await stage.connect()
        head = b"HEAD %b HTTP/1.1\r\nHost: h\r\n\r\n"
        assert (await client.ask(head % b"/", "HEAD")).headers["content-length"] == "7"
        assert (await client.ask(head % b"/given", "HEAD")).headers["content-length"] == "5"
        assert (await client.ask(wire.get("/given"))).body == b"12345"


@pytest.mark.parametrize("status", [204, 304])
async def test_bodiless_statuses_carry_neither_body_nor_length(
    status: int, serving: Serving, wire: Wire
) -> None:
    async def handler(request: Request) -> Response:
        return Response(status, [("ETag", '"e"')], b"never sent")

    async with serving(handler) as stage:
        client = await stage.connect()
        for _ in range(2):
            answer = await client.ask(wire.get())
            assert answer.status == status
            assert "content-length" not in answer.headers


async def test_http_1_0_closes_unless_asked_to_stay(serving: Serving, wire: Wire) -> None:
    async with serving(wire.echo) as stage:
        client = await stage.connect()
        stay = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        assert (await client.ask(stay)).headers["connection"] == "keep-alive"
        assert (await client.ask(b"GET / HTTP/1.0\r\n\r\n")).headers["connection"] == "close"
        assert await client.ended()


async def test_connection_close_is_honoured(serving: Serving, wire: Wire) -> None:
    async with serving(wire.echo) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.get("/", "Connection: close"))).headers[
            "connection"
        ] == "close"
        assert await client.ended()


async def test_an_absolute_target_and_an_upgrade_offer_are_plain_requests(
    serving: Serving, wire: Wire
) -> None:
    async with serving(wire.echo) as stage:
        client = await stage.connect()
        answer = await client.ask(wire.get("http://h:80/a?b"))
        assert answer.headers["x-path"] == "/a"
        offer = wire.get(
            "/u", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x"
        )
        assert (await client.ask(offer)).headers["x-path"] == "/u"
        assert (await client.ask(wire.get("/v"))).headers["x-path"] == "/v"


async def test_large_bodies_pass_through_two_buffers(serving: Serving, wire: Wire) -> None:
    data = hashlib.sha256(b"seed").digest() * 200_000  # 6.4 MB
    limits = HttpLimits(body_buffer_bytes=100_000)

    async def handler(request: Request) -> Response:
        digest = hashlib.sha256()
        async for piece in request.body:
            assert len(piece) <= 100_000
            digest.update(piece)
            await asyncio.sleep(0)  # the socket fills the other buffer meanwhile
        return Response(200, [], digest.hexdigest().encode())

    expected = hashlib.sha256(data).hexdigest().encode()
    async with serving(handler, limits) as stage:
        client = await stage.connect()
        pieces = [data[i : i + 70_001] for i in range(0, len(data), 70_001)]
        for request in (wire.put(data), wire.chunked(pieces)) * 2:
            client.send(request)
            assert (await client.answer()).body == expected
        assert (await stage.exchange()).received_bytes == len(data)


async def test_a_slow_handler_holds_the_client_back(serving: Serving, wire: Wire) -> None:
    limits = HttpLimits(body_buffer_bytes=64 * 1024)
    go = asyncio.Event()

    async def handler(request: Request) -> Response:
        size = len(await request.body.read())
        await go.wait()
        async for piece in request.body:
            size += len(piece)
        return Response(200, [], str(size).encode())

    async with serving(handler, limits) as stage:
        client = await stage.connect()
        total = 64 * 1024 * 1024
        client.send(
            wire.put(b"")[:-2].replace(b"Content-Length: 0", b"Content-Length: %d" % total)
            + b"\r\n"
        )
        chunk = bytes(1 << 20)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < total:
                client.send(chunk)
                sent += len(chunk)
                async with asyncio.timeout(0.3):
                    await client.writer.drain()
        assert sent < total  # only socket buffers and two of ours were filled
        go.set()
        while sent < total:
            client.send(chunk)
            sent += len(chunk)
            await client.writer.drain()
        assert (await client.answer()).body == str(total).encode()


# --- Expect


async def test_continue_is_sent_when_the_handler_reads(serving: Serving, wire: Wire) -> None:
    async with serving(wire.echo) as stage:
        client = await stage.connect()
        data = wire.put(b"hello", "Expect: 100-continue")
        answer = await client.ask(data[:-5])
        assert answer.status == 100
        assert (await client.ask(b"hello")).body == b"hello"
        # A client that sends the body without waiting gets none.
        assert (await client.ask(data)).body == b"hello"


async def test_a_refusal_comes_at_once_instead_of_continue(serving: Serving, wire: Wire) -> None:
    async def handler(request: Request) -> Response:
        return Response(403, [], b"no")

    async with serving(handler) as stage:
        client = await stage.connect()
        answer = await client.ask(wire.put(b"hello", "Expect: 100-continue")[:-5])
        assert (answer.status, answer.headers["connection"]) == (403, "close")
        assert await client.ended()


# --- unread bodies


async def test_a_small_unread_body_is_dropped_and_the_connection_stays(
    serving: Serving, wire: Wire
) -> None:
    async def handler(request: Request) -> Response:
        return Response(404)

    async with serving(handler) as stage:
        client = await stage.connect()
        for _ in range(3):
            assert (await client.ask(wire.put(b"x" * 100_000))).status == 404
        client.send(wire.put(b"x" * 200_000)[:-10])
        assert (await client.answer()).status == 404
        client.send(b"x" * 10 + wire.get())
        assert (await client.answer()).status == 404


async def test_a_large_unread_body_ends_the_connection_without_losing_the_answer(
    serving: Serving, wire: Wire
) -> None:
    async def handler(request: Request) -> Response:
        return Response(400, [], b"why")

    async with serving(handler) as stage:
        for request in (wire.put(bytes(3_000_000)), wire.chunked([bytes(3_000_000)])):
            client = await stage.connect()
            client.send(request)
            # The client sends everything before it reads; a reset would lose the answer.
            await client.writer.drain()
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"], answer.body) == (
                400,
                "close",
                b"why",
            )
            assert await client.ended()


# --- clients that disconnect


async def test_a_lost_connection_cancels_a_get_but_lets_a_put_finish(
    serving: Serving, wire: Wire
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    outcomes: list[str] = []

    async def handler(request: Request) -> Response:
        if request.raw_path == b"/other":
            return Response(204)
        await request.body.read_all(100)
        begun.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            outcomes.append(f"{request.method} cancelled")
            raise
        outcomes.append(f"{request.method} finished")
        return Response(200, [], b"late")

    async with serving(handler) as stage:
        for data in (wire.get(), wire.put(b"hello")):
            begun.clear()
            client = await stage.connect()
            client.send(data)
            await begun.wait()
            client.reset()
            if data.startswith(b"PUT"):
                # Loopback delivers the reset before another connection is even accepted.
                other = await stage.connect()
                assert (await other.ask(wire.get("/other"))).status == 204
                assert outcomes == ["GET cancelled"]
                go.set()
                assert (await stage.exchange()).status == 204
            assert (await stage.exchange()).status == 0
        assert outcomes == ["GET cancelled", "PUT finished"]


async def test_a_body_that_breaks_off_is_a_truncated_body(serving: Serving, wire: Wire) -> None:
    caught: list[BodyError] = []

    async def handler(request: Request) -> Response:
        try:
            await request.body.read_all(1 << 30)
        except BodyTruncatedError as error:
            caught.append(error)
            raise
        return Response(200)

    async with serving(handler) as stage:
        for data in (
            wire.put(bytes(1000))[:-1],
            wire.put(bytes(500_000))[:-1],
            wire.chunked([b"abc"])[:-2],
        ):
            client = await stage.connect()
            client.send(data)
            await client.writer.drain()
            client.writer.write_eof()
            await stage.exchange()
        assert len(caught) == 3
