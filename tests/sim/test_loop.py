"""The promise of the loop: a seed determines one run, and no real time passes while it is played."""

import asyncio

import pytest
from tests.support.sim.loop import SimLoop, SimStuckError, simulate


def order_of(seed: int) -> list[str]:
    """Returns the order in which tasks run that are ready at one moment."""
    seen: list[str] = []

    async def step(name: str) -> None:
        await asyncio.sleep(1.0)
        seen.append(name)

    async def main(loop: SimLoop) -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abcdef":
                group.create_task(step(name))
        assert loop.time() == 1.0

    simulate(main, seed)
    return seen


def test_a_seed_determines_the_order_and_other_seeds_give_other_orders() -> None:
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(10)}) > 5


def test_time_is_virtual() -> None:
    async def main(loop: SimLoop) -> float:
        await asyncio.sleep(86_400)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return loop.time()

    assert simulate(main, 0) == 90_000


def test_an_executor_call_runs_in_the_loop() -> None:
    async def main(loop: SimLoop) -> int:
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        return await loop.run_in_executor(None, lambda: 41 + 1)

    assert simulate(main, 0) == 42


def test_tasks_that_wait_for_each_other_are_reported() -> None:
    async def main(loop: SimLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimStuckError, match="every task waits"):
        simulate(main, 0)


def test_a_run_leaves_no_task_behind() -> None:
    ended: list[str] = []

    async def left() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("left")

    async def main(loop: SimLoop) -> None:
        held.append(loop.create_task(left()))
        await asyncio.sleep(1)

    held: list[asyncio.Task[None]] = []
    simulate(main, 0)
    assert ended == ["left"]
