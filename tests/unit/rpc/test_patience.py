"""A service that cannot be reached is told within seconds, by its name and address."""

import asyncio

import pytest
from google.protobuf.message import Message
from tests.support.servers.toy_service import (
    SERVICE,
    call_in,
    failure,
    lookup,
    serving,
    stage,
    transport_to,
)

from tarn.core.errors import Kind
from tarn.rpc.client import grpc_transport
from tarn.rpc.client.patience import Patience
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_all_callers_wait_together() -> None:
    patience = Patience(3.0, 0.25)
    assert patience.left_s(100.0) == 3.0
    assert patience.left_s(101.0) == 2.0
    assert patience.left_s(110.0) == 0.25
    patience.end()
    assert patience.left_s(111.0) == 3.0


@pytest.mark.parametrize("read_only", [True, False])
async def test_an_operation_does_not_wait_for_a_dead_service_until_its_deadline(
    monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    """It waited for the whole deadline, and the error named neither the service nor the address."""
    monkeypatch.setattr(grpc_transport, "_CONNECT_SECONDS", 0.05)
    async with serving() as served:
        address = served.address
    transport = transport_to(address)
    operation: tuple[str, Message] = lookup("a") if read_only else stage("a")
    async with asyncio.timeout(60):
        work = transport.operate(SERVICE, *operation, call_in(3600))
        error = await failure(work)
    assert error.kind is Kind.UNAVAILABLE
    assert error.message == f"cannot connect to graveler at {address}"
    await transport.close()


async def test_a_call_to_a_service_that_never_answered_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_transport, "_CONNECT_SECONDS", 0.05)
    waits: list[float] = []
    real = Patience.left_s

    def left_s(patience: Patience, now: float) -> float:
        waits.append(now)
        return real(patience, now)

    monkeypatch.setattr(Patience, "left_s", left_s)
    async with serving() as served:
        address = served.address
    transport = transport_to(address)
    request = pb.ListEntriesRequest(prefix="a")
    error = await failure(transport.unary(SERVICE, "ListEntries", request, call_in(3600)))
    assert error.message == f"cannot connect to graveler at {address}"
    assert len(waits) == 1
    await transport.close()


async def test_an_operation_is_sent_when_the_service_comes_back_in_time() -> None:
    async with serving() as served:
        address = served.address
        transport = transport_to(address)
        await transport.operate(SERVICE, *lookup("a"), call_in(10))
        await served.kill()
        async with asyncio.TaskGroup() as group:
            work = transport.operate(SERVICE, *lookup("b"), call_in(10))
            waiting = group.create_task(work)
            await served.start()
        assert waiting.done()
        await transport.close()
