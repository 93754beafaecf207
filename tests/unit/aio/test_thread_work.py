"""Work in threads, held by a real event, so that a caller that does not wait for its thread is detected."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tarn.aio.futures import ignore_outcome
from tarn.aio.thread_work import finish_work, run_in_thread, settle_work


class Work:
    """A call that ends when the test says so."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.may_end = threading.Event()
        self.has_ended = False

    def __call__(self) -> str:
        assert self.may_end.wait(10)
        self.has_ended = True
        if self._error is not None:
            raise self._error
        return "result"


def begin(work: Work) -> asyncio.Future[str]:
    return asyncio.get_running_loop().run_in_executor(None, work)


async def ticks(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled_during(work: Work, call: Awaitable[Any], times: int) -> asyncio.Task[object]:
    """Cancels a caller `times` times while its thread works; returns its task, which has ended."""

    async def run() -> object:
        return await call

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run())
        for _ in range(times):
            await ticks()
            task.cancel()
        await ticks()
        assert not task.done(), "the caller must wait while the thread uses its buffer"
        work.may_end.set()
        await asyncio.wait([task])
        assert work.has_ended
    return task


@pytest.mark.parametrize("wait", [finish_work, settle_work])
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("error", [None, OSError("disk")])
async def test_a_cancelled_caller_is_held_until_the_thread_is_done(
    wait: Callable[[asyncio.Future[str]], Awaitable[object]], times: int, error: Exception | None
) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    work = Work(error)
    task = await cancelled_during(work, wait(begin(work)), times)
    assert task.cancelled()
    del task
    gc.collect()
    await ticks()
    assert told == [], "the error of abandoned work was retrieved"


async def test_an_error_lost_to_a_cancellation_is_reported() -> None:
    lost: list[BaseException] = []
    work = Work(OSError("disk"))
    task = await cancelled_during(work, finish_work(begin(work), lost.append), 2)
    assert task.cancelled()
    assert [str(error) for error in lost] == ["disk"]

    work = Work()
    await cancelled_during(work, finish_work(begin(work), lost.append), 1)
    assert len(lost) == 1, "a result is not reported as an error"


async def test_the_result_or_the_error_of_the_work() -> None:
    work = Work()
    work.may_end.set()
    assert await finish_work(begin(work)) == "result"
    work = Work(OSError("disk"))
    work.may_end.set()
    with pytest.raises(OSError, match="disk"):
        await finish_work(begin(work))
    await settle_work(begin(work))


async def test_work_that_is_done_is_not_waited_for() -> None:
    job: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    job.set_result(3)
    coroutine = finish_work(job)
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert stop.value.value == 3


async def test_waiting_for_work_that_its_pool_dropped_raises_a_cancellation() -> None:
    work = Work()
    with ThreadPoolExecutor(1) as pool:
        loop = asyncio.get_running_loop()
        first = loop.run_in_executor(pool, work)
        second = loop.run_in_executor(pool, work)
        pool.shutdown(wait=False, cancel_futures=True)
        work.may_end.set()
        assert await finish_work(first) == "result"
        await settle_work(second)
        with pytest.raises(asyncio.CancelledError):
            await finish_work(second)


async def test_run_in_thread_uses_the_pool() -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as pool:
        assert (await run_in_thread(lambda: threading.current_thread().name, pool)) == "mine_0"
    work = Work()
    await cancelled_during(work, run_in_thread(work), 1)


async def test_an_ignored_outcome_is_not_reported() -> None:
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    for outcome in ("error", "result", "cancelled"):
        future: asyncio.Future[int] = loop.create_future()
        ignore_outcome(future)
        match outcome:
            case "error":
                future.set_exception(OSError("unheard"))
            case "result":
                future.set_result(1)
            case _:
                future.cancel()
        await ticks()
        del future
    gc.collect()
    await ticks()
    assert told == []
