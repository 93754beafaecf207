from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tarn.aio.parallel import for_each


@pytest.mark.parametrize("concurrency", [1, 3, 20])
async def test_every_item_is_done_once_with_bounded_concurrency(concurrency: int) -> None:
    begun: list[int] = []
    under_way = most = 0

    async def work(item: int) -> None:
        nonlocal under_way, most
        begun.append(item)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    await for_each(range(10), work, concurrency)
    assert begun == list(range(10))
    assert most == min(concurrency, 10)


async def test_items_are_taken_when_they_are_needed() -> None:
    taken: list[int] = []
    done: list[int] = []

    def items() -> Iterator[int]:
        for item in range(6):
            assert item - len(done) < 2
            taken.append(item)
            yield item

    async def work(item: int) -> None:
        await asyncio.sleep(0)
        done.append(item)

    await for_each(items(), work, 2)
    assert taken == done == list(range(6))


async def test_the_first_failure_ends_the_rest_and_is_raised_without_a_group() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        try:
            if item == 1:
                raise OSError("broken")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(item)

    with pytest.raises(OSError, match="broken"):
        await for_each(range(100), work, 3)
    assert begun == [0, 1, 2]
    assert sorted(ended) == [0, 1, 2], "it waits until the cancelled work has ended"


async def test_a_failure_of_the_iterator_is_raised() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("page")

    async def work(_item: int) -> None:
        await asyncio.sleep(0)

    with pytest.raises(KeyError, match="page"):
        await for_each(items(), work, 2)


async def test_a_cancelled_caller_waits_for_the_end_of_the_work() -> None:
    ended: list[int] = []

    async def work(item: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(item)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(for_each(range(5), work, 2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
    assert sorted(ended) == [0, 1]
