"""Slots: callers without a valid token share some, and never those of users and services."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.support.servers.toy_service import (
    SERVICE,
    TOKEN,
    Served,
    call_in,
    failure,
    lookup,
    serving,
    transport_to,
    until,
)

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock
from tarn.rpc.server import slots as slots_module
from tarn.rpc.server import stream_server
from tarn.rpc.server.grpc_server import ServerConfig
from tarn.rpc.server.health import Health
from tarn.rpc.server.health_server import READY, HealthServer
from tarn.rpc.server.slots import SlotLimits, Slots
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.metadata import CHANNEL_OPTIONS
from tarn.telemetry.meters import Meters
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATE = "/tarn.graveler.v1.EntryService/Operate"
LIST = "/tarn.graveler.v1.EntryService/ListEntries"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"

SHARE = 4
LIMITS = SlotLimits(authenticated_max=4, unauthenticated_max=SHARE, watches_max=2)

Opened = grpc.aio.StreamStreamCall[bytes, bytes]


@asynccontextmanager
async def served_with(limits: SlotLimits = LIMITS) -> AsyncIterator[Served]:
    async with serving(ServerConfig("127.0.0.1:0", slots=limits)) as served:
        yield served


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[GrpcTransport]:
    transport = transport_to(served.address)
    yield transport
    await transport.close()


@contextmanager
def idle(channel: grpc.aio.Channel, path: str, count: int) -> Iterator[Sequence[Opened]]:
    """Rpcs whose headers are sent, and nothing else."""
    calls: list[Opened] = [channel.stream_stream(path)() for _ in range(count)]
    yield calls
    for call in calls:
        call.cancel()


async def end_of(call: Opened) -> grpc.StatusCode:
    """Returns the status with which an rpc ends."""
    async with asyncio.timeout(10.0):
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code()


def unauthenticated(served: Served) -> int:
    assert served.server is not None
    return len(served.server._slots._unauthenticated)


async def read(transport: GrpcTransport, path: str, token: str = TOKEN) -> bytes:
    call = Call("request", token, call_in().deadline)
    result = await transport.operate(SERVICE, *lookup(path), call)
    assert isinstance(result, pb.LookupResult)
    return result.entry


async def listed(transport: GrpcTransport, path: str, token: str = TOKEN) -> list[str]:
    call = Call("request", token, call_in().deadline)
    page = await transport.unary(SERVICE, "ListEntries", pb.ListEntriesRequest(prefix=path), call)
    assert isinstance(page, pb.ListEntriesResponse)
    return [*page.paths]


@pytest.mark.parametrize("path", [OPERATE, LIST, CHECK])
async def test_idle_rpcs_without_a_token_leave_callers_with_one_alone(path: str) -> None:
    async with (
        served_with() as served,
        grpc.aio.insecure_channel(served.address) as channel,
        connected(served) as transport,
    ):
        with idle(channel, path, 3 * SHARE) as calls:
            await until(lambda: sum(call.done() for call in calls) == 2 * SHARE)
            ended = {await call.code() for call in calls if call.done()}
            assert await read(transport, "a") == b"a"
            assert await listed(transport, "a") == ["a"]
            assert unauthenticated(served) == SHARE
    assert ended == {grpc.StatusCode.RESOURCE_EXHAUSTED}


@pytest.mark.parametrize("path", [OPERATE, LIST])
async def test_new_callers_get_in_among_idle_rpcs_and_stay(path: str) -> None:
    """As services do at their start, and when they connect again: the server knows no token of theirs yet."""
    async with (
        served_with() as served,
        grpc.aio.insecure_channel(served.address) as channel,
        connected(served) as streams,
        connected(served) as unary,
    ):
        with idle(channel, path, SHARE):
            await until(lambda: unauthenticated(served) == SHARE)
            assert await read(streams, "a", "token of a service") == b"a"
            assert await listed(unary, "a", "another token") == ["a"]
            with idle(channel, path, 2 * SHARE):
                assert await read(streams, "b", "token of a service") == b"b"
                assert await listed(unary, "b", "another token") == ["b"]
    begun = [call.caller_token for call in served.toy.calls]
    assert begun == ["token of a service", "another token"] * 2


async def test_the_connection_with_most_idle_rpcs_loses_one_first() -> None:
    async with (
        served_with() as served,
        grpc.aio.insecure_channel(served.address, options=CHANNEL_OPTIONS) as quiet,
        grpc.aio.insecure_channel(served.address, options=CHANNEL_OPTIONS) as hoarder,
    ):
        with idle(quiet, OPERATE, 1) as (first,):
            await until(lambda: unauthenticated(served) == 1)
            with idle(hoarder, OPERATE, SHARE + 3) as calls:
                await until(lambda: sum(call.done() for call in calls) == 4)
                assert not first.done()


class _SlowToOpen:
    """The part of a servicer's context that an idle stream uses. Its initial metadata are sent when a test says so."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.has_sent = False

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def send_initial_metadata(self, _: object) -> None:
        self.begun.set()
        await self.go_on.wait()
        self.has_sent = True


