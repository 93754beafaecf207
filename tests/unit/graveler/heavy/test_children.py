"""Which child builds what: a child of their own for compactions, which yields to everything, and new settings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import psutil
import pytest
from heavy_children import SECONDS, SlowChild, SlowChildren, lives, pid_of, slow_builder, until
from heavy_stores import Stores

from tarn.config import variables_of
from tarn.rpc.process.system import SystemClock
from tarn_graveler.heavy.builder import HeavyLimits, ProcessBuilder
from tarn_graveler.heavy.priority import Priority
from tarn_graveler.heavy.worker import HeavyProcess, WorkerLimits, start_process

pytestmark = pytest.mark.timeout(2 * SECONDS)


async def test_compactions_are_built_one_at_a_time_in_a_child_of_their_own(stores: Stores) -> None:
    children = SlowChildren(*Priority)
    behind, asked = children.children[Priority.BACKGROUND], children.children[Priority.REQUESTED]
    order = await stores.order({"a": 1})
    compaction = replace(order, is_background=True)
    limits = HeavyLimits(rows_here=0)
    async with (
        slow_builder(stores, children, SystemClock(), limits) as builder,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(3):
            group.create_task(builder.build(compaction))
        await until(lambda: len(behind.begun) == 1)
        for _ in range(3):
            group.create_task(builder.build(order))
        await until(lambda: len(asked.begun) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert behind.begun == [compaction]
        assert asked.begun == [order, order], "the third commit waits, too"
        assert (builder.processes, builder.starts) == (2, 2)
        assert (builder.running, builder.waiting) == (3, 3)
        behind.may_end.set()
        asked.may_end.set()
    assert (len(behind.begun), len(asked.begun)) == (3, 3)
    assert (builder.running, builder.waiting, builder.starts) == (0, 0, 2)


async def test_a_compaction_that_starves_is_built_beside_commits(stores: Stores) -> None:
    """And so are the next ones, for a while."""

    class Clock(SystemClock):
        ahead_s = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.ahead_s

    children, clock = SlowChildren(*Priority), Clock()
    behind, asked = children.children[Priority.BACKGROUND], children.children[Priority.REQUESTED]
    asked.may_end.set()
    compaction = replace(await stores.order({"a": 1}), is_background=True)
    limits = HeavyLimits(rows_here=0, background_s=0.05, starved_s=600.0)
    async with slow_builder(stores, children, clock, limits) as builder, asyncio.timeout(SECONDS):
        await builder.build(compaction)
        assert (len(behind.begun), len(asked.begun)) == (1, 1)
        clock.ahead_s = 500.0
        await builder.build(compaction)
        assert (len(behind.begun), len(asked.begun)) == (1, 2)
        clock.ahead_s = 700.0
        behind.may_end.set()
        await builder.build(compaction)
        assert (len(behind.begun), len(asked.begun)) == (2, 2)


async def test_a_compaction_whose_child_cannot_start_in_time_is_built_beside_commits(
    stores: Stores,
) -> None:
    children = SlowChildren(Priority.REQUESTED)
    children.children[Priority.REQUESTED].may_end.set()
    compaction = replace(await stores.order({"a": 1}), is_background=True)
    limits = HeavyLimits(rows_here=0, background_s=0.05)
    async with (
        slow_builder(stores, children, SystemClock(), limits) as builder,
        asyncio.timeout(SECONDS),
    ):
        await builder.build(compaction)
    assert children.starts == [Priority.BACKGROUND, Priority.REQUESTED]


async def test_a_start_that_is_cancelled_early_leaves_no_child(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the socket is connected, which takes long on a busy machine."""
    reached, connect = asyncio.Event(), asyncio.open_unix_connection

    async def slow(**options: Any) -> Any:
        connected = await connect(**options)
        reached.set()
        try:
            await asyncio.sleep(SECONDS)
        finally:
            connected[1].close()
        return connected

    monkeypatch.setattr(asyncio, "open_unix_connection", slow)
    known = {each.pid for each in psutil.Process().children()}
    starting = asyncio.ensure_future(
        start_process(variables_of(stores.config), stores.clock, WorkerLimits(), Priority.REQUESTED)
    )
    await reached.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [each.pid for each in psutil.Process().children() if each.pid not in known] == []


