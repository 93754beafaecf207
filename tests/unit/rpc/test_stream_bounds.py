"""The bounds of coalesced streams, which hold before anything is known of their clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio
from tests.support.servers.toy_service import (
    SERVICE,
    TOKEN,
    Served,
    call_in,
    lookup,
    serving,
    transport_to,
    until,
)

from tarn.core.errors import Kind, TarnError
from tarn.rpc.server.grpc_server import ServerConfig
from tarn.rpc.server.work_room import WorkRoom, WorkRooms
from tarn.rpc.wire.batch import BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX
from tarn.rpc.wire.errors import error_from_trailers
from tarn_proto.common.v1.operation_pb2 import OperationHeader
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATE = "/tarn.graveler.v1.EntryService/Operate"
EMPTY = b"\x0a\x00"

Stream = grpc.aio.StreamStreamCall[bytes, bytes]


@pytest_asyncio.fixture(loop_scope="session")
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def channel(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(served.address) as channel:
        yield channel


async def refusal(channel: grpc.aio.Channel, message: bytes) -> TarnError:
    """Returns the error with which a stream ends that sends a message."""
    stream: Stream = channel.stream_stream(OPERATE)()
    await stream.write(message)
    async with asyncio.timeout(10.0):
        error = error_from_trailers(await stream.trailing_metadata())
    assert error is not None
    return error


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (EMPTY * 300_000, "no batch of at most 256 operations"),
        (EMPTY * 257, "a message has 257 operations; at most 256 are allowed"),
        (EMPTY * (BATCH_BYTES_MAX + 2000), "larger than 1048576"),
        # Tags that are longer than they need to be, which parsers accept.
        (b"\x8a\x00\x00" * 300, "a message has 300 operations"),
        (b"\x8a\x00\x00" * 100_000, "no batch of at most 256 operations"),
        (b"\x0a\x05a", "a message is no OperateRequest"),
    ],
)
async def test_a_message_beyond_a_bound_is_refused_as_a_whole(
    served: Served, channel: grpc.aio.Channel, message: bytes, text: str
) -> None:
    error = await refusal(channel, message)
    assert error.kind is Kind.INVALID
    assert text in error.message
    assert served.toy.begun == []


async def test_other_streams_go_on_beside_a_refused_one(
    served: Served, channel: grpc.aio.Channel
) -> None:
    transport = transport_to(served.address)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(transport.operate(SERVICE, *lookup("wait"), call_in()))
        await until(lambda: served.toy.begun)
        await refusal(channel, EMPTY * 300_000)
        served.toy.release.set()
    await transport.close()
    result = waiting.result()
    assert isinstance(result, pb.LookupResult)
    assert result.entry == b"wait"


def batch(count: int, token: str = "") -> bytes:
    """Returns a message of operations that wait."""
    header = OperationHeader(operation_id=1, caller_token=token)
    operation = pb.Operation(header=header, lookup=lookup("wait")[1])
    return pb.OperateRequest(operations=[operation] * count).SerializeToString()


async def idle_for_now() -> None:
    """Lets the server do all that it can do."""
    for _ in range(20):
        await asyncio.sleep(0.005)


async def test_a_stream_that_proved_nothing_has_fewer_operations_at_once(
    served: Served, channel: grpc.aio.Channel
) -> None:
    stream: Stream = channel.stream_stream(OPERATE)()
    known: Stream = channel.stream_stream(OPERATE)()
    for _ in range(8):
        await stream.write(batch(BATCH_OPERATIONS_MAX))
    await until(lambda: served.toy.begun)
    await idle_for_now()
    assert len(served.toy.begun) == BATCH_OPERATIONS_MAX

    served.toy.begun.clear()
    for _ in range(8):
        await known.write(batch(BATCH_OPERATIONS_MAX, TOKEN))
    await until(lambda: len(served.toy.begun) == 8 * BATCH_OPERATIONS_MAX)
    served.toy.release.set()


async def test_operations_are_bounded_in_sum_over_all_streams() -> None:
    config = ServerConfig("127.0.0.1:0", operations_max=8 * 100)
    async with (
        serving(config) as served,
        grpc.aio.insecure_channel(served.address) as channel,
    ):
        streams: list[Stream] = [channel.stream_stream(OPERATE)() for _ in range(5)]
        for stream in streams:
            await stream.write(batch(40))
        await until(lambda: len(served.toy.begun) == 80)
        await idle_for_now()
        assert len(served.toy.begun) == 80

        known: Stream = channel.stream_stream(OPERATE)()
        for _ in range(10):
            await known.write(batch(90, TOKEN))
        await until(lambda: len(served.toy.begun) == 80 + 8 * 90)
        await idle_for_now()
        assert len(served.toy.begun) == 80 + 8 * 90

        served.toy.release.set()
        await until(lambda: len(served.toy.ended) == 200 + 900)
        assert served.server is not None
        rooms = served.server._rooms
        await until(lambda: not rooms.authenticated.operations)
    for room in (rooms.authenticated, rooms.unauthenticated):
        assert (room.operations, room.size_bytes) == (0, 0)


async def test_operations_of_streams_that_are_gone_count_until_they_end(
    served: Served, channel: grpc.aio.Channel
) -> None:
    stream: Stream = channel.stream_stream(OPERATE)()
    await stream.write(batch(40))
    await until(lambda: len(served.toy.begun) == 40)
    stream.cancel()
    assert served.server is not None
    room = served.server._rooms.unauthenticated
    await idle_for_now()
    assert room.operations == 40
    served.toy.release.set()
    await until(lambda: (room.operations, room.size_bytes) == (0, 0))


async def test_large_requests_of_unary_calls_are_bounded_in_sum() -> None:
    config = ServerConfig("127.0.0.1:0", operations_bytes_max=300_000)
    async with serving(config) as served:
        transport = transport_to(served.address)

        async def listed(path: str) -> Kind | None:
            request = pb.ListEntriesRequest(prefix=path)
            try:
                await transport.unary(SERVICE, "ListEntries", request, call_in())
            except TarnError as error:
                return error.kind
            return None

        async with asyncio.TaskGroup() as group:
            first = group.create_task(listed("wait" + "x" * 200_000))
            await until(lambda: served.toy.begun)
            second = await listed("x" * 200_000)
            small = await listed("x" * 60_000)
            served.toy.release.set()
        again = await listed("x" * 200_000)
        await transport.close()
    assert (first.result(), second, small, again) == (None, Kind.EXHAUSTED, None, None)


async def test_room_goes_to_those_who_asked_first() -> None:
    room, order = WorkRoom(10, 100), list[str]()
    await room.take(8, 10)

    async def take(name: str, operations: int) -> None:
        await room.take(operations, 10)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        large = group.create_task(take("large", 9))
        await asyncio.sleep(0)
        group.create_task(take("small", 1))
        await asyncio.sleep(0)
        assert order == []  # the small one fits, and waits behind the large one
        assert not room.take_now(1, 1)
        room.give(8, 10)
    assert order == ["large", "small"]
    assert large.done()
    assert (room.operations, room.size_bytes) == (10, 20)


async def test_a_wait_for_room_that_is_cancelled_leaves_none_taken() -> None:
    room = WorkRoom(10, 100)
    await room.take(10, 10)
    order: list[str] = []

    async def take(name: str, operations: int) -> None:
        await room.take(operations, 10)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        first = group.create_task(take("first", 10))
        granted = group.create_task(take("granted", 2))
        last = group.create_task(take("last", 3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        room.give(10, 10)
        granted.cancel()  # at the moment in which it gets its room
    assert order == ["last"]
    assert last.done()
    assert (room.operations, room.size_bytes) == (3, 10)


async def test_bytes_are_bounded_and_a_message_beyond_all_room_gets_it_alone() -> None:
    room = WorkRoom(10, 100)
    assert room.take_now(1, 500)
    assert not room.take_now(1, 1)
    room.give(1, 500)
    assert room.take_now(1, 60)
    assert not room.take_now(1, 60)
    assert WorkRooms(80, 800).unauthenticated.take_now(10, 100)