async def test_a_slot_that_is_lost_while_the_stream_opens_leaves_an_open_stream_to_refuse() -> None:
    """grpc cannot send a status while it sends the initial metadata: the client would wait for ever."""
    async with served_with() as served:
        assert served.server is not None
        context = _SlowToOpen()
        streams = served.server._streams[0]
        with await streams.slots.enter("a", "", None) as slot:
            answer = asyncio.ensure_future(streams.answer(slot, cast("Any", context)))
            await context.begun.wait()
            slot.take_away(TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, "the slot is wanted"))
            await asyncio.wait([answer], timeout=0.05)
            assert not answer.done()
            context.go_on.set()
            with pytest.raises(TarnError, match="the slot is wanted"):
                await answer
    assert context.has_sent


async def test_a_stream_that_proved_its_caller_keeps_its_slot() -> None:
    async with (
        served_with() as served,
        grpc.aio.insecure_channel(served.address) as channel,
        connected(served) as transport,
    ):
        assert await read(transport, "a", "a token that is new here") == b"a"
        await until(lambda: unauthenticated(served) == 0)
        with idle(channel, OPERATE, 3 * SHARE):
            await until(lambda: unauthenticated(served) == SHARE)
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(read(transport, "wait", "a token that is new here"))
                await until(lambda: "wait" in served.toy.begun)
                served.toy.release.set()
    assert waiting.result() == b"wait"


async def test_refused_operations_prove_no_caller() -> None:
    async with served_with() as served, connected(served) as transport:
        for kind in (Kind.UNAUTHENTICATED, Kind.DENIED, Kind.INVALID, Kind.UNAVAILABLE):
            served.toy.error.kind = kind
            await failure(read(transport, "fail", "a token that is new here"))
        assert unauthenticated(served) == 1
        served.toy.error.kind = Kind.NOT_FOUND
        await failure(read(transport, "fail", "a token that is new here"))
        assert unauthenticated(served) == 0


async def test_rpcs_without_a_token_that_work_are_not_taken_away() -> None:
    async with (
        served_with() as served,
        connected(served) as strangers,
        connected(served) as transport,
        asyncio.TaskGroup() as group,
    ):
        working = [group.create_task(listed(strangers, "wait", "")) for _ in range(SHARE)]
        await until(lambda: len(served.toy.begun) == SHARE)
        queued = group.create_task(listed(strangers, "queued", ""))
        assert await listed(transport, "a") == ["a"]
        assert served.toy.begun == ["wait"] * SHARE + ["a"]
        served.toy.release.set()
    assert [task.result() for task in working] == [["wait"]] * SHARE
    assert queued.result() == ["queued"]


async def test_the_queue_for_the_share_is_bounded_and_waits_for_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots_module, "_QUEUE_SECONDS", 0.01)
    monkeypatch.setattr(slots_module, "_QUEUED_PER_SLOT", 2)
    slots = Slots(SlotLimits(unauthenticated_max=1), SystemClock(), Meters())
    busy = await slots.enter("a", "", None)
    async with asyncio.TaskGroup() as group:
        queued = [group.create_task(failure(slots.enter("b", "", None))) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await failure(slots.enter("c", "", None))).kind is Kind.EXHAUSTED
    assert [task.result().kind for task in queued] == [Kind.EXHAUSTED] * 2
    busy.leave()
    assert not slots._queue
    (await slots.enter("d", "", None)).leave()
    slots.close()


async def test_a_caller_that_leaves_the_queue_takes_no_slot() -> None:
    slots = Slots(SlotLimits(unauthenticated_max=1), SystemClock(), Meters())
    busy = await slots.enter("a", "", None)
    async with asyncio.TaskGroup() as group:
        queued = [group.create_task(slots.enter(f"{number}", "", None)) for number in range(3)]
        await asyncio.sleep(0)
        queued[0].cancel()
        await asyncio.sleep(0)
        busy.leave()
        queued[1].cancel()  # at the moment in which it gets its slot
    assert [task.cancelled() for task in queued] == [True, True, False]
    assert [*slots._unauthenticated] == [queued[2].result()]
    slots.close()


