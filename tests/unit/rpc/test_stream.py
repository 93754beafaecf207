"""The coalesced stream over real connections: coalescing, loss, several addresses, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import grpc
import pytest
import pytest_asyncio
from tests.support.servers.toy_service import (
    SERVICE,
    Served,
    call_in,
    failure,
    lookup,
    serving,
    stage,
    transport_to,
    until,
)

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client import operation_streams, stream_connection
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.server import stream_server
from tarn.rpc.wire.batch import BATCH_BYTES_MAX, Batch
from tarn.rpc.wire.errors import error_from_operation
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")


class Counted(Batch):
    """Records the number of operations or results in each message that is sent."""

    sizes: list[int]

    def encode(self) -> bytes:
        if self.count:
            type(self).sizes.append(self.count)
        return super().encode()


@pytest_asyncio.fixture(loop_scope="session")
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def transport(served: Served) -> AsyncIterator[GrpcTransport]:
    transport = transport_to(served.address)
    yield transport
    await transport.close()


async def read(transport: GrpcTransport, path: str, seconds: float = 10.0) -> bytes:
    result = await transport.operate(SERVICE, *lookup(path), call_in(seconds))
    assert isinstance(result, pb.LookupResult)
    return result.entry


async def write(transport: GrpcTransport, path: str, seconds: float = 10.0) -> None:
    await transport.operate(SERVICE, *stage(path), call_in(seconds))


async def test_operations_of_one_tick_travel_in_one_message(
    transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    await read(transport, "open the stream")

    class Sent(Counted):
        sizes: list[int] = []  # noqa: RUF012 - the count of this test

    class Answered(Counted):
        sizes: list[int] = []  # noqa: RUF012 - the count of this test

    monkeypatch.setattr(stream_connection, "Batch", Sent)
    monkeypatch.setattr(stream_server, "Batch", Answered)
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(read(transport, f"{number}"))

    assert Sent.sizes == [200]
    assert Answered.sizes == [200]


async def test_message_holds_at_most_256_operations(
    transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    await read(transport, "open the stream")

    class Sent(Counted):
        sizes: list[int] = []  # noqa: RUF012 - the count of this test

    monkeypatch.setattr(stream_connection, "Batch", Sent)
    async with asyncio.TaskGroup() as group:
        for number in range(600):
            group.create_task(read(transport, f"{number}"))

    assert Sent.sizes == [256, 256, 88]


async def test_operation_larger_than_a_message_is_invalid_and_harms_no_other(
    transport: GrpcTransport,
) -> None:
    large = pb.Stage(path="large", entry=bytes(BATCH_BYTES_MAX))
    async with asyncio.TaskGroup() as group:
        refused = group.create_task(failure(transport.operate(SERVICE, "stage", large, call_in())))
        other = group.create_task(read(transport, "other"))

    assert refused.result().kind is Kind.INVALID
    assert other.result() == b"other"


async def test_request_id_that_is_no_text_fails_its_caller_only(transport: GrpcTransport) -> None:
    await read(transport, "before")
    with pytest.raises(UnicodeEncodeError):
        await transport.operate(SERVICE, *lookup("a"), call_in(request_id="\udcff"))

    assert await read(transport, "after") == b"after"


async def test_large_operations_are_spread_over_messages(transport: GrpcTransport) -> None:
    size = BATCH_BYTES_MAX // 3
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            large = pb.Stage(path=f"{number}", entry=bytes(size))
            group.create_task(transport.operate(SERVICE, "stage", large, call_in()))


async def test_writes_in_flight_when_the_stream_is_lost_have_an_unknown_outcome(
    served: Served, transport: GrpcTransport
) -> None:
    async with asyncio.TaskGroup() as group:
        lost = group.create_task(failure(write(transport, "wait")))
        await until(lambda: served.toy.begun)
        await served.kill()

    assert lost.result().kind is Kind.UNKNOWN_OUTCOME


async def test_reads_in_flight_when_the_stream_is_lost_are_sent_again(
    served: Served, transport: GrpcTransport
) -> None:
    async with asyncio.TaskGroup() as group:
        again = group.create_task(read(transport, "wait"))
        await until(lambda: served.toy.begun)
        await served.kill()
        served.toy.release.set()
        await served.start()

    assert again.result() == b"wait"
    assert served.toy.begun == ["wait", "wait"]


async def test_operations_wait_for_a_server_that_comes_back(
    served: Served, transport: GrpcTransport
) -> None:
    await read(transport, "before")
    await served.kill()
    await until_noticed(transport)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read(transport, "read"))
        group.create_task(write(transport, "write"))
        await served.start()

    assert reading.result() == b"read"
    assert served.toy.ended == ["before", "read", "write"]


async def test_operation_that_no_server_took_was_surely_not_begun(
    served: Served, transport: GrpcTransport
) -> None:
    await read(transport, "before")
    await served.kill()
    await until_noticed(transport)

    assert (await failure(read(transport, "read", 0.2))).kind is Kind.UNAVAILABLE
    assert (await failure(write(transport, "write", 0.2))).kind is Kind.UNAVAILABLE


async def test_late_answer_is_dropped(served: Served, transport: GrpcTransport) -> None:
    assert (await failure(read(transport, "wait", 0.1))).kind is Kind.DEADLINE
    served.toy.release.set()

    assert await read(transport, "next") == b"next"


async def test_read_that_kills_every_server_is_given_up(
    served: Served, transport: GrpcTransport
) -> None:
    async with asyncio.TaskGroup() as group:
        given_up = group.create_task(failure(read(transport, "wait", 30.0)))
        for attempt in range(1, stream_connection.ATTEMPTS_MAX + 1):
            await until(lambda: len(served.toy.begun) == attempt)  # noqa: B023 - run at once
            await served.kill()
            if attempt < stream_connection.ATTEMPTS_MAX:
                await served.start()

    assert given_up.result().kind is Kind.UNAVAILABLE


async def test_load_is_shared_by_all_addresses() -> None:
    async with serving() as one, serving() as two:
        transport = transport_to(one.address, two.address)
        try:
            await until_both_streams_are_open(transport, one, two)
            counts = len(one.toy.begun), len(two.toy.begun)
            async with asyncio.TaskGroup() as group:
                for number in range(100):
                    group.create_task(read(transport, f"{number}"))
        finally:
            await transport.close()

    assert len(one.toy.begun) - counts[0] == 50
    assert len(two.toy.begun) - counts[1] == 50


async def test_slow_address_gets_less() -> None:
    async with serving() as slow, serving() as fast:
        transport = transport_to(slow.address, fast.address)
        try:
            await until_both_streams_are_open(transport, slow, fast)
            async with asyncio.TaskGroup() as group:
                stuck = [group.create_task(read(transport, "wait")) for _ in range(20)]
                await until(lambda: slow.toy.begun.count("wait") == 10)
                fast.toy.release.set()
                await until(lambda: sum(task.done() for task in stuck) == 10)
                before = len(slow.toy.begun)
                for number in range(50):
                    await read(transport, f"{number}")
                assert len(slow.toy.begun) == before
                slow.toy.release.set()
        finally:
            await transport.close()


async def test_the_death_of_one_address_affects_only_writes_sent_to_it() -> None:
    async with serving() as dying, serving() as living:
        transport = transport_to(dying.address, living.address)
        try:
            await until_both_streams_are_open(transport, dying, living)
            async with asyncio.TaskGroup() as group:
                reads = [group.create_task(read(transport, f"wait-{n}")) for n in range(10)]
                writes = [
                    group.create_task(outcome(write(transport, f"wait-{n}"))) for n in range(10)
                ]
                await until(lambda: len(dying.toy.begun) + len(living.toy.begun) >= 20)
                await dying.kill()
                living.toy.release.set()
            for number in range(20):
                await read(transport, f"after-{number}")
        finally:
            await transport.close()

    assert [task.result() for task in reads] == [f"wait-{n}".encode() for n in range(10)]
    kinds = {error.kind for task in writes if (error := task.result())}
    assert kinds == {Kind.UNKNOWN_OUTCOME}
    assert 1 <= sum(task.result() is None for task in writes) <= 9


async def test_server_that_drains_loses_no_operation(
    served: Served, transport: GrpcTransport
) -> None:
    async with asyncio.TaskGroup() as group:
        before = group.create_task(outcome(write(transport, "wait")))
        await until(lambda: served.toy.begun)
        assert served.server is not None
        draining = group.create_task(served.server.drain(5.0))
        await asyncio.sleep(0.05)
        after = group.create_task(outcome(write(transport, "after")))
        await asyncio.sleep(0.05)
        assert not draining.done()
        served.toy.release.set()
        assert await draining
        await served.kill()
        await served.start()

    assert before.result() is None
    assert after.result() is None
    assert served.toy.ended == ["wait", "after"]


async def test_server_that_drains_under_load_leaves_no_outcome_unknown(
    served: Served, transport: GrpcTransport
) -> None:
    stop = asyncio.Event()
    outcomes: list[TarnError | None] = []

    async def keep_writing(writer: int) -> None:
        count = 0
        while not stop.is_set():
            outcomes.append(await outcome(write(transport, f"{writer}/{count}")))
            count += 1

    async with asyncio.TaskGroup() as group:
        for writer in range(20):
            group.create_task(keep_writing(writer))
        for _ in range(3):
            await until(lambda: len(served.toy.ended) > 200)
            assert served.server is not None
            assert await served.server.drain(5.0)
            await served.kill()
            served.toy.ended.clear()
            await served.start()
        await until(lambda: len(served.toy.ended) > 200)
        stop.set()

    assert set(outcomes) == {None}
    assert len(served.toy.begun) == len(set(served.toy.begun)) == len(outcomes)


async def test_callers_beyond_the_bound_are_refused_at_once(
    served: Served, transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_streams, "OUTSTANDING_MAX", 10)
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(read(transport, "wait"))
        await until(lambda: len(served.toy.begun) == 10)

        assert (await failure(read(transport, "more"))).kind is Kind.EXHAUSTED

        served.toy.release.set()
    assert await read(transport, "later") == b"later"


async def test_window_bounds_what_is_sent_and_unanswered(
    served: Served, transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_connection, "WINDOW", 5)
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(read(transport, "wait"))
        await until(lambda: len(served.toy.begun) == 5)
        await asyncio.sleep(0.05)
        assert len(served.toy.begun) == 5
        served.toy.release.set()

    assert len(served.toy.ended) == 20


async def test_server_does_not_read_more_than_it_can_answer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_server, "OPEN_MAX", 10)
    async with grpc.aio.insecure_channel(served.address) as channel:
        rpc = channel.stream_stream(
            "/tarn.graveler.v1.EntryService/Operate",
            request_serializer=pb.OperateRequest.SerializeToString,
            response_deserializer=pb.OperateResponse.FromString,
        )()
        for number in range(40):
            operation = pb.Operation(lookup=lookup("wait")[1])
            operation.header.operation_id = number + 1
            await rpc.write(pb.OperateRequest(operations=[operation]))
        await rpc.done_writing()
        await asyncio.sleep(0.1)
        assert len(served.toy.begun) == 10

        served.toy.release.set()
        answered = {result.operation_id async for batch in rpc for result in batch.results}

    assert answered == set(range(1, 41))


async def test_an_operation_that_the_server_does_not_know_is_unimplemented(served: Served) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        rpc = channel.stream_stream(
            "/tarn.graveler.v1.EntryService/Operate",
            request_serializer=pb.OperateRequest.SerializeToString,
            response_deserializer=pb.OperateResponse.FromString,
        )()
        operation = pb.Operation()
        operation.header.operation_id = 1
        await rpc.write(pb.OperateRequest(operations=[operation]))
        await rpc.done_writing()
        (result,) = [result async for batch in rpc for result in batch.results]
    assert error_from_operation(result.error).reason is Reason.NOT_IMPLEMENTED
    assert served.toy.begun == []


async def test_read_is_answered_while_another_waits(
    served: Served, transport: GrpcTransport
) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(read(transport, "wait"))
        await until(lambda: served.toy.begun)
        assert await read(transport, "quick") == b"quick"
        served.toy.release.set()


class LostClient:
    """A client that disconnects before it gets a result, as grpc.aio sometimes shows it to the server."""

    def __init__(self) -> None:
        self.received = [
            pb.OperateRequest(operations=[pb.Operation(lookup=lookup("a")[1])]).SerializeToString()
        ]

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def send_initial_metadata(self, metadata: object) -> None:
        pass

    async def read(self) -> object:
        if self.received:
            return self.received.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def write(self, message: bytes) -> None:
        raise grpc.aio.InternalError


async def test_client_that_disconnects_before_its_result_is_not_an_error(served: Served) -> None:
    assert served.server is not None
    (streams,) = served.server._streams
    slot = await served.server._slots.enter("peer", "", None)
    async with asyncio.timeout(5.0):
        await streams.answer(slot, LostClient())  # type: ignore[arg-type]
    assert served.toy.ended == ["a"]


async def until_noticed(transport: GrpcTransport) -> None:
    """The client knows that its stream is lost."""
    (streams,) = transport._streams.values()
    await until(lambda: not any(each.is_open for each in streams._connections.values()))


async def until_both_streams_are_open(transport: GrpcTransport, one: Served, two: Served) -> None:
    async with asyncio.timeout(5.0):
        while not (one.toy.begun and two.toy.begun):
            async with asyncio.TaskGroup() as group:
                for _ in range(4):
                    group.create_task(read(transport, "open"))


async def outcome(work: Awaitable[None]) -> TarnError | None:
    try:
        await work
    except TarnError as error:
        return error
    return None
