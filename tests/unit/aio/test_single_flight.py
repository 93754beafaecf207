from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from tarn.aio.single_flight import FlightTimeoutError, SingleFlight


class Source:
    """A source of numbered values, which it returns when the test says so; counts calls and concurrent calls."""

    def __init__(self) -> None:
        self.count = self.under_way = self.most = 0
        self.waiting: list[asyncio.Future[None]] = []

    async def __call__(self) -> int:
        self.count += 1
        number = self.count
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        try:
            await future
        finally:
            self.under_way -= 1
        return number

    def give(self) -> None:
        self.waiting.pop(0).set_result(None)

    def fail(self, error: Exception) -> None:
        self.waiting.pop(0).set_exception(error)


async def ticks(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def again(error: Exception) -> Exception | None:
    return OSError(f"shared: {error}") if isinstance(error, OSError) else None


async def test_one_value_serves_all_callers_that_ask_while_it_is_fetched() -> None:
    flights, source = SingleFlight[str, int](), Source()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(flights.run("k", source)) for _ in range(5)]
        other = group.create_task(flights.run("other", source))
        await ticks()
        assert source.count == 2, "each key has its own work"
        source.give()
        source.give()
    assert [task.result() for task in tasks] == [1] * 5
    assert other.result() == 2
    assert len(flights) == 0


async def test_a_caller_after_the_end_starts_new_work() -> None:
    flights, source = SingleFlight[str, int](), Source()
    for number in (1, 2):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(flights.run("k", source))
            await ticks()
            source.give()
        assert task.result() == number


async def test_callers_share_a_result_that_is_none() -> None:
    flights = SingleFlight[str, None]()
    calls: list[int] = []

    async def work() -> None:
        calls.append(1)
        await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(flights.run("k", work))
    assert calls == [1]


async def test_the_first_that_waits_takes_over_from_one_that_is_cancelled() -> None:
    flights, source = SingleFlight[str, int](), Source()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(flights.run("k", source)) for _ in range(4)]
        await ticks()
        tasks[2].cancel()  # the cancellation of a waiter affects no other caller
        tasks[0].cancel()
        await ticks()
        assert source.count == 2
        source.waiting.pop(0)
        source.give()
    assert [task.cancelled() for task in tasks] == [True, False, True, False]
    assert (tasks[1].result(), tasks[3].result()) == (2, 2)
    assert source.most == 1


async def test_an_error_that_is_not_shared_is_the_callers_alone() -> None:
    flights, source = SingleFlight[str, int](again), Source()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(outcome(flights.run("k", source)))
        others = [group.create_task(outcome(flights.run("k", source))) for _ in range(3)]
        await ticks()
        source.fail(KeyError("mine"))
        await ticks()
        assert source.count == 2
        source.give()
    assert first.result() == "KeyError: 'mine'"
    assert [each.result() for each in others] == ["2", "2", "2"]


async def test_a_shared_error_is_raised_anew_for_each_waiter() -> None:
    flights, source = SingleFlight[str, int](again), Source()
    caught: list[Exception] = []

    async def call() -> None:
        try:
            await flights.run("k", source)
        except OSError as error:
            caught.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(call())
        await ticks()
        source.fail(OSError("away"))
    assert source.count == 1
    assert sorted(str(error) for error in caught) == ["away", *["shared: away"] * 3]
    assert len({id(error) for error in caught}) == 4


async def outcome(call: Awaitable[int]) -> str:
    try:
        return str(await call)
    except Exception as error:  # noqa: BLE001 - told to the test
        return f"{type(error).__name__}: {error}"


async def test_a_waiter_gives_up_in_time_and_own_work_is_not_timed() -> None:
    flights, source = SingleFlight[str, int](), Source()
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(flights.run("k", source, timeout_s=0.0))
        await ticks()
        with pytest.raises(FlightTimeoutError, match=r"0\.01 s"):
            await flights.run("k", source, timeout_s=0.01)
        source.give()
    assert slow.result() == 1


async def test_a_time_out_of_the_work_is_no_time_out_of_the_wait() -> None:
    async def work() -> int:
        raise TimeoutError("the store's")

    with pytest.raises(TimeoutError, match="the store's") as caught:
        await SingleFlight[str, int]().run("k", work, timeout_s=5)
    assert not isinstance(caught.value, FlightTimeoutError)


@pytest.mark.parametrize("seed", range(30))
async def test_every_caller_ends_and_work_of_a_key_never_overlaps(seed: int) -> None:
    """Arrivals, cancellations, errors and answers come in any order."""
    rng = random.Random(seed)
    flights = SingleFlight[int, int](again)
    under_way: set[int] = set()

    def work_of(key: int) -> Callable[[], Awaitable[int]]:
        async def work() -> int:
            assert key not in under_way
            under_way.add(key)
            try:
                for _ in range(rng.randrange(5)):
                    await asyncio.sleep(0)
                if rng.random() < 0.3:
                    raise rng.choice([OSError("away"), KeyError("bug")])
                return key
            finally:
                under_way.remove(key)

        return work

    async def call(key: int) -> None:
        for _ in range(rng.randrange(8)):
            await asyncio.sleep(0)
        assert await outcome(flights.run(key, work_of(key))) in {
            str(key), "OSError: away", "OSError: shared: away", "KeyError: 'bug'",
        }  # fmt: skip

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        tasks = [group.create_task(call(rng.randrange(3))) for _ in range(30)]
        for _ in range(10):
            await asyncio.sleep(0)
            rng.choice(tasks).cancel()
    assert len(flights) == 0
    assert not under_way
