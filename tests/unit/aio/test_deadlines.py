from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.support.clock import ManualClock
from tests.support.servers.toy_service import until

from tarn.aio import deadlines
from tarn.aio.deadlines import DeadlineSweep


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "RESOLUTION_SECONDS", 0.0005)


async def test_an_entry_expires_in_time_and_only_once() -> None:
    clock = ManualClock()
    sweep = DeadlineSweep(clock)
    expired: list[str] = []
    sweep.enter(1.0, lambda: expired.append("first"))
    left = sweep.enter(1.0, lambda: expired.append("left"))
    sweep.enter(2.0, lambda: expired.append("second"))
    sweep.leave(left)
    sweep.leave(left)

    clock.advance(1.5)
    await until(lambda: expired == ["first"])
    clock.advance(1.0)
    await until(lambda: expired == ["first", "second"])
    sweep.close()


async def test_an_expiry_may_enter_and_leave_others() -> None:
    clock = ManualClock()
    sweep = DeadlineSweep(clock)
    expired: list[str] = []

    def first() -> None:
        expired.append("first")
        sweep.leave(second)
        sweep.enter(0.5, lambda: expired.append("third"))

    sweep.enter(1.0, first)
    second = sweep.enter(1.0, lambda: expired.append("second"))
    clock.advance(1.0)
    await until(lambda: "third" in expired)
    assert expired == ["first", "third"]


async def test_an_expiry_that_fails_costs_the_others_nothing() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    clock = ManualClock()
    sweep = DeadlineSweep(clock)
    expired: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    sweep.enter(1.0, fail)
    sweep.enter(1.0, lambda: expired.append("second"))
    sweep.enter(2.0, lambda: expired.append("third"))
    clock.advance(1.0)
    await until(lambda: expired == ["second"])
    clock.advance(1.0)
    await until(lambda: expired == ["second", "third"])
    assert [type(each["exception"]) for each in told] == [ZeroDivisionError]


async def test_a_closed_sweep_calls_nothing_and_runs_no_timer() -> None:
    clock = ManualClock()
    sweep = DeadlineSweep(clock)
    sweep.enter(1.0, lambda: pytest.fail("it was closed"))
    sweep.close()
    sweep.close()
    clock.advance(2.0)
    await asyncio.sleep(0.005)
    assert sweep._timer is None

    expired: list[int] = []
    sweep.enter(2.0, lambda: expired.append(1))
    await until(lambda: expired == [1])
    assert sweep._timer is None, "an idle sweep has no timer"


@pytest.mark.parametrize("seed", range(10))
async def test_none_expires_before_its_deadline_and_all_do_after(seed: int) -> None:
    rng = random.Random(seed)
    clock = ManualClock()
    sweep = DeadlineSweep(clock)
    expired: list[int] = []
    open_: dict[int, tuple[float, int]] = {}
    for number in range(60):
        deadline = rng.uniform(0, 5)

        def expire(number: int = number, deadline: float = deadline) -> None:
            assert clock.monotonic() >= deadline
            expired.append(number)

        open_[number] = deadline, sweep.enter(deadline, expire)
        if rng.random() < 0.3:
            sweep.leave(open_.pop(rng.choice(list(open_)))[1])
        if rng.random() < 0.3:
            clock.advance(0.1)
            await asyncio.sleep(0.001)
    clock.advance(10)
    await until(lambda: set(open_) <= set(expired))
    assert len(expired) == len(set(expired))
