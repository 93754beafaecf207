"""Locks by key: one holder at a time, in order of arrival, for a bounded time."""

from __future__ import annotations

import asyncio

from tarn.objects.key_locks import KeyLocks


async def test_callers_of_one_key_go_one_by_one_in_order_of_arrival() -> None:
    locks = KeyLocks()
    inside, order = 0, []

    async def use(number: int) -> None:
        nonlocal inside
        async with locks.hold("a"):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            order.append(number)
            inside -= 1

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(use(number))
    assert order == [0, 1, 2, 3, 4]
    assert len(locks) == 0


async def test_other_keys_do_not_wait() -> None:
    locks = KeyLocks()
    async with asyncio.timeout(5), locks.hold("a"), locks.hold("b"):
        assert len(locks) == 2
    assert len(locks) == 0


async def test_a_hanging_holder_delays_others_for_a_bounded_time() -> None:
    locks = KeyLocks(wait_s=0.01)
    async with asyncio.timeout(5), locks.hold("a"):
        async with locks.hold("a"):  # after a hundredth of a second
            pass
        assert len(locks) == 1
    async with asyncio.timeout(5), locks.hold("a"):  # the one without the lock released nothing
        assert len(locks) == 1
    assert len(locks) == 0


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind() -> None:
    locks = KeyLocks()

    async def wait() -> None:
        async with locks.hold("a"):
            raise AssertionError("it was cancelled before")

    async with locks.hold("a"):
        waiter = asyncio.get_running_loop().create_task(wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
    assert waiter.cancelled()
    assert len(locks) == 0
