"""A gRPC server as any client sees it: health, headers, limits, logs and its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1.health_pb2 import HealthCheckRequest as HealthRequest
from grpc_health.v1.health_pb2 import HealthCheckResponse as HealthResponse
from grpc_reflection.v1alpha import reflection_pb2
from tests.support.servers.toy_service import (
    SERVICE,
    Served,
    call_in,
    failure,
    lookup,
    serving,
    transport_to,
    until,
)

from tarn.core.errors import Kind, TarnError
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.server.grpc_server import ServerConfig
from tarn.rpc.server.slots import SlotLimits
from tarn.rpc.wire.errors import error_from_trailers
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

LIST = "/tarn.graveler.v1.EntryService/ListEntries"
SERVING = HealthResponse.SERVING
NOT_SERVING = HealthResponse.NOT_SERVING


@pytest_asyncio.fixture(loop_scope="session")
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def channel(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(served.address) as channel:
        yield channel


def list_entries(
    channel: grpc.aio.Channel,
) -> grpc.aio.UnaryUnaryMultiCallable[pb.ListEntriesRequest, pb.ListEntriesResponse]:
    return channel.unary_unary(
        LIST,
        request_serializer=pb.ListEntriesRequest.SerializeToString,
        response_deserializer=pb.ListEntriesResponse.FromString,
    )


async def test_health_is_known_by_service_and_for_the_whole(channel: grpc.aio.Channel) -> None:
    check: grpc.aio.UnaryUnaryMultiCallable[HealthRequest, HealthResponse] = channel.unary_unary(
        "/grpc.health.v1.Health/Check", HealthRequest.SerializeToString, HealthResponse.FromString
    )
    for name in ("", SERVICE.full_name):
        assert (await check(HealthRequest(service=name))).status == SERVING


async def test_drain_changes_health_and_does_not_wait_for_watchers(
    served: Served, channel: grpc.aio.Channel
) -> None:
    method: grpc.aio.UnaryStreamMultiCallable[HealthRequest, HealthResponse] = channel.unary_stream(
        "/grpc.health.v1.Health/Watch", HealthRequest.SerializeToString, HealthResponse.FromString
    )
    watch = method(HealthRequest())
    states = [await status_of(watch)]
    assert served.server is not None
    async with asyncio.timeout(10.0), asyncio.TaskGroup() as group:
        drained = group.create_task(served.server.drain(30.0))
        states.append(await status_of(watch))

    assert states == [SERVING, NOT_SERVING]
    assert drained.result()


async def test_drain_finishes_calls_in_flight_and_takes_no_new_ones(
    served: Served, channel: grpc.aio.Channel
) -> None:
    rpc = list_entries(channel)
    assert served.server is not None
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(as_task(rpc(pb.ListEntriesRequest(prefix="wait"))))
        await until(lambda: served.toy.begun)
        drained = group.create_task(served.server.drain(10.0))
        await asyncio.sleep(0.05)
        transport = transport_to(served.address)
        refused = await failure(
            transport.unary(SERVICE, "ListEntries", pb.ListEntriesRequest(), call_in(0.5))
        )
        await transport.close()
        served.toy.release.set()

    assert waiting.result().paths == ["wait"]
    assert refused.kind is Kind.UNAVAILABLE
    assert drained.result()
    assert served.toy.begun == ["wait"]


async def test_drain_reports_when_a_call_did_not_end(
    served: Served, channel: grpc.aio.Channel
) -> None:
    assert served.server is not None
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(
            failed_code(list_entries(channel)(pb.ListEntriesRequest(prefix="wait")))
        )
        await until(lambda: served.toy.begun)
        assert not await served.server.drain(0.1)

    assert waiting.result() is not grpc.StatusCode.OK


async def test_call_without_headers_gets_a_request_id_and_a_deadline(
    served: Served, channel: grpc.aio.Channel
) -> None:
    await list_entries(channel)(pb.ListEntriesRequest(prefix="a"))

    (call,) = served.toy.calls
    assert len(call.request_id) == 32
    assert call.caller_token == ""
    assert call.deadline > 0


@pytest.mark.parametrize("hostile", ["x" * 129, "two words", 'quote"\n'])
async def test_request_id_that_is_no_plain_word_is_replaced(
    served: Served, channel: grpc.aio.Channel, hostile: str
) -> None:
    if "\n" in hostile:
        transport = transport_to(
            served.address
        )  # HTTP/2 forbids it; an operation's header does not
        call = call_in(request_id=hostile)
        await transport.operate(SERVICE, *lookup("a"), call)
        await transport.close()
    else:
        metadata = (("x-request-id", hostile),)
        await list_entries(channel)(pb.ListEntriesRequest(prefix="a"), metadata=metadata)

    assert served.toy.calls[0].request_id != hostile


async def test_message_beyond_the_limit_is_refused(channel: grpc.aio.Channel) -> None:
    large = pb.ListEntriesRequest(prefix="x" * (4 * 1024 * 1024))
    code = await failed_code(list_entries(channel)(large))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_page_larger_than_a_request_may_be_arrives(served: Served) -> None:
    transport = transport_to(served.address)
    request = pb.ListEntriesRequest(prefix="x" * (3 * 1024 * 1024))
    served.toy.page_bytes = 8 * 1024 * 1024
    page = await transport.unary(SERVICE, "ListEntries", request, call_in())
    await transport.close()
    assert page.ByteSize() > 8 * 1024 * 1024


async def test_calls_beyond_the_bound_are_refused_as_exhausted() -> None:
    slots = SlotLimits(authenticated_max=1)
    async with serving(ServerConfig("127.0.0.1:0", slots=slots)) as served:
        transport = transport_to(served.address)
        request = pb.ListEntriesRequest(prefix="wait")
        async with asyncio.TaskGroup() as group:
            group.create_task(transport.unary(SERVICE, "ListEntries", request, call_in()))
            await until(lambda: served.toy.begun)
            refused = await failure(transport.unary(SERVICE, "ListEntries", request, call_in()))
            served.toy.release.set()
        await transport.close()

    assert refused.kind is Kind.EXHAUSTED


async def test_error_says_what_its_request_was_about() -> None:
    async with serving() as served, grpc.aio.insecure_channel(served.address) as channel:
        call = channel.unary_unary(
            "/tarn.graveler.v1.EntryService/ListEntries",
            pb.ListEntriesRequest.SerializeToString,
            pb.ListEntriesResponse.FromString,
        )
        request = pb.ListEntriesRequest(repository_id="lake", ref="main", prefix="fail")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(request)
    error = error_from_trailers(raised.value.trailing_metadata())
    assert error is not None
    assert error.metadata == {"repository": "lake", "ref": "main", "path": "x"}


async def test_reflection_is_off_unless_asked_for(channel: grpc.aio.Channel) -> None:
    async with (
        serving(ServerConfig("127.0.0.1:0", reflection=True)) as served,
        grpc.aio.insecure_channel(served.address) as open_channel,
    ):
        assert SERVICE.full_name in await services_of(open_channel)
    # Nothing is sent: a message that meets the server's refusal fails as INTERNAL in the client.
    assert await reflection(channel)().code() is grpc.StatusCode.UNIMPLEMENTED


async def test_each_unary_call_writes_one_canonical_line(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with logging_to(LogConfig(output=str(output))):
        async with serving() as served:
            transport = transport_to(served.address)
            for prefix in ("fine", "fail"):
                request = pb.ListEntriesRequest(prefix=prefix)
                with suppress(TarnError):
                    await transport.unary(SERVICE, "ListEntries", request, call_in())
            await transport.operate(SERVICE, *lookup("hot"), call_in())
            await transport.close()

    lines = [json.loads(line) for line in output.read_text().splitlines()]
    fine, failed = [line for line in lines if line["event"] == "rpc"]
    assert (fine["method"], fine["code"], fine["request_id"]) == (LIST, "OK", "request-1")
    assert fine["duration_ms"] >= 0
    assert (failed["code"], failed["reason"]) == ("NOT_FOUND", "ENTRY_NOT_FOUND")
    assert not [line for line in lines if line["event"] == "operation"]


async def test_calls_are_measured(served: Served, channel: grpc.aio.Channel) -> None:
    await list_entries(channel)(pb.ListEntriesRequest(prefix="a"))
    await failed_code(list_entries(channel)(pb.ListEntriesRequest(prefix="fail")))

    counts = {labels["method"]: n for labels, n in served.meters.samples("rpc.duration.count")}
    failures = list(served.meters.samples("rpc.failed"))
    assert counts[LIST] == 2
    assert failures == [({"method": LIST, "reason": "ENTRY_NOT_FOUND"}, 1)]


async def test_taken_port_is_an_error_that_names_it(served: Served) -> None:
    with pytest.raises(OSError, match=served.address):
        async with serving(ServerConfig(served.address)):
            pass


async def status_of(watch: grpc.aio.UnaryStreamCall[HealthRequest, HealthResponse]) -> int:
    message = await watch.read()
    assert isinstance(message, HealthResponse)
    return message.status


async def as_task(
    rpc: grpc.aio.UnaryUnaryCall[pb.ListEntriesRequest, pb.ListEntriesResponse],
) -> pb.ListEntriesResponse:
    return await rpc


async def failed_code(
    rpc: grpc.aio.UnaryUnaryCall[pb.ListEntriesRequest, pb.ListEntriesResponse],
) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc
    return caught.value.code()


def reflection(
    channel: grpc.aio.Channel,
) -> grpc.aio.StreamStreamMultiCallable[
    reflection_pb2.ServerReflectionRequest, reflection_pb2.ServerReflectionResponse
]:
    return channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )


async def services_of(channel: grpc.aio.Channel) -> list[str]:
    rpc = reflection(channel)()
    await rpc.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    await rpc.done_writing()
    answer = await rpc.read()
    assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
    return [service.name for service in answer.list_services_response.service]
