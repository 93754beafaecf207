"""`Access` calls auth as rarely as possible, and never uses an answer longer than its validity."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from tests.support.clock import ManualClock, SeededIds

from tarn.client.auth import AuthClient
from tarn.core.access.service import Service
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.access import Access
from tarn.gate.service_calls import ServiceCalls
from tarn.rpc.wire.call import Call
from tarn.telemetry.meters import Meters
from tarn_proto.auth.v1 import authorization_service_pb2 as pb
from tarn_proto.auth.v1 import caller_pb2

READ = caller_pb2.Statement(allow=True, actions=["ReadRepo"], resources=["repository/*"])
SCOPE = ("20261101", "us-east-1", "s3")


class FakeAuth:
    """A transport whose `operate` returns the test's answer and records the requests."""

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.answer: Callable[[Message], Awaitable[caller_pb2.Grant]] = self.grant

    async def grant(self, request: Message) -> caller_pb2.Grant:
        return caller_pb2.Grant(
            user_id="bob", statements=[READ], caller_token="t1.x.y", ttl_ms=5000
        )

    async def operate(
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        self.requests.append(request)
        grant = await self.answer(request)
        if operation == "authorize_key":
            return pb.AuthorizeKeyResult(signing_key=b"k" * 32, grant=grant)
        if operation == "authorize_service":
            return pb.AuthorizeServiceResult(grant=grant)
        return pb.AuthorizeTokenResult(grant=grant)

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        raise AssertionError(method)

    async def close(self) -> None:
        return


class World:
    def __init__(self, **options: int) -> None:
        self.clock = ManualClock()
        self.auth = FakeAuth()
        self.access = Access(AuthClient(self.auth), self.clock, **options)

    def call(self, token: str = "t1.x.y", seconds: float = 10) -> Call:
        return Call("r1", token, self.clock.monotonic() + seconds)

    def fail(self, kind: Kind, reason: Reason) -> None:
        async def answer(operation: Message) -> caller_pb2.Grant:
            raise TarnError(kind, reason, "no")

        self.auth.answer = answer


@pytest.fixture
def world() -> World:
    return World()


async def test_a_grant_is_asked_for_once_in_its_time(world: World) -> None:
    call = world.call()
    for _ in range(3):
        await world.access.grant(call)
    assert len(world.auth.requests) == 1
    world.clock.advance(4.9)
    await world.access.grant(world.call())
    assert len(world.auth.requests) == 1
    world.clock.advance(0.1)
    assert world.access.grant_cached(world.call().caller_token) is None
    await world.access.grant(world.call())
    assert len(world.auth.requests) == 2


async def test_look_ups_are_counted(world: World) -> None:
    meters = Meters()
    world.access.register(meters)
    for token in ("t1.a.b", "t1.a.b", "t1.c.d", "t1.a.b"):
        await world.access.grant(world.call(token))
    world.access.signing_grant_cached("AKIA", "20261123", "us-east-1", "s3")
    for _ in range(3):
        await world.access.signing_grant(world.call(), "AKIA", "20261123", "us-east-1", "s3")
    assert {tuple(each.values()): n for each, n in meters.samples("cache.lookups")} == {
        ("signing-key", "hit"): 2,
        ("signing-key", "miss"): 1,
        ("token", "hit"): 2,
        ("token", "miss"): 2,
    }


async def test_a_grants_time_runs_from_before_it_was_asked_for(world: World) -> None:
    async def slow(operation: Message) -> caller_pb2.Grant:
        world.clock.advance(4)
        return await FakeAuth.grant(world.auth, operation)

    world.auth.answer = slow
    await world.access.grant(world.call())
    world.clock.advance(1)
    await world.access.grant(world.call())
    assert len(world.auth.requests) == 2


def calls_of(world: World) -> ServiceCalls:
    return ServiceCalls(world.access, Service.GATEWAY, world.clock, SeededIds(world.clock, seed=1))


async def test_a_service_has_one_token_for_its_calls_and_its_proofs(world: World) -> None:
    calls = calls_of(world)
    tokens = await asyncio.gather(*(calls.proof(world.call("")) for _ in range(20)))  # noqa: TID251
    assert set(tokens) == {"t1.x.y"}
    assert (await calls.call(1)).caller_token == "t1.x.y"
    assert world.auth.requests == [pb.AuthorizeService(service="gateway")]


async def test_a_service_uses_a_new_token_after_seconds_or_when_it_is_refused(world: World) -> None:
    """A token of a secret that is being rotated out is not used for longer than a user's."""
    calls = calls_of(world)
    await calls.proof(world.call(""))
    world.clock.advance(5.1)
    await calls.proof(world.call(""))
    assert len(world.auth.requests) == 2
    calls.failed(TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "down"))
    await calls.call(1)
    assert len(world.auth.requests) == 2
    calls.failed(TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, "rotated"))
    await calls.proof(world.call(""))
    assert len(world.auth.requests) == 3


