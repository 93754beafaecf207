"""The health checks for an orchestrator: what they answer, and that the server has nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from tarn.rpc.process.system import SystemClock
from tarn.rpc.server.health_server import LIVE, READY, HealthServer

pytestmark = pytest.mark.asyncio(loop_scope="session")  # grpc.aio shares one poller

CHECK = "/grpc.health.v1.Health/Check"


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[HealthServer]:
    made = HealthServer("127.0.0.1:0", SystemClock())
    yield made
    await made.close()


async def answer(address: str, service: str, method: str = CHECK) -> object:
    """Returns the status of a service, or the code with which the call fails."""
    async with grpc.aio.insecure_channel(address) as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[HealthCheckRequest, HealthCheckResponse]
        check = channel.unary_unary(
            method, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )
        try:
            return (await check(HealthCheckRequest(service=service), timeout=10.0)).status
        except grpc.aio.AioRpcError as error:
            return error.code()


async def test_it_is_alive_from_the_start_and_ready_when_told(server: HealthServer) -> None:
    address = await server.start()
    found = [(await answer(address, LIVE), await answer(address, READY))]
    for is_ready in (True, False):
        server.set_ready(is_ready=is_ready)
        found.append((await answer(address, LIVE), await answer(address, READY)))
    yes, no = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
    assert found == [(yes, no), (yes, yes), (yes, no)]


async def test_the_health_port_serves_no_other_rpc(server: HealthServer) -> None:
    address = await server.start()
    assert await answer(address, "tarn.auth.v1.UserService") is grpc.StatusCode.NOT_FOUND
    other = "/tarn.auth.v1.UserService/ListUsers"
    assert await answer(address, "", other) is grpc.StatusCode.UNIMPLEMENTED


async def test_a_taken_address_is_an_error(server: HealthServer) -> None:
    address = await server.start()
    with pytest.raises(OSError, match=f"cannot listen on {address}"):
        await HealthServer(address, SystemClock()).start()


async def test_it_answers_no_more_after_its_close(server: HealthServer) -> None:
    address = await server.start()
    await server.close()
    await server.close()
    assert await answer(address, LIVE) is grpc.StatusCode.UNAVAILABLE
