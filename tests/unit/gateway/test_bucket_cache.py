"""What bucket names stand for: the requests that come when a cached name ends ask once, and no refusal is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from tests.support.clock import ManualClock

from tarn.aio.task_set import TaskSet
from tarn.client.graveler import GravelerClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_gateway.bucket_cache import BucketCache, Place
from tarn_proto.graveler.v1 import bucket_service_pb2 as pb

MOVED = Place("lake", "v2", "b:2")


class Graveler:
    """Answers each question about a view when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[pb.BucketView]] = []

    async def get_bucket_view(self, _: Call, name: str) -> pb.BucketView:
        assert name == "sales"
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]


def view(number: int) -> pb.BucketView:
    return pb.BucketView(
        bucket_id="b", repository_id="lake", ref=f"v{number}", etag=f"{number}", public_read=False
    )


class Cache:
    def __init__(self) -> None:
        self.graveler = Graveler()
        self.tasks = TaskSet()
        self.clock = ManualClock(now_us=0)
        self.cache = BucketCache(cast("GravelerClient", self.graveler), self.clock)

    async def ask(self, count: int, *, fresh: bool = False) -> Asked:
        """Starts requests, and lets them come as far as they do."""
        made = Asked()
        read = self.cache.fresh if fresh else self.cache.shared
        for _ in range(count):
            made.tasks.append(self.tasks.spawn(made.add(read(Call("r", "t", 10.0), "sales"))))
        await self.settle()
        return made

    async def settle(self) -> None:
        for _ in range(9):
            await asyncio.sleep(0)


class Asked:
    """Requests under way, and what they were told."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self._found: list[Place | TarnError] = []

    async def add(self, answer: Coroutine[Any, Any, Place]) -> None:
        try:
            self._found.append(await answer)
        except TarnError as error:
            self._found.append(error)

    async def outcomes(self) -> list[Any]:
        await asyncio.wait(self.tasks)
        return self._found


async def test_requests_that_miss_together_ask_once() -> None:
    it = Cache()
    tasks = await it.ask(8)
    assert len(it.graveler.asked) == 1
    it.graveler.asked[0].set_result(view(1))
    assert await tasks.outcomes() == [Place("lake", "v1", "b:1")] * 8
    assert it.cache.cached("sales") == Place("lake", "v1", "b:1")
    it.clock.advance(6.0)
    assert it.cache.cached("sales") is None


async def test_a_request_that_was_refused_does_not_join_a_read_from_before() -> None:
    it = Cache()
    early = await it.ask(2)
    it.cache.forget("sales")
    late = await it.ask(2)
    assert len(it.graveler.asked) == 2
    it.graveler.asked[1].set_result(view(2))
    assert await late.outcomes() == [MOVED] * 2
    it.graveler.asked[0].set_result(view(1))
    assert await early.outcomes() == [Place("lake", "v1", "b:1")] * 2


async def test_a_read_that_is_to_be_fresh_is_not_shared() -> None:
    it = Cache()
    shared = await it.ask(1)
    fresh = await it.ask(1, fresh=True)
    assert len(it.graveler.asked) == 2
    it.graveler.asked[1].set_result(view(2))
    it.graveler.asked[0].set_result(view(1))
    assert await fresh.outcomes() == [MOVED]
    await shared.outcomes()


@pytest.mark.parametrize(
    ("kind", "reason", "asked"),
    [
        (Kind.UNAVAILABLE, Reason.UNAVAILABLE, 1),
        (Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, 4),
        (Kind.DEADLINE, Reason.DEADLINE_EXCEEDED, 4),
    ],
)
async def test_only_a_failure_that_is_everyones_is_shared(
    kind: Kind, reason: Reason, asked: int
) -> None:
    it = Cache()
    tasks = await it.ask(4)
    for _ in range(4):
        for each in it.graveler.asked:
            if not each.done():
                each.set_exception(TarnError(kind, reason, "no"))
        await it.settle()
    found = await tasks.outcomes()
    assert len(it.graveler.asked) == asked
    assert [each.reason for each in found] == [reason] * 4
    assert len({id(each) for each in found}) == 4


async def test_a_caller_that_hangs_up_takes_no_answer_from_the_others() -> None:
    it = Cache()
    asked = await it.ask(3)
    asked.tasks[0].cancel()
    await it.settle()
    it.graveler.asked[1].set_result(view(2))
    assert await asked.outcomes() == [MOVED] * 2
    assert len(it.graveler.asked) == 2
