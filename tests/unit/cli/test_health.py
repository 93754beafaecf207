"""`tarn-health` against the real health server of a service."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tarn.rpc.process.system import SystemClock
from tarn.rpc.server.health_server import HealthServer
from tarn_cli.health import main

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[tuple[HealthServer, str]]:
    """A server, which is not ready yet, and its address."""
    server = HealthServer("127.0.0.1:0", SystemClock())
    try:
        yield server, await server.start()
    finally:
        await server.close()


async def exit_code(*arguments: str, **environ: str) -> int:
    return await asyncio.to_thread(main, arguments, environ)


async def test_it_tells_readiness_from_the_process(
    server: tuple[HealthServer, str], capsys: pytest.CaptureFixture[str]
) -> None:
    health, address = server
    assert await exit_code("--address", address) == 1
    assert f"{address} answers NOT_SERVING" in capsys.readouterr().err
    assert await exit_code("--address", address, "--service", "live") == 0
    health.set_ready(is_ready=True)
    assert await exit_code("--address", address) == 0
    assert capsys.readouterr() == ("", "")


async def test_the_address_is_that_of_the_service(server: tuple[HealthServer, str]) -> None:
    """The variable that the service reads; all addresses of the machine stand for the loopback."""
    _, address = server
    port = address.rpartition(":")[2]
    for host in ("127.0.0.1", "0.0.0.0"):
        given = {"TARN_RPC_HEALTH_ADDRESS": f"{host}:{port}"}
        assert await exit_code("--service", "live", **given) == 0


async def test_without_an_address_it_says_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert await exit_code() == 1
    assert "rpc.health_address" in capsys.readouterr().err


async def test_it_says_that_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    assert await exit_code("--address", f"127.0.0.1:{port}") == 1
    assert f"127.0.0.1:{port} does not answer" in capsys.readouterr().err


async def test_it_waits_no_longer_than_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The peer accepts the connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert await exit_code("--address", address, "--timeout", "0.2") == 1
    assert f"no answer from {address} within 0.2 s" in capsys.readouterr().err


async def test_an_unknown_service_is_not_healthy(
    server: tuple[HealthServer, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await exit_code("--address", server[1], "--service", "no-such") == 1
    assert "does not answer" in capsys.readouterr().err
