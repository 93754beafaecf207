from __future__ import annotations

import asyncio

import pytest
from tests.support.servers.toy_service import until

from tarn.aio.task_set import TaskSet


async def test_an_error_is_logged_and_the_other_tasks_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = TaskSet()
    go_on, done = asyncio.Event(), []

    async def break_down() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        await go_on.wait()
        done.append("work")

    tasks.spawn(work())
    tasks.spawn(break_down())
    await until(lambda: len(tasks) == 1)
    go_on.set()
    assert await tasks.drain(5.0)

    assert done == ["work"]
    assert "background task failed" in capsys.readouterr().out


async def test_a_cancelled_caller_leaves_its_tasks_alone() -> None:
    tasks = TaskSet()
    go_on, done = asyncio.Event(), []

    async def work() -> None:
        await go_on.wait()
        done.append("work")

    async def call() -> None:
        await asyncio.shield(tasks.spawn(work()))

    async with asyncio.TaskGroup() as group:
        caller = group.create_task(call())
        await asyncio.sleep(0)
        caller.cancel()
    go_on.set()
    assert await tasks.drain(5.0)
    assert done == ["work"]


async def test_drain_waits_for_tasks_that_tasks_start() -> None:
    tasks = TaskSet()
    done: list[int] = []

    async def work(left: int) -> None:
        await asyncio.sleep(0)
        if left:
            tasks.spawn(work(left - 1))
        done.append(left)

    tasks.spawn(work(3))
    assert await tasks.drain(5.0)
    assert done == [3, 2, 1, 0]
    assert len(tasks) == 0


async def test_drain_reports_a_time_out_and_stops_no_task() -> None:
    tasks = TaskSet()
    go_on = asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    tasks.spawn(work())
    assert not await tasks.drain(0.01)
    assert len(tasks) == 1
    go_on.set()
    assert await tasks.drain(5.0)


async def test_close_ends_tasks_that_start_while_they_are_cancelled() -> None:
    tasks = TaskSet()
    started: list[int] = []
    ended: list[int] = []

    async def hang(left: int) -> None:
        started.append(left)
        try:
            await asyncio.Event().wait()
        finally:
            if left:
                tasks.spawn(hang(left - 1))
            await asyncio.sleep(0)
            ended.append(left)

    tasks.spawn(hang(2))
    await asyncio.sleep(0)
    await tasks.close()
    assert len(started) >= 2
    assert ended == started
    assert len(tasks) == 0
    await tasks.close()
