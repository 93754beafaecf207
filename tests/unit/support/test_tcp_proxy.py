"""The proxy loses exchanges in the chosen way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.support.faults.tcp_proxy import Loss, TcpProxy


@dataclass
class Echo:
    """An echo server behind a proxy."""

    proxy: TcpProxy
    got: list[bytes] = field(default_factory=list)

    async def ask(self, request: bytes) -> bytes:
        """Returns the answer; empty if the connection ends without one."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        try:
            writer.write(request)
            async with asyncio.timeout(5.0):
                return await reader.read(100)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionResetError):
                await writer.wait_closed()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    got: list[bytes] = []

    over: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.append(asyncio.Event())
        mine = over[-1]
        while data := await reader.read(100):
            got.append(data)
            writer.write(data)
        writer.close()
        await writer.wait_closed()
        mine.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with TcpProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield Echo(proxy, got)
    for each in over:
        await each.wait()
    server.close()


async def test_a_late_request_is_done_when_it_lands_and_not_before(echo: Echo) -> None:
    late = echo.proxy.lose(Loss.LATE, b"late")
    assert await echo.ask(b"late") == b""
    assert late.is_set()
    assert await echo.ask(b"next") == b"next"
    assert echo.got == [b"next"]
    assert await echo.proxy.land() == 1
    assert echo.got == [b"next", b"late"]
    assert await echo.proxy.land() == 0


async def test_a_judge_decides_about_each_request(echo: Echo) -> None:
    async def judge(data: bytes) -> Loss | None:
        return {b"lost": Loss.REQUEST, b"done": Loss.ANSWER}.get(data)

    echo.proxy.judge = judge
    assert [await echo.ask(each) for each in (b"lost", b"done", b"well")] == [b"", b"", b"well"]
    assert echo.got == [b"done", b"well"]
