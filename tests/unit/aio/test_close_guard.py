from __future__ import annotations

import asyncio
import random

import pytest

from tarn.aio.close_guard import CloseGuard, UseCount


class TooLateError(Exception):
    """A use after the close."""


async def use(guard: UseCount, ticks: int) -> None:
    with guard:
        for _ in range(ticks):
            await asyncio.sleep(0)


async def test_close_waits_for_users_and_refuses_new_ones() -> None:
    guard = CloseGuard(TooLateError)
    async with asyncio.TaskGroup() as group:
        user = group.create_task(use(guard, 5))
        await asyncio.sleep(0)
        closing = group.create_task(guard.close())
        await asyncio.sleep(0)
        assert not closing.done()
        with pytest.raises(TooLateError), guard:
            pass
        await closing
        assert user.done()
    assert guard.users == 0


async def test_an_unused_guard_closes_at_once_and_more_than_once() -> None:
    guard = CloseGuard(TooLateError)
    await guard.close()
    await guard.close()
    with pytest.raises(TooLateError), guard:
        pass


async def test_a_user_that_fails_or_is_cancelled_leaves() -> None:
    guard = CloseGuard(TooLateError)
    with pytest.raises(OSError, match="broken"), guard:
        raise OSError("broken")
    async with asyncio.TaskGroup() as group:
        user = group.create_task(use(guard, 1_000_000))
        await asyncio.sleep(0)
        assert guard.users == 1
        user.cancel()
    async with asyncio.timeout(5):
        await guard.close()


async def test_a_cancelled_close_leaves_it_closed_and_can_be_repeated() -> None:
    guard = CloseGuard(TooLateError)
    go_on = asyncio.Event()

    async def hold() -> None:
        with guard:
            await go_on.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(hold())
        await asyncio.sleep(0)
        first = group.create_task(guard.close())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        with pytest.raises(TooLateError), guard:
            pass
        second, third = (group.create_task(guard.close()) for _ in range(2))
        await asyncio.sleep(0)
        assert not second.done()
        go_on.set()
    assert second.done()
    assert third.done()


async def test_drain_refuses_no_user_and_reports_a_time_out() -> None:
    count = UseCount()
    go_on = asyncio.Event()

    async def hold() -> None:
        with count:
            await go_on.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(hold())
        await asyncio.sleep(0)
        assert not await count.drain(0.01)
        with count:
            assert count.users == 2
        go_on.set()
        assert await count.drain(5)


@pytest.mark.parametrize("seed", range(20))
async def test_no_use_overlaps_the_end_of_a_close(seed: int) -> None:
    """Users, closers and cancellations come in any order."""
    rng = random.Random(seed)
    guard = CloseGuard(TooLateError)
    inside = refused = 0
    ended: list[int] = []

    async def user() -> None:
        nonlocal inside, refused
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0)
        try:
            with guard:
                inside += 1
                try:
                    for _ in range(rng.randrange(6)):
                        await asyncio.sleep(0)
                        assert not ended, "the store must not be closed during a call"
                finally:
                    inside -= 1
        except TooLateError:
            refused += 1

    async def closer() -> None:
        for _ in range(rng.randrange(8)):
            await asyncio.sleep(0)
        await guard.close()
        assert inside == 0
        ended.append(1)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(user()) for _ in range(20)]
        closers = [group.create_task(closer()) for _ in range(2)]
        for _ in range(4):
            await asyncio.sleep(0)
            rng.choice(tasks).cancel()
    assert len(ended) == len(closers)
    assert guard.users == 0
