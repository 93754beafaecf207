"""A coroutine that was begun by hand goes on as if it had been awaited from its beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tarn.aio.first_step import rest_of


async def run(work: Coroutine[Any, Any, str]) -> str:
    try:
        waited = work.send(None)
    except StopIteration as done:
        answer: str = done.value
        return f"at once: {answer}"
    return await rest_of(work, waited)


async def test_what_does_not_wait_is_answered_in_the_first_step() -> None:
    async def work() -> str:
        return "done"

    assert await run(work()) == "at once: done"


async def test_what_waits_goes_on_and_may_wait_again() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()

    async def work() -> str:
        await asyncio.sleep(0)
        return f"{await first} {await second}"

    task = loop.create_task(run(work()))
    for future, value in ((first, "a"), (second, "b")):
        await asyncio.sleep(0)
        future.set_result(value)
    assert await task == "a b"


async def test_an_error_of_a_wait_reaches_the_coroutine() -> None:
    loop = asyncio.get_running_loop()
    failing = loop.create_future()

    async def work() -> str:
        try:
            return str(await failing)
        except OSError as error:
            await asyncio.sleep(0)
            return f"caught {error}"

    task = loop.create_task(run(work()))
    await asyncio.sleep(0)
    failing.set_exception(OSError("x"))
    assert await task == "caught x"


@pytest.mark.parametrize("is_handled", [True, False])
async def test_a_cancellation_reaches_the_coroutine(is_handled: bool) -> None:
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            if not is_handled:
                raise
            await asyncio.sleep(0)
        return "went on"

    task = loop.create_task(run(work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert seen == ["cancelled"]
    assert task.cancelled() is not is_handled
    if is_handled:
        assert task.result() == "went on"