async def test_an_auth_that_does_not_know_the_service_gives_no_proof(world: World) -> None:
    calls = calls_of(world)
    world.fail(Kind.INVALID, Reason.INVALID_ARGUMENT)
    assert await calls.proof(world.call("")) == ""
    with pytest.raises(TarnError):
        await calls.call(1)
    world.clock.advance(2)
    world.fail(Kind.UNAVAILABLE, Reason.UNAVAILABLE)
    with pytest.raises(TarnError):
        await calls.proof(world.call(""))


async def test_only_a_token_of_the_service_proves_it(world: World) -> None:
    async def as_gateway(operation: Message) -> caller_pb2.Grant:
        return caller_pb2.Grant(user_id=Service.GATEWAY.user_id, caller_token="g", ttl_ms=5000)

    async def is_service(token: str, *services: Service) -> bool:
        call = replace(world.call(""), service_token=token)
        return await world.access.is_service(call, *services)

    assert not await is_service("", Service.GATEWAY)
    assert not await is_service("t1.x.y", Service.GATEWAY)
    world.auth.answer = as_gateway
    for _ in range(2):
        assert await is_service("g", Service.GATEWAY)
        assert not await is_service("g", Service.COMPACTOR)
        assert await is_service("g", Service.API, Service.GATEWAY)
        assert not await is_service("g", Service.API, Service.COMPACTOR)
    world.fail(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID)
    assert not await is_service("forged", Service.GATEWAY)


async def test_signing_grants_are_kept_by_key_day_region_and_service(world: World) -> None:
    call = world.call("")
    first = await world.access.signing_grant(call, "TARNKEY", *SCOPE)
    assert await world.access.signing_grant(call, "TARNKEY", *SCOPE) is first
    assert world.access.signing_grant_cached("TARNKEY", *SCOPE) is first
    await world.access.signing_grant(call, "TARNKEY", "20261102", *SCOPE[1:])
    await world.access.signing_grant(call, "TARNOTHER", *SCOPE)
    assert len(world.auth.requests) == 3
    assert "kkkk" not in repr(first)


@pytest.mark.parametrize("token", ["", "x" * 5000])
async def test_no_token_is_refused_without_asking(world: World, token: str) -> None:
    with pytest.raises(TarnError) as caught:
        await world.access.grant(world.call(token))
    assert caught.value.reason is Reason.CALLER_TOKEN_INVALID
    with pytest.raises(TarnError):
        await world.access.signing_grant(world.call(""), "x" * 5000, *SCOPE)
    assert world.auth.requests == []


async def test_a_refusal_is_kept_for_a_second(world: World) -> None:
    world.fail(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID)
    for _ in range(3):
        with pytest.raises(TarnError):
            await world.access.grant(world.call())
    assert len(world.auth.requests) == 1
    world.auth.answer = world.auth.grant
    world.clock.advance(1)
    assert (await world.access.grant(world.call())).user_id == "bob"


async def test_a_kept_refusal_keeps_no_caller(world: World) -> None:
    """Thousands are kept, and a traceback holds the frames of the caller, with the whole request."""
    world.fail(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID)
    with pytest.raises(TarnError) as first:
        await world.access.grant(world.call("t1.a.b"))
    kept = world.access._by_token._refusals.get("t1.a.b")
    assert kept is not None
    assert kept.message == first.value.message
    assert kept.__traceback__ is None
    assert kept.__context__ is None


