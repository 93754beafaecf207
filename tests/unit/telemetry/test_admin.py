"""The admin port on a real socket: its page, its refusals and its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tarn.telemetry.admin import CONNECTIONS_MAX, AdminServer
from tarn.telemetry.meters import Meters


@asynccontextmanager
async def listening(**options: float) -> AsyncIterator[tuple[AdminServer, int]]:
    meters = Meters()
    meters.counter("kv.failed", operation="scan", reason="A").add(3)
    async with AdminServer(meters, **options) as server:
        address = await server.listen("127.0.0.1:0")
        yield server, int(address.rpartition(":")[2])


async def ask(port: int, request: str) -> tuple[str, str]:
    """Returns the head and the body of the answer; empty if the server hung up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.encode())
        answer = (await reader.read()).decode()
    except ConnectionError:
        answer = ""
    finally:
        writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head, body


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Returns everything until the server ends or resets the connection."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_metrics_are_served_in_the_format_that_the_client_accepts() -> None:
    async with listening() as (_, port):
        head, body = await ask(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;")
        assert f"Content-Length: {len(body)}" in head
        assert 'tarn_kv_failed_total{operation="scan",reason="A"} 3\n' in body
        accept = "accept: application/openmetrics-text;version=1.0.0\r\n"
        head, body = await ask(port, f"GET /metrics?x=1 HTTP/1.1\r\n{accept}\r\n")
        assert "Content-Type: application/openmetrics-text; version=1.0.0;" in head
        assert body.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET / HTTP/1.1", "404"),
        ("GET /metricsx HTTP/1.1", "404"),
        ("POST /metrics HTTP/1.1", "405"),
        ("\x00\xff", "405"),
    ],
)
async def test_other_requests_are_refused(request_line: str, status: str) -> None:
    async with listening() as (_, port):
        head, _ = await ask(port, f"{request_line}\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ")


async def test_head_has_no_body() -> None:
    async with listening() as (_, port):
        head, body = await ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head.startswith("HTTP/1.1 200")
        assert body == ""


async def test_a_head_that_is_too_long_ends_the_connection() -> None:
    async with listening() as (_, port):
        assert await ask(port, "GET /metrics HTTP/1.1\r\n" + "x" * 100_000) == ("", "")


async def test_a_client_that_sends_nothing_is_dropped() -> None:
    async with listening(timeout_s=0.05) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            # Ends only because the server hangs up; the test's own limit is far longer.
            async with asyncio.timeout(30):
                assert await rest(reader) == b""
        finally:
            writer.close()


async def test_connections_beyond_the_limit_are_closed_and_others_still_served() -> None:
    async with listening() as (server, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        while server.open_count < CONNECTIONS_MAX:  # noqa: ASYNC110 - of the server's own task
            await asyncio.sleep(0)
        assert await ask(port, "GET /metrics HTTP/1.1\r\n\r\n") == ("", "")
        reader, writer = held[0]
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        for _, writer in held:
            writer.close()


async def test_closing_ends_open_connections() -> None:
    async with listening() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not server.open_count:  # noqa: ASYNC110 - of the server's own task
            await asyncio.sleep(0)
    assert server.open_count == 0
    assert await rest(reader) == b""
    writer.close()


async def test_a_taken_address_is_an_os_error() -> None:
    async with listening() as (_, port), AdminServer(Meters()) as second:
        with pytest.raises(OSError, match="address already in use"):
            await second.listen(f"127.0.0.1:{port}")
