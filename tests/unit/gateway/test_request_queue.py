"""The queue of requests: who waits, whose turn it is, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import pytest
from tests.support.clock import ManualClock

from tarn.aio.task_set import TaskSet
from tarn.gate import request_queue as queues
from tarn.gate.request_queue import (
    LIMIT_MAX,
    LIMIT_MIN,
    WAIT_MAX_S,
    RequestQueue,
)
from tarn.telemetry.meters import Meters
from tarn_gateway.overload import OverloadedError, request_queue

pytestmark = pytest.mark.timeout(20)


class StillQueue(RequestQueue):
    """A queue whose limit does not move."""

    def _adapt(self, began: float) -> None:
        pass


class World:
    """A queue whose places are all taken, and requests that wait in it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.meters = Meters()
        # Only the ends of requests let others in, unless a test says otherwise.
        self.queue = StillQueue(self.clock, OverloadedError, self.meters.counter("gateway.shed"))
        self.let_in: list[str] = []
        self.refused: list[str] = []
        self.spawned = TaskSet()
        self.tasks: list[asyncio.Task[None]] = []
        while self.queue.enters():
            pass

    async def arrive(self, tenant: str, count: int = 1) -> None:
        for _ in range(count):
            assert not self.queue.enters()
            self.tasks.append(self.spawned.spawn(self._request(tenant)))
        await asyncio.sleep(0)

    async def _request(self, tenant: str) -> None:
        try:
            await self.queue.wait(tenant)
        except OverloadedError:
            self.refused.append(tenant)
        else:
            self.let_in.append(tenant)

    async def end(self, count: int = 1) -> None:
        for _ in range(count):
            self.queue.leave()
        await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        """Lets time pass as it does for a process that has its turns."""
        for _ in range(round(seconds / 0.05)):
            self.clock.advance(0.05)
            await asyncio.sleep(0.011)


@pytest.fixture
async def world() -> Any:
    made = World()
    yield made
    await made.spawned.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)


async def test_requests_beyond_the_limit_wait_for_the_end_of_another(world: World) -> None:
    assert world.queue.under_way == LIMIT_MIN
    await world.arrive("a", 3)
    assert world.let_in == []
    await world.end(2)
    assert world.let_in == ["a", "a"]
    assert world.queue.under_way == LIMIT_MIN


async def test_tenants_take_turns(world: World) -> None:
    """One request of `lone` does not wait behind 100 of `busy`; strangers together have one turn, too."""
    await world.arrive("busy", 100)
    await world.arrive("", 50)
    await world.arrive("lone")
    await world.end(3)
    assert world.let_in == ["busy", "", "lone"]
    await world.arrive("lone")
    await world.end(3)
    assert world.let_in[3:] == ["busy", "", "lone"]


async def test_a_request_does_not_overtake_those_that_wait(world: World) -> None:
    await world.arrive("a")
    world.queue.under_way -= 1
    assert not world.queue.enters()


async def test_whoever_has_waited_too_long_is_refused_and_not_let_in(world: World) -> None:
    await world.arrive("a", 10)
    await world.pass_time(WAIT_MAX_S - 0.1)
    await world.arrive("b", 10)
    await world.pass_time(0.2)
    await world.end(4)
    assert world.let_in == ["b"] * 4
    await until(lambda: len(world.refused) == 10)
    assert world.refused == ["a"] * 10
    assert world.meters.counter("gateway.shed").value == 10


async def test_refusals_take_less_time_than_answers(world: World) -> None:
    """However many are overdue, an end refuses no more than half a request."""
    await world.arrive("a", 500)
    await world.pass_time(WAIT_MAX_S + 0.1)
    before = len(world.refused)
    assert before < 20
    await world.arrive("b", 100)
    await world.end(100)
    assert world.let_in == ["b"] * 100
    assert 50 <= len(world.refused) - before < 60


async def test_refusals_come_soon_when_there_is_room_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.arrive("a", 400)
    await world.pass_time(WAIT_MAX_S + 0.1)
    await world.end(LIMIT_MIN)
    assert world.queue.under_way == 0
    before, looks = len(world.refused), 0
    look = world.queue._look

    def counted(loop: asyncio.AbstractEventLoop) -> None:
        nonlocal looks
        looks += 1
        look(loop)

    monkeypatch.setattr(world.queue, "_look", counted)
    await until(lambda: len(world.refused) == 400)
    assert looks < (400 - before) / 8


async def test_time_in_which_the_process_stood_still_is_no_wait(world: World) -> None:
    await world.arrive("a", 5)
    world.clock.advance(60)
    await asyncio.sleep(0.05)
    await world.end(5)
    assert (world.let_in, world.refused) == (["a"] * 5, [])


async def test_a_client_that_leaves_gives_its_turn_to_the_next_one(world: World) -> None:
    await world.arrive("a", 3)
    world.tasks[0].cancel()
    await asyncio.sleep(0)
    world.queue.leave()  # the turn of the second one, which leaves before it notices
    world.tasks[1].cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.let_in == ["a"]
    assert world.queue.under_way == LIMIT_MIN


async def test_one_that_leaves_while_it_is_refused_gives_no_place_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.arrive("a")
    await world.pass_time(WAIT_MAX_S - 0.05)
    world.clock.advance(0.1)
    while not world.refused and not world.tasks[0].done():
        refuse = world.queue._refuse

        def and_leave(refuse: Callable[[], None] = refuse) -> None:
            refuse()
            world.tasks[0].cancel()

        monkeypatch.setattr(world.queue, "_refuse", and_leave)
        await asyncio.sleep(0.011)
    assert world.queue.under_way == LIMIT_MIN


class Turning:
    """A queue on a loop whose turns take some time, by its clock."""

    def __init__(self, turn_s: float) -> None:
        self.clock = ManualClock()
        self.queue = request_queue(self.clock, Meters())
        self._turn_s = turn_s

    async def turn(self) -> None:
        while True:
            self.clock.advance(self._turn_s)
            await asyncio.sleep(0)

    async def work(self, wait: Callable[[], Awaitable[object]]) -> None:
        """A client in a closed loop."""
        while True:
            if not self.queue.enters():
                try:
                    await self.queue.wait("a")
                except OverloadedError:
                    continue
            await wait()
            self.queue.leave()
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("turn_s", "begin", "end"), [(0.0, LIMIT_MIN, LIMIT_MAX), (0.002, LIMIT_MAX, LIMIT_MIN)]
)
async def test_a_loop_that_waits_for_stores_works_on_more_and_a_busy_one_on_few(
    turn_s: float, begin: int, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "WAIT_MAX_S", inf)
    turning = Turning(turn_s)
    queue = turning.queue
    queue.limit = begin
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(turning.turn())]
        works = (turning.work(lambda: asyncio.sleep(0.005)) for _ in range(2 * LIMIT_MAX))
        tasks += [group.create_task(each) for each in works]
        await until(lambda: queue.limit >= end if end > begin else queue.limit <= end)
        for task in tasks:
            task.cancel()


async def test_requests_that_all_wait_keep_no_others_out() -> None:
    """More than the largest limit, and a busy loop: those that wait for a store for minutes take no time of it."""
    turning = Turning(0.002)
    never = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(turning.work(never.wait)) for _ in range(LIMIT_MIN + 10)] + [
            group.create_task(turning.turn())
        ]
        await until(lambda: turning.queue.under_way == LIMIT_MIN + 10)
        for task in tasks:
            task.cancel()