async def test_a_token_that_was_accepted_is_known_afterwards() -> None:
    async with served_with() as served, connected(served) as transport:
        served.toy.release.clear()
        await listed(transport, "a", "a token that is new here")
        async with asyncio.TaskGroup() as group:
            group.create_task(listed(transport, "wait", "a token that is new here"))
            await until(lambda: "wait" in served.toy.begun)
            assert unauthenticated(served) == 0
            served.toy.release.set()


async def test_slots_are_free_when_clients_have_left() -> None:
    async with served_with() as served, connected(served) as transport:
        async with grpc.aio.insecure_channel(served.address) as channel:
            for path in (OPERATE, LIST, CHECK, WATCH):
                with idle(channel, path, 1):
                    await asyncio.sleep(0)
        await listed(transport, "a", "")
        await until(lambda: unauthenticated(served) == 0)
        assert served.server is not None
        slots = served.server._slots
        await until(lambda: not slots._watches and not slots._authenticated)


async def test_a_request_that_does_not_arrive_is_given_up() -> None:
    async with (
        served_with(SlotLimits(message_s=0.01)) as served,
        grpc.aio.insecure_channel(served.address) as channel,
    ):
        known = (("authorization", f"Bearer {TOKEN}"),)
        for metadata in ((), known):
            call: Opened = channel.stream_stream(LIST)(metadata=metadata)
            assert await end_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED
        with idle(channel, WATCH, 1) as (watch,):
            assert await end_of(watch) is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stream_without_proof_of_its_caller_is_asked_to_stop_and_then_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_server, "_GRACE_SECONDS", 0.0)
    async with (
        served_with(SlotLimits(idle_s=0.01)) as served,
        grpc.aio.insecure_channel(served.address) as channel,
    ):
        with idle(channel, OPERATE, 1) as (call,):
            asked = await call.read()
            code = await end_of(call)
    assert isinstance(asked, bytes)
    assert pb.OperateResponse.FromString(asked) == pb.OperateResponse(
        results=[pb.OperationResult()]
    )
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_service_whose_idle_stream_is_ended_loses_no_operation() -> None:
    async with served_with(SlotLimits(idle_s=0.01)) as served, connected(served) as transport:
        served.toy.error.kind = Kind.DENIED
        for number in range(3):  # of a service that proves nothing
            await failure(read(transport, "fail", "a token that is new here"))
            await until(lambda: unauthenticated(served) == 0)
            assert len(served.toy.begun) == number + 1
        assert await read(transport, "a") == b"a"


async def test_watches_of_health_are_counted_apart() -> None:
    async with (
        served_with() as served,
        grpc.aio.insecure_channel(served.address) as channel,
        connected(served) as transport,
    ):
        watch: grpc.aio.UnaryStreamMultiCallable[HealthCheckRequest, HealthCheckResponse]
        watch = channel.unary_stream(
            WATCH, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )
        watches = [watch(HealthCheckRequest()) for _ in range(2)]
        for each in watches:
            assert await status_of(each) == HealthCheckResponse.SERVING
        assert await watch(HealthCheckRequest()).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        check: grpc.aio.UnaryUnaryMultiCallable[HealthCheckRequest, HealthCheckResponse]
        check = channel.unary_unary(
            CHECK, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )
        assert (await check(HealthCheckRequest())).status == HealthCheckResponse.SERVING
        assert await listed(transport, "a") == ["a"]
        watches[0].cancel()
        served_slots = served.server._slots if served.server is not None else None
        assert served_slots is not None
        await until(lambda: len(served_slots._watches) == 1)
        assert await status_of(watch(HealthCheckRequest())) == HealthCheckResponse.SERVING


async def status_of(
    watch: grpc.aio.UnaryStreamCall[HealthCheckRequest, HealthCheckResponse],
) -> object:
    answer = await watch.read()
    assert isinstance(answer, HealthCheckResponse)
    return answer.status


