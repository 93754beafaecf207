"""The guarantees for a caller, whether the service is in its process or behind gRPC."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.servers.toy_service import (
    SERVICE,
    Toy,
    call_in,
    failure,
    lookup,
    serving,
    stage,
    transport_to,
    until,
)

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.client.transport import Transport
from tarn.rpc.process.system import SystemClock
from tarn_proto.graveler.v1 import entry_service_pb2 as pb
from tarn_proto.graveler.v1 import repository_service_pb2 as repository_pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")


class Pair:
    """A transport and the toy that it leads to."""

    def __init__(self, toy: Toy, transport: Transport) -> None:
        self.toy = toy
        self.transport = transport

    async def read(self, path: str, seconds: float = 10.0) -> pb.LookupResult:
        call = call_in(seconds)
        result = await self.transport.operate(SERVICE, *lookup(path), call)
        assert isinstance(result, pb.LookupResult)
        return result

    async def write(self, path: str, seconds: float = 10.0) -> pb.StageResult:
        call = call_in(seconds)
        result = await self.transport.operate(SERVICE, *stage(path), call)
        assert isinstance(result, pb.StageResult)
        return result

    async def list_page(self, prefix: str, seconds: float = 10.0) -> pb.ListEntriesResponse:
        request = pb.ListEntriesRequest(prefix=prefix)
        page = await self.transport.unary(SERVICE, "ListEntries", request, call_in(seconds))
        assert isinstance(page, pb.ListEntriesResponse)
        return page

    async def unstage_many(self, path: str, seconds: float = 10.0) -> object:
        request = pb.UnstageEntriesRequest(paths=[path])
        return await self.transport.unary(SERVICE, "UnstageEntries", request, call_in(seconds))


@pytest_asyncio.fixture(loop_scope="session", params=["in process", "grpc"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    transport: InProcessTransport | GrpcTransport
    if request.param == "in process":
        toy = Toy()
        transport = InProcessTransport([toy.endpoint], SystemClock())
        yield Pair(toy, transport)
        toy.release.set()
        await transport.close()
        return
    async with serving() as served:
        transport = transport_to(served.address)
        yield Pair(served.toy, transport)
        await transport.close()


async def test_operation_is_answered(pair: Pair) -> None:
    result = await pair.read("a/b")
    assert (result.entry, result.storage_namespace) == (b"a/b", "local://toy")


async def test_unary_call_is_answered(pair: Pair) -> None:
    assert (await pair.list_page("a/")).paths == ["a/"]


async def test_many_operations_get_their_own_answers(pair: Pair) -> None:
    paths = [f"path-{number}" for number in range(2000)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(pair.read(path)) for path in paths]
    assert [task.result().entry.decode() for task in tasks] == paths


@pytest.mark.parametrize("kind", Kind)
async def test_error_of_every_kind_arrives_as_it_was_raised(pair: Pair, kind: Kind) -> None:
    pair.toy.error = TarnError(kind, Reason.REF_MOVED, "moved ü", branch="main")
    for work in (pair.read("fail"), pair.write("fail"), pair.list_page("fail")):
        error = await failure(work)
        assert (error.kind, error.reason, error.message, error.metadata) == (
            kind,
            Reason.REF_MOVED,
            "moved ü",
            {"branch": "main"},
        )


async def test_bug_becomes_internal_without_its_details(pair: Pair) -> None:
    for work in (pair.read("bug"), pair.write("bug"), pair.list_page("bug")):
        error = await failure(work)
        assert (error.kind, error.reason) == (Kind.INTERNAL, Reason.INTERNAL)
        assert "request-1" in error.message
        assert "secret detail" not in str(error)


async def test_handler_sees_request_id_token_and_deadline(pair: Pair) -> None:
    await pair.read("a", seconds=5.0)
    await pair.write("a", seconds=5.0)
    await pair.list_page("a", seconds=5.0)

    now = SystemClock().monotonic()
    for call in pair.toy.calls:
        assert (call.request_id, call.caller_token) == ("request-1", "caller-token")
        assert 3.0 < call.deadline - now < 5.1


async def test_nothing_is_begun_after_the_deadline(pair: Pair) -> None:
    for work in (pair.read("a", -1.0), pair.write("a", -1.0), pair.list_page("a", -1.0)):
        assert (await failure(work)).kind is Kind.DEADLINE
    assert pair.toy.begun == []


async def test_call_without_an_end_is_answered(pair: Pair) -> None:
    for work in (
        pair.read("a", math.inf),
        pair.write("a", math.inf),
        pair.list_page("a", math.inf),
    ):
        await work


async def test_slow_read_ends_at_its_deadline(pair: Pair) -> None:
    for work in (pair.read("wait", 0.1), pair.list_page("wait", 0.1)):
        error = await failure(work)
        assert (error.kind, error.reason) == (Kind.DEADLINE, Reason.DEADLINE_EXCEEDED)


async def test_slow_change_has_an_unknown_outcome_and_runs_to_its_end(pair: Pair) -> None:
    await pair.read("connect")  # or the deadline may pass before the change has begun
    pair.toy.ended.clear()
    for work in (pair.write("wait-1", 0.1), pair.unstage_many("wait-2", 0.1)):
        error = await failure(work)
        assert (error.kind, error.reason) == (Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN)

    pair.toy.release.set()
    await until(lambda: pair.toy.ended == ["wait-1", "wait-2"])
    assert pair.toy.cancelled == []


async def test_caller_that_leaves_does_not_stop_a_change(pair: Pair) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(pair.write("wait-1")),
            group.create_task(pair.unstage_many("wait-2")),
        ]
        await until(lambda: len(pair.toy.begun) == 2)
        for task in tasks:
            task.cancel()

    pair.toy.release.set()
    await until(lambda: sorted(pair.toy.ended) == ["wait-1", "wait-2"])
    assert pair.toy.cancelled == []


async def test_caller_that_leaves_stops_a_unary_read(pair: Pair) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pair.list_page("wait"))
        await until(lambda: pair.toy.begun)
        task.cancel()

    await until(lambda: pair.toy.cancelled == ["wait"])


async def test_cancelled_caller_leaves_the_transport_usable(pair: Pair) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pair.read("wait"))
        await until(lambda: pair.toy.begun)
        task.cancel()
    assert task.cancelled()

    assert (await pair.read("after")).entry == b"after"


async def test_timeout_of_the_caller_is_not_taken_for_the_deadline(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await pair.read("wait")


async def test_service_that_is_not_there_is_unimplemented(pair: Pair) -> None:
    service = repository_pb.DESCRIPTOR.services_by_name["RepositoryService"]
    request = repository_pb.GetRepositoryRequest()
    work = pair.transport.unary(service, "GetRepository", request, call_in())
    assert (await failure(work)).kind is Kind.UNIMPLEMENTED


async def test_closed_transport_is_unavailable(pair: Pair) -> None:
    await pair.read("a")
    await pair.transport.close()
    await pair.transport.close()
    for work in (pair.read("a"), pair.write("a"), pair.list_page("a")):
        assert (await failure(work)).kind is Kind.UNAVAILABLE


async def test_close_ends_what_waits(pair: Pair) -> None:
    async with asyncio.TaskGroup() as group:
        write = group.create_task(failure(pair.write("wait-1")))
        change = group.create_task(failure(pair.unstage_many("wait-2")))
        await until(lambda: len(pair.toy.begun) == 2)
        await pair.transport.close()

    assert write.result().kind is Kind.UNKNOWN_OUTCOME
    assert change.result().kind is Kind.UNKNOWN_OUTCOME
