"""Which calls of the library are sent again, where, and for how long, over a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from tests.support.servers.toy_service import serving, until

from tarn.client import AsyncClient, Client
from tarn.client.errors import (
    DeadlineExceededError,
    EntryNotFoundError,
    ServiceUnavailableError,
    TarnCallError,
    UnavailableError,
    UnknownOutcomeError,
)
from tarn.core.errors import Kind, Reason, TarnError

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

ATTEMPTS = 5


async def read(tarn: AsyncClient, prefix: str) -> None:
    """A call that the protos mark as changing nothing; its answer is no entry, and is not read."""
    await tarn.graveler.list_entries(tarn.call(), "lake", "main", prefix=prefix)


async def change(tarn: AsyncClient, path: str) -> None:
    """A call that the protos do not mark so."""
    await tarn.delete_objects("lake", "main", [path])


@pytest.mark.parametrize("kind", [Kind.UNAVAILABLE, Kind.EXHAUSTED, Kind.UNKNOWN_OUTCOME])
async def test_only_calls_without_an_effect_are_repeated(kind: Kind) -> None:
    async with serving() as served, AsyncClient(served.address) as tarn:
        served.toy.error = TarnError(kind, Reason.UNAVAILABLE, "no")
        for work in (read, change):
            served.toy.begun.clear()
            with pytest.raises(ServiceUnavailableError) as raised:
                await work(tarn, "fail")
            assert raised.value.kind is kind
            assert len(served.toy.begun) == (ATTEMPTS if kind is Kind.UNAVAILABLE else 1)


async def test_a_change_whose_answer_is_lost_is_sent_once() -> None:
    async with serving() as served, AsyncClient(served.address) as tarn:
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(outcome(change(tarn, "wait")))
            await until(lambda: served.toy.begun)
            await served.kill()
            served.toy.release.set()
            await served.start()
        await read(tarn, "ok")  # the connection is there again
        assert isinstance(lost.result(), UnknownOutcomeError)
        assert served.toy.begun == ["wait", "ok"]


async def test_a_read_whose_answer_is_lost_is_sent_again() -> None:
    async with serving() as served, AsyncClient(served.address) as tarn:
        async with asyncio.TaskGroup() as group:
            page = group.create_task(read(tarn, "wait"))
            await until(lambda: served.toy.begun)
            await served.kill()
            served.toy.release.set()
            await served.start()
        assert page.exception() is None
        assert served.toy.begun == ["wait", "wait"]


async def test_a_call_ends_with_its_time() -> None:
    async with serving() as served, AsyncClient(served.address) as tarn:
        await read(tarn, "ok")
        hurried = tarn.with_timeout(0.2)
        async with asyncio.timeout(30.0):  # not the minute that calls have by default
            with pytest.raises(DeadlineExceededError):
                await read(hurried, "wait")
            with pytest.raises(UnknownOutcomeError):
                await change(hurried, "wait")
    async with AsyncClient(served.address, timeout_s=0.2) as tarn:
        with pytest.raises(UnavailableError):
            await change(tarn, "nowhere")


async def test_a_call_that_one_address_refuses_goes_to_another() -> None:
    refusal = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "cut off from the store")
    async with serving() as bad, serving() as good:
        bad.toy.error = refusal
        good.toy.error = TarnError(Kind.NOT_FOUND, Reason.ENTRY_NOT_FOUND, "an answer", path="a")
        async with AsyncClient([bad.address, good.address]) as tarn:
            await until_both_answer(tarn, bad.toy.begun, good.toy.begun)
            for work in (read, change):
                bad.toy.begun.clear()
                good.toy.begun.clear()
                with pytest.raises(EntryNotFoundError):
                    await work(tarn, "fail")
                assert len(good.toy.begun) == 1
                assert len(bad.toy.begun) <= 1


async def test_an_address_without_a_server_costs_no_call() -> None:
    async with serving() as gone, serving() as there:
        await gone.kill()
        async with AsyncClient([gone.address, there.address]) as tarn:
            for _ in range(5):
                await change(tarn, "a")
            await there.kill()
            await gone.start()
            await change(tarn, "b")
        assert there.toy.begun == ["a"] * 5
        assert gone.toy.begun == ["b"]


async def outcome(work: object) -> TarnCallError | None:
    try:
        await work  # type: ignore[misc]
    except TarnCallError as error:
        return error
    return None


async def until_both_answer(tarn: AsyncClient, *begun: list[str]) -> None:
    """Both addresses are connected as soon as concurrent calls reach both."""
    async with asyncio.timeout(5.0):
        while not all(begun):
            async with asyncio.TaskGroup() as group:
                for _ in range(4):
                    group.create_task(read(tarn, "ok"))


async def test_closing_a_blocking_client_ends_the_calls_of_other_threads() -> None:
    """Also those that pause between two attempts, and work that would never end."""
    async with serving() as served:
        tarn = Client(served.address)
        served.toy.error = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no")
        ended: list[RuntimeError] = []

        def again_and_again(prefix: str) -> None:
            try:
                while True:
                    with suppress(ServiceUnavailableError):
                        next(tarn.list_objects("lake", "main", prefix=prefix))
            except RuntimeError as error:
                ended.append(error)

        def for_ever() -> None:
            try:
                tarn.run(lambda _: asyncio.sleep(3600.0))
            except RuntimeError as error:
                ended.append(error)

        works: list[Callable[[], None]] = [
            for_ever,
            *(partial(again_and_again, each) for each in ("wait", *["fail"] * 6)),
        ]
        # Daemons: a thread that hangs fails this test, not the end of the test run.
        threads = [threading.Thread(target=each, daemon=True) for each in works]
        for each in threads:
            each.start()
        await until(lambda: len(served.toy.begun) > 8)
        await asyncio.to_thread(tarn.close)
        await asyncio.to_thread(tarn.close)
        await until(lambda: len(ended) == len(threads))
        assert all("closed" in str(each) for each in ended)
