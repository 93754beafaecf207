"""Which calls are repeated, and names that stand for changing replicas."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.support.servers.toy_service import (
    SERVICE,
    call_in,
    failure,
    lookup,
    serving,
    transport_to,
    until,
)

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client import grpc_transport
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

LIST = pb.ListEntriesRequest(prefix="fail")
UNSTAGE = pb.UnstageEntriesRequest(paths=["fail"])


@pytest.mark.parametrize("kind", Kind)
async def test_only_unavailable_is_tried_again(kind: Kind) -> None:
    async with serving() as served:
        served.toy.error = TarnError(kind, Reason.INTERNAL, "no")
        transport = transport_to(served.address)
        for method, request in (("ListEntries", LIST), ("UnstageEntries", UNSTAGE)):
            served.toy.begun.clear()
            error = await failure(transport.unary(SERVICE, method, request, call_in()))
            assert error.kind is kind
            assert len(served.toy.begun) == (3 if kind is Kind.UNAVAILABLE else 1)
        await transport.close()


async def test_call_that_found_no_server_was_surely_not_begun() -> None:
    async with serving() as served:
        address = served.address
    transport = transport_to(address)
    for method, request in (("ListEntries", LIST), ("UnstageEntries", UNSTAGE)):
        work = transport.unary(SERVICE, method, request, call_in(0.3))
        assert (await failure(work)).kind is Kind.UNAVAILABLE
    await transport.close()


async def test_connection_lost_under_a_change_leaves_its_outcome_unknown() -> None:
    async with serving() as served:
        transport = transport_to(served.address)
        request = pb.UnstageEntriesRequest(paths=["wait"])
        async with asyncio.TaskGroup() as group:
            work = transport.unary(SERVICE, "UnstageEntries", request, call_in())
            lost = group.create_task(failure(work))
            await until(lambda: served.toy.begun)
            await served.kill()
        await transport.close()

    assert lost.result().kind is Kind.UNKNOWN_OUTCOME


async def test_connection_lost_under_a_read_is_made_good_by_another_attempt() -> None:
    async with serving() as served:
        transport = transport_to(served.address)
        request = pb.ListEntriesRequest(prefix="wait")
        async with asyncio.TaskGroup() as group:
            page = group.create_task(transport.unary(SERVICE, "ListEntries", request, call_in()))
            await until(lambda: served.toy.begun)
            await served.kill()
            served.toy.release.set()
            await served.start()
        await transport.close()

    assert isinstance(page.result(), pb.ListEntriesResponse)


async def test_unary_calls_go_to_the_address_that_is_there() -> None:
    async with serving() as gone, serving() as there:
        await gone.kill()
        transport = transport_to(gone.address, there.address)
        for _ in range(10):
            await transport.unary(SERVICE, "ListEntries", pb.ListEntriesRequest(), call_in())
        await transport.close()

    assert len(there.toy.begun) == 10


async def test_replicas_come_and_go_with_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as first, serving() as second:
        found = {first.address: "graveler"}

        async def look_up(addresses: object) -> dict[str, str]:
            assert addresses == ("graveler:7001",)
            return dict(found)

        monkeypatch.setattr(grpc_transport, "resolve", look_up)
        monkeypatch.setattr(grpc_transport, "_RESOLVE_SECONDS", 0.02)
        transport = GrpcTransport(["graveler:7001"], clock=SystemClock(), rng=random.Random(1))
        await transport.operate(SERVICE, *lookup("1"), call_in())
        async with asyncio.TaskGroup() as group:
            stays = group.create_task(transport.operate(SERVICE, *lookup("wait"), call_in()))
            await until(lambda: len(first.toy.begun) == 2)
            found.clear()
            await asyncio.sleep(0.1)
            assert first.toy.begun == [
                "1",
                "wait",
            ]  # a failing name service does not mean that there are no replicas
            found[second.address] = "graveler"
            while not second.toy.begun:
                await transport.operate(SERVICE, *lookup("2"), call_in())
            assert not stays.done()
            first.toy.release.set()
        await transport.unary(SERVICE, "ListEntries", pb.ListEntriesRequest(prefix="3"), call_in())
        await transport.close()

    assert isinstance(stays.result(), pb.LookupResult)
    assert second.toy.begun[-1] == "3"


async def test_a_call_that_one_address_refuses_is_sent_to_another() -> None:
    async with serving() as bad, serving() as good:
        bad.toy.error = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "cut off from the store")
        transport = transport_to(bad.address, good.address)
        async with asyncio.timeout(5.0):
            while not (bad.toy.begun and good.toy.begun):  # both are connected
                async with asyncio.TaskGroup() as group:
                    for _ in range(4):
                        page = pb.ListEntriesRequest()
                        group.create_task(transport.unary(SERVICE, "ListEntries", page, call_in()))
        for method, request in (("ListEntries", LIST), ("UnstageEntries", UNSTAGE)):
            bad.toy.begun.clear()
            good.toy.begun.clear()
            error = await failure(transport.unary(SERVICE, method, request, call_in()))
            assert error.reason is Reason.ENTRY_NOT_FOUND  # the answer of the good one
            assert (len(bad.toy.begun) <= 1, len(good.toy.begun)) == (True, 1)
        await transport.close()


async def test_idle_replicas_take_turns() -> None:
    """One call after the other, so that no replica is ever busy when the next call comes."""
    async with serving() as one, serving() as two, serving() as three:
        toys = [each.toy for each in (one, two, three)]
        transport = transport_to(one.address, two.address, three.address)
        request = pb.ListEntriesRequest(prefix="x")

        async def list_once() -> None:
            await transport.unary(SERVICE, "ListEntries", request, call_in())

        async def look_up_once() -> None:
            await transport.operate(SERVICE, *lookup("a"), call_in())

        for call in (list_once, look_up_once):
            for toy in toys:
                toy.begun.clear()
            async with asyncio.timeout(10):
                while not all(toy.begun for toy in toys):  # until all are connected
                    await call()
            for toy in toys:
                toy.begun.clear()
            for _ in range(30):
                await call()
            assert [len(toy.begun) for toy in toys] == [10, 10, 10]
        await transport.close()