async def test_child_processes_run_with_lower_priority(stores: Stores) -> None:
    """The child for compactions is not waited for: on a busy machine it does not get ready."""
    known = {each.pid for each in psutil.Process().children()}
    variables = variables_of(stores.config)
    starting = asyncio.ensure_future(
        start_process(variables, stores.clock, WorkerLimits(), Priority.BACKGROUND)
    )
    found: list[int] = []

    def has_stepped_back() -> bool:
        found[:] = [each.pid for each in psutil.Process().children() if each.pid not in known]
        return any(os.sched_getscheduler(pid) == os.SCHED_IDLE for pid in found)

    await until(has_stepped_back)
    (pid,) = found
    threads = psutil.Process(pid).threads()
    assert {os.sched_getscheduler(each.id) for each in threads} == {os.SCHED_IDLE}
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await starting).close()
    assert not lives(pid)

    async with stores.builder() as builder:
        await builder.build(await stores.order({"a": 1}, {"b": 2}))
        assert builder.processes == 1
        assert os.sched_getscheduler(pid_of(builder)) == os.sched_getscheduler(0)
        assert psutil.Process(pid_of(builder)).nice() == min(19, psutil.Process().nice() + 5)


async def test_a_stopped_child_delays_a_compaction_only(stores: Stores) -> None:
    """It stands for one that gets no processor time at all."""

    async def start(priority: Priority) -> HeavyProcess:
        behind = priority is Priority.BACKGROUND
        made = await start_process(variables, stores.clock, WorkerLimits(), Priority.REQUESTED)
        if behind:
            os.kill(made.pid, signal.SIGSTOP)
            stopped.append(made.pid)
        return made

    variables, stopped = variables_of(stores.config), list[int]()
    order = await stores.order({"a": 1}, {"b": 2})
    async with ProcessBuilder(
        start,
        stores.kv,
        stores.committed,
        stores.clock,
        random.Random(0),
        HeavyLimits(rows_here=0, background_s=4.0),
    ) as builder:
        built = await builder.build(replace(order, is_background=True))
        assert await builder.build(order) == built
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert not any(map(lives, stopped))


async def test_a_child_with_old_settings_ends_after_its_builds(stores: Stores) -> None:
    """New credentials: further builds use a new child, running ones end in the old one."""
    old, new = SlowChild(), SlowChild()
    started: list[SlowChild] = []

    def starter(child: SlowChild) -> Callable[[Priority], Awaitable[HeavyProcess]]:
        async def start(_: Priority) -> HeavyProcess:
            started.append(child)
            return cast("HeavyProcess", child)

        return start

    limits, order = HeavyLimits(rows_here=0), await stores.order({"a": 1})
    clock = SystemClock()
    async with (
        ProcessBuilder(
            starter(old), stores.kv, stores.committed, clock, random.Random(0), limits
        ) as builder,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(builder.build(order))
        await until(lambda: len(old.begun) == 1)
        builder.renew(starter(new))
        second = group.create_task(builder.build(order))
        await until(lambda: len(new.begun) == 1)
        assert not old.is_closed
        new.may_end.set()
        await second
        assert not first.done()
        old.may_end.set()
        await first
        await until(lambda: old.is_closed)
        assert not new.is_closed
    assert started == [old, new]
    assert new.is_closed


async def test_the_end_of_the_replica_ends_a_child_with_old_settings(stores: Stores) -> None:
    child = SlowChild()

    async def start(_: Priority) -> HeavyProcess:
        return cast("HeavyProcess", child)

    limits, order = HeavyLimits(rows_here=0), await stores.order({"a": 1})
    clock = SystemClock()
    async with ProcessBuilder(
        start, stores.kv, stores.committed, clock, random.Random(0), limits
    ) as builder:
        building = asyncio.ensure_future(builder.build(order))
        await until(lambda: len(child.begun) == 1)
        builder.renew(start)
        await asyncio.sleep(0)
    assert child.is_closed
    building.cancel()
