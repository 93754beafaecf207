from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tarn.aio.batcher import Batcher, TickBatch
from tarn.aio.task_set import TaskSet


async def ticks(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Store:
    """A store that answers batches when the test says so.

    Attributes:
        sent: the batches, by key.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[int]]] = []
        self.answers: list[asyncio.Future[Sequence[str | Exception]]] = []

    async def send(self, key: str, items: Sequence[int]) -> Sequence[str | Exception]:
        self.sent.append((key, list(items)))
        answer: asyncio.Future[Sequence[str | Exception]]
        answer = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    def answer(self, *results: str | Exception) -> None:
        self.answers.pop(0).set_result(results)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def tasks() -> TaskSet:
    return TaskSet()


def batcher_of(store: Store, tasks: TaskSet) -> Batcher[str, int, str]:
    return Batcher(store.send, tasks)


async def test_requests_of_one_tick_share_a_batch_per_key(store: Store, tasks: TaskSet) -> None:
    batcher = batcher_of(store, tasks)
    futures = [batcher.submit("ab"[item % 2], item) for item in range(5)]
    assert store.sent == []
    await ticks(1)
    assert store.sent == [("a", [0, 2, 4]), ("b", [1, 3])]
    store.answer("0", "2", "4")
    store.answer("1", "3")
    assert [await future for future in futures] == ["0", "1", "2", "3", "4"]


async def test_a_batch_is_closed_before_it_is_sent(store: Store, tasks: TaskSet) -> None:
    """Rule 1 of the branch protocol: a re-check never joins a read that is under way."""
    batcher = batcher_of(store, tasks)
    first = batcher.submit("a", 1)
    await ticks()
    second = batcher.submit("a", 2)
    await ticks()
    assert store.sent == [("a", [1]), ("a", [2])], "batches of a key overlap"
    store.answers.pop().set_result(["second"])
    assert await second == "second"
    assert not first.done()
    store.answer("first")
    assert await first == "first"


async def test_an_item_submitted_during_a_send_is_in_the_next_batch(
    tasks: TaskSet,
) -> None:
    sent: list[list[int]] = []
    late: list[asyncio.Future[str]] = []

    async def send(_key: str, items: Sequence[int]) -> Sequence[str]:
        sent.append(list(items))
        if len(sent) == 1:
            late.append(batcher.submit("a", 2))  # before the first wait of this batch
        return [str(item) for item in items]

    batcher: Batcher[str, int, str] = Batcher(send, tasks)
    assert await batcher.submit("a", 1) == "1"
    assert await late[0] == "2"
    assert sent == [[1], [2]]


async def test_each_item_has_its_own_error(store: Store, tasks: TaskSet) -> None:
    batcher = batcher_of(store, tasks)
    futures = [batcher.submit("a", item) for item in range(3)]
    await ticks()
    store.answer("0", OSError("1"), "2")
    assert await futures[0] == "0"
    with pytest.raises(OSError, match="1"):
        await futures[1]
    assert await futures[2] == "2"


async def test_an_error_of_the_batch_reaches_every_caller(store: Store, tasks: TaskSet) -> None:
    batcher = batcher_of(store, tasks)
    futures = [batcher.submit("a", item) for item in range(3)]
    await ticks()
    store.answers.pop().set_exception(OSError("away"))
    for future in futures:
        with pytest.raises(OSError, match="away"):
            await future
    again = batcher.submit("a", 7)
    await ticks()
    store.answer("7")
    assert await again == "7", "the next batch is a new one"


@pytest.mark.parametrize("results", [["0"], ["0", "1", "2", "3"]])
async def test_a_wrong_number_of_results_fails_every_caller(
    store: Store, tasks: TaskSet, results: list[str]
) -> None:
    batcher = batcher_of(store, tasks)
    futures = [batcher.submit("a", item) for item in range(3)]
    await ticks()
    store.answer(*results)
    for future in futures:
        with pytest.raises(AssertionError, match=f"3 items was answered by {len(results)}"):
            await future


async def test_a_cancelled_caller_does_not_affect_its_batch(store: Store, tasks: TaskSet) -> None:
    batcher = batcher_of(store, tasks)

    async def call(item: int) -> str:
        return await batcher.submit("a", item)

    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(call(item)) for item in range(4)]
        await asyncio.sleep(0)
        callers[0].cancel()  # it opened the batch, which has not been sent yet
        await ticks()
        callers[1].cancel()
        await ticks()
        store.answer("0", OSError("the caller was cancelled"), "2", "3")
    assert [caller.cancelled() for caller in callers] == [True, True, False, False]
    assert [caller.result() for caller in callers[2:]] == ["2", "3"]
    assert store.sent == [("a", [0, 1, 2, 3])]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_batch_that_is_cancelled_cancels_its_callers(
    store: Store, tasks: TaskSet, begun: bool
) -> None:
    """This includes a task that was cancelled before its first step and runs none of its code."""
    batcher = batcher_of(store, tasks)
    futures = [batcher.submit("a", item) for item in range(2)]
    if begun:
        await ticks()
    await tasks.close()
    await ticks()
    assert [future.cancelled() for future in futures] == [True, True]
    assert len(store.sent) == begun

    again = batcher.submit("a", 7)
    await ticks()
    store.answers.pop().set_result(["7"])
    assert await again == "7"


@pytest.mark.parametrize("seed", range(20))
async def test_every_caller_is_answered_with_a_value_read_after_its_request(
    seed: int, tasks: TaskSet
) -> None:
    """Arrivals, cancellations, errors and a close come in any order; the store is a counter that only grows."""
    rng = random.Random(seed)
    value = 0

    async def send(_key: int, items: Sequence[int]) -> Sequence[int | Exception]:
        seen = value
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        if rng.random() < 0.1:
            raise OSError("away")
        return [KeyError(item) if rng.random() < 0.1 else seen for item in items]

    batcher: Batcher[int, int, int] = Batcher(send, tasks)

    async def call(number: int) -> None:
        nonlocal value
        for _ in range(rng.randrange(10)):
            await asyncio.sleep(0)
        value += 1
        before = value
        with contextlib.suppress(OSError, KeyError):
            assert await batcher.submit(rng.randrange(2), number) >= before

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        callers = [group.create_task(call(number)) for number in range(40)]
        for _ in range(8):
            await asyncio.sleep(0)
            rng.choice(callers).cancel()
        if seed % 2:
            await tasks.close()
    assert batcher._open == {}


async def test_items_of_a_tick_are_one_list_in_their_order() -> None:
    sent: list[list[int]] = []
    batch = TickBatch(sent.append)
    for item in range(3):
        batch.add(item)
    assert (len(batch), sent) == (3, [])
    await ticks(1)
    batch.add(3)
    assert sent == [[0, 1, 2]]
    await ticks(1)
    assert sent == [[0, 1, 2], [3]]
    await ticks()
    assert len(sent) == 2, "an idle batcher sends nothing"


async def test_a_flush_sends_now_and_nothing_twice() -> None:
    sent: list[list[int]] = []
    batch = TickBatch(sent.append)
    batch.flush()
    batch.add(1)
    batch.flush()
    batch.add(2)
    await ticks()
    assert sent == [[1], [2]]


async def test_an_item_that_comes_while_its_tick_is_sent_is_in_the_next_list() -> None:
    sent: list[list[int]] = []

    def send(items: list[int]) -> None:
        sent.append(items)
        if len(sent) == 1:
            batch.add(2)

    batch: TickBatch[int] = TickBatch(send)
    batch.add(1)
    await ticks(1)
    assert sent == [[1]], "a list that was handed over does not grow"
    await ticks(1)
    assert sent == [[1], [2]]


async def test_a_failed_send_is_reported_and_the_next_tick_is_sent() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    sent: list[list[int]] = []

    def send(items: list[int]) -> None:
        sent.append(items)
        if len(sent) == 1:
            raise ZeroDivisionError

    batch: TickBatch[int] = TickBatch(send)
    batch.add(1)
    await ticks()
    batch.add(2)
    await ticks()
    assert sent == [[1], [2]]
    assert [type(each["exception"]) for each in told] == [ZeroDivisionError]
