from __future__ import annotations

import asyncio

from google.protobuf.message import Message
from tests.support.clock import ManualClock
from tests.support.servers.toy_service import failure, until

from tarn.core.errors import Kind, TarnError
from tarn.rpc.process.log import REQUEST_ID
from tarn.rpc.server.inflight import OVERRUN_SECONDS, InFlight
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

ASKED = pb.ListEntriesRequest()


async def test_handler_that_overruns_its_deadline_is_cancelled() -> None:
    clock = ManualClock()
    in_flight = InFlight(clock)
    ended: list[str] = []

    async def hang(_request: Message, _call: Call) -> Message:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return ASKED

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(failure(in_flight.change(hang, ASKED, Call("r", "", 5.0))))
        await asyncio.sleep(0)
        clock.advance(6.0)
    assert waiting.result().kind is Kind.UNKNOWN_OUTCOME
    assert ended == []

    clock.advance(OVERRUN_SECONDS)
    await until(lambda: ended == ["cancelled"])
    await in_flight.close()


async def test_request_id_is_known_inside_a_handler_and_not_after_it() -> None:
    in_flight = InFlight(ManualClock())

    async def ask(_request: Message, _call: Call) -> Message:
        return pb.ListEntriesRequest(prefix=REQUEST_ID.get())

    for run in (in_flight.read, in_flight.change):
        answer = await run(ask, ASKED, Call("r7", "", 5.0))
        assert isinstance(answer, pb.ListEntriesRequest)
        assert answer.prefix == "r7"
        assert REQUEST_ID.get() == ""
    await in_flight.close()


async def test_caller_token_is_not_in_the_text_of_a_call() -> None:
    assert "hunter2" not in repr(Call("r", "hunter2", 1.0))


async def test_drain_waits_for_changes_and_says_when_they_take_too_long() -> None:
    in_flight = InFlight(ManualClock())
    release = asyncio.Event()

    async def wait(_request: Message, _call: Call) -> Message:
        await release.wait()
        return ASKED

    outcomes: list[Message | TarnError] = []
    in_flight.begin(wait, ASKED, Call("r", "", 5.0), outcomes.append)

    assert not await in_flight.drain(0.01)
    release.set()
    assert await in_flight.drain(5.0)
    assert outcomes == [ASKED]
    await in_flight.close()


async def test_a_read_may_end_with_the_tick_and_then_wait_for_longer() -> None:
    """Only the second wait has a deadline."""
    clock = ManualClock()
    in_flight = InFlight(clock)
    loop = asyncio.get_running_loop()

    async def wait(request: Message, _call: Call) -> Message:
        assert isinstance(request, pb.ListEntriesRequest)
        soon: asyncio.Future[None] = loop.create_future()
        soon.ends_with_tick = True  # type: ignore[attr-defined]
        loop.call_soon(soon.set_result, None)
        await soon
        if request.prefix:
            await asyncio.Event().wait()
        return ASKED

    assert await in_flight.read(wait, ASKED, Call("r", "", 5.0)) is ASKED
    longer = pb.ListEntriesRequest(prefix="a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(failure(in_flight.read(wait, longer, Call("r", "", 5.0))))
        for _ in range(3):
            await asyncio.sleep(0)
        clock.advance(6.0)
    assert waiting.result().kind is Kind.DEADLINE
    await in_flight.close()


async def test_a_read_that_ends_with_the_tick_can_be_cancelled_before() -> None:
    in_flight = InFlight(ManualClock())
    ended: list[str] = []

    async def wait(_request: Message, _call: Call) -> Message:
        soon: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        soon.ends_with_tick = True  # type: ignore[attr-defined]
        try:
            await soon
        finally:
            ended.append("cancelled")
        return ASKED

    task = asyncio.ensure_future(in_flight.read(wait, ASKED, Call("r", "", 5.0)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended == ["cancelled"]
    await in_flight.close()