class DeafClient:
    """A client that asks to watch, and reads nothing."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def read(self) -> bytes:
        return HealthCheckRequest().SerializeToString()

    async def write(self, message: object) -> None:
        assert isinstance(message, HealthCheckResponse)
        self.asked.set()
        await asyncio.Event().wait()


async def test_a_watcher_that_does_not_read_keeps_no_server_from_stopping() -> None:
    slots = Slots(LIMITS, SystemClock(), Meters())
    health = Health(slots)
    health.set("", is_serving=True)
    client = DeafClient()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(health._watch(None, client))  # type: ignore[arg-type]
        await client.asked.wait()
        health.stop()
        health.set("", is_serving=True)
        watching.cancel()
    assert health._statuses == {"": HealthCheckResponse.NOT_SERVING}
    slots.close()


@asynccontextmanager
async def closed_at_the_end(server: HealthServer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await server.close()


async def test_probes_are_answered_beside_strangers_that_fill_the_port_of_health() -> None:
    server = HealthServer("127.0.0.1:0", SystemClock())
    address = await server.start()
    server.set_ready(is_ready=True)
    async with (
        closed_at_the_end(server),
        grpc.aio.insecure_channel(address) as hostile,
        grpc.aio.insecure_channel(address) as probe,
    ):
        check: grpc.aio.UnaryUnaryMultiCallable[HealthCheckRequest, HealthCheckResponse]
        check = probe.unary_unary(
            CHECK, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )
        with idle(hostile, CHECK, 100), idle(hostile, WATCH, 100) as watches:
            # On a slow machine it may come when the first ones have been ended for being late, and be late itself.
            late = grpc.StatusCode.DEADLINE_EXCEEDED
            assert await end_of(watches[16]) in (grpc.StatusCode.RESOURCE_EXHAUSTED, late)
            answer = await check(HealthCheckRequest(service=READY), timeout=10.0)
    assert answer.status == HealthCheckResponse.SERVING


async def test_callers_with_a_token_have_a_bound_too() -> None:
    async with (
        served_with() as served,
        connected(served) as transport,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(4):
            group.create_task(listed(transport, "wait"))
        await until(lambda: len(served.toy.begun) == 4)
        refused = await failure(listed(transport, "a"))
        served.toy.release.set()
    assert refused.kind is Kind.EXHAUSTED


async def test_streams_of_one_caller_do_not_grow_beyond_the_bound_by_proving_it() -> None:
    """The proof takes a slot of authenticated callers; without one, the stream stays in the share of the others."""
    clock = SystemClock()
    slots = Slots(SlotLimits(authenticated_max=1, unauthenticated_max=2), clock, Meters())
    taken = await slots.enter("a", TOKEN, lambda _token: True)
    slot = await slots.enter("b", "", None)
    slot.authenticate("token")
    assert not slot.is_authenticated
    taken.leave()
    slot.authenticate("token")
    assert slot.is_authenticated
    slot.leave()
    slot.leave()
    assert (slots._authenticated, len(slots._unauthenticated)) == (0, 0)
    slots.close()


async def test_a_long_call_leaves_the_share_when_its_token_is_accepted() -> None:
    slots = Slots(SlotLimits(unauthenticated_max=1), SystemClock(), Meters())
    accepted: set[str] = set()
    long = await slots.enter("a", "token", accepted.__contains__)
    accepted.add("token")
    await slots.enter("b", "", None)
    assert long.is_authenticated
    slots.close()


@pytest.mark.parametrize("path", ["fail", "a"])
@pytest.mark.parametrize("token", ["", TOKEN])
async def test_nothing_keeps_a_request_when_its_rpc_has_ended(
    path: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a collection of garbage: large requests that were refused would fill the memory until the next one."""
    async with served_with() as served, connected(served) as transport:
        served.toy.error.kind = Kind.UNAUTHENTICATED
        served.toy.error.with_traceback(None)
        call = Call("request", token, call_in().deadline)
        request = pb.ListEntriesRequest(prefix=path)
        kept: list[weakref.ref[object]] = []
        unwatched = served.toy.ListEntries

        async def watched(request: pb.ListEntriesRequest, call: Call) -> pb.ListEntriesResponse:
            marker = Marker()
            kept.append(weakref.ref(marker))
            request_and_marker = (request, marker)
            return await unwatched(request_and_marker[0], call)

        assert served.server is not None
        await served.kill()
        monkeypatch.setattr(served.toy, "ListEntries", watched)
        await served.start()
        gc.disable()
        try:
            with suppress(TarnError):
                await transport.unary(SERVICE, "ListEntries", request, call)
            await until(lambda: [each() for each in kept] == [None])
        finally:
            gc.enable()


class Marker:
    """Stands for a request in the frame of its handler."""
