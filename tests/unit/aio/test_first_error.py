from __future__ import annotations

import asyncio

import pytest

from tarn.aio.first_error import collapse_error_groups, first_error

NESTED = ExceptionGroup("a", [ExceptionGroup("b", [KeyError("1"), OSError("2")]), OSError("3")])


def test_an_error_outside_of_a_group_is_returned_as_it_is() -> None:
    error = OSError("x")
    assert first_error(error) is error
    assert first_error(error, KeyError) is error


def test_the_first_leaf_of_nested_groups() -> None:
    assert str(first_error(NESTED)) == "'1'"


def test_a_preferred_type_goes_first_however_deep() -> None:
    assert str(first_error(NESTED, OSError)) == "2"
    assert str(first_error(NESTED, ZeroDivisionError)) == "'1'"


async def fail(error: Exception, ticks: int) -> None:
    for _ in range(ticks):
        await asyncio.sleep(0)
    raise error


async def test_the_task_that_failed_first_is_raised_by_itself() -> None:
    async def run() -> None:
        with collapse_error_groups():
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(KeyError("late"), 5))
                group.create_task(fail(OSError("early"), 1))

    with pytest.raises(OSError, match="early") as caught:
        await run()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__, "a group in the traceback would repeat the error"


async def test_a_cancellation_passes() -> None:
    async def wait() -> None:
        with collapse_error_groups():
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(60))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