async def test_a_token_is_accepted_while_its_grant_is_cached(world: World) -> None:
    assert not world.access.accepts("t1.x.y")
    await world.access.grant(world.call("t1.x.y"))
    assert world.access.accepts("t1.x.y")
    assert not world.access.accepts("t1.x.z")
    world.clock.advance(5)
    assert not world.access.accepts("t1.x.y")
    assert len(world.auth.requests) == 1


async def test_a_failure_of_auth_is_not_kept(world: World) -> None:
    world.fail(Kind.UNAVAILABLE, Reason.UNAVAILABLE)
    for _ in range(2):
        with pytest.raises(TarnError):
            await world.access.grant(world.call())
    assert len(world.auth.requests) == 2


async def test_concurrent_callers_share_one_request(world: World) -> None:
    go = asyncio.Event()

    async def wait(operation: Message) -> caller_pb2.Grant:
        await go.wait()
        return await FakeAuth.grant(world.auth, operation)

    world.auth.answer = wait
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(world.access.grant(world.call())) for _ in range(20)]
        await asyncio.sleep(0)
        go.set()
    assert len(world.auth.requests) == 1
    assert {task.result().user_id for task in tasks} == {"bob"}


async def test_a_shared_failure_reaches_all_waiters(world: World) -> None:
    go = asyncio.Event()

    async def wait(operation: Message) -> caller_pb2.Grant:
        await go.wait()
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no")

    async def ask() -> Reason:
        with pytest.raises(TarnError) as caught:
            await world.access.grant(world.call())
        return caught.value.reason

    world.auth.answer = wait
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask()) for _ in range(5)]
        await asyncio.sleep(0)
        go.set()
    assert {task.result() for task in tasks} == {Reason.UNAVAILABLE}
    assert len(world.auth.requests) == 1


async def test_another_caller_asks_when_the_first_gives_up(world: World) -> None:
    first_asked = asyncio.Event()

    async def never(operation: Message) -> caller_pb2.Grant:
        first_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    world.auth.answer = never
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.access.grant(world.call()))
        await first_asked.wait()
        second = group.create_task(world.access.grant(world.call()))
        await asyncio.sleep(0)
        world.auth.answer = world.auth.grant
        first.cancel()
    assert second.result().user_id == "bob"


async def test_a_wait_beyond_the_deadline_fails_as_such(world: World) -> None:
    requested = asyncio.Event()
    go = asyncio.Event()

    async def wait(operation: Message) -> caller_pb2.Grant:
        requested.set()
        await go.wait()
        return await FakeAuth.grant(world.auth, operation)

    world.auth.answer = wait
    async with asyncio.TaskGroup() as group:
        group.create_task(world.access.grant(world.call()))
        await requested.wait()
        with pytest.raises(TarnError) as caught:
            await world.access.grant(world.call(seconds=0.01))
        go.set()
    assert caught.value.kind is Kind.DEADLINE


async def test_unknown_keys_cannot_evict_the_grants_of_users() -> None:
    world = World(grants_max=2)
    kept = await world.access.signing_grant(world.call(""), "TARNKEY", *SCOPE)
    world.fail(Kind.UNAUTHENTICATED, Reason.CREDENTIAL_NOT_FOUND)
    for number in range(10):
        with pytest.raises(TarnError):
            await world.access.signing_grant(world.call(""), f"STRANGER{number}", *SCOPE)
    assert world.access.signing_grant_cached("TARNKEY", *SCOPE) is kept


async def test_the_least_recently_used_grant_goes_first() -> None:
    world = World(grants_max=2)
    for token in ("a", "b", "a", "c"):
        await world.access.grant(world.call(token))
    world.auth.requests.clear()
    await world.access.grant(world.call("a"))
    assert world.auth.requests == []
    await world.access.grant(world.call("b"))
    assert len(world.auth.requests) == 1
