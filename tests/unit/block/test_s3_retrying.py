"""The number, pauses and deadline of repeated requests."""

from __future__ import annotations

import asyncio
import random

import pytest

from tarn.block.s3.faults import CallError, Failure
from tarn.block.s3.retrying import Retrying
from tarn.block.s3.settings import S3Limits
from tarn.core.errors import Kind, TarnError


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def now_us(self) -> int:
        return int(self.now * 1e6)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class _Server:
    """Fails with each of the failures, then answers."""

    def __init__(self, clock: _Clock, failures: list[Failure], seconds: float = 0) -> None:
        self.clock = clock
        self.failures = failures
        self.seconds = seconds
        self.requests = 0

    async def __call__(self) -> str:
        self.requests += 1
        self.clock.now += self.seconds
        if self.failures:
            raise CallError(self.failures.pop(0), "said")
        return "done"


def retrying(clock: _Clock, **limits: float) -> Retrying:
    return Retrying(S3Limits(**limits), clock, random.Random(1))  # type: ignore[arg-type]  # of a test


async def test_busy_is_tried_again_after_growing_pauses() -> None:
    clock = _Clock()
    server = _Server(clock, [Failure.BUSY] * 4)
    run = retrying(clock, attempts=5, pause_seconds=0.4, pause_seconds_max=1.0)
    assert await run("look", server) == "done"
    most = [0.4, 0.8, 1.0, 1.0]
    assert all(each / 4 <= pause <= each for pause, each in zip(clock.pauses, most, strict=True))
    assert len(set(clock.pauses)) == 4


async def test_last_attempt_is_the_last() -> None:
    clock = _Clock()
    server = _Server(clock, [Failure.BUSY] * 9)
    with pytest.raises(TarnError, match=r"cannot look, tried 3 times.*said") as caught:
        await retrying(clock, attempts=3)("look", server)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert (server.requests, len(clock.pauses)) == (3, 2)


async def test_nothing_is_begun_after_the_deadline() -> None:
    """Nor is a pause that would end after it."""
    clock = _Clock()
    server = _Server(clock, [Failure.BUSY] * 99, seconds=4)
    with pytest.raises(TarnError, match="tried 3 times"):
        await retrying(clock, attempts=99, deadline_seconds=10)("look", server)
    assert clock.now < 13


async def test_large_bodies_have_a_later_deadline() -> None:
    clock = _Clock()
    server = _Server(clock, [Failure.BUSY] * 5, seconds=4)
    run = retrying(clock, attempts=9, deadline_seconds=10)
    assert await run("write", server, 100 << 20) == "done"


@pytest.mark.parametrize("failure", [each for each in Failure if each is not Failure.BUSY])
async def test_definite_failure_is_not_repeated(failure: Failure) -> None:
    clock = _Clock()
    server = _Server(clock, [failure])
    with pytest.raises(CallError) as caught:
        await retrying(clock)("look", server)
    assert (caught.value.failure, server.requests) == (failure, 1)


async def test_no_more_requests_than_the_limit_are_under_way() -> None:
    """The next one waits, for one deadline at most."""
    run = retrying(_Clock(), requests=1, deadline_seconds=0.05)
    hold = asyncio.Event()

    async def held() -> str:
        await hold.wait()
        return "done"

    async with asyncio.TaskGroup() as group:
        first = group.create_task(run.once(held))
        await asyncio.sleep(0)
        with pytest.raises(TarnError, match="1 requests") as caught:
            await run.once(held)
        hold.set()
        assert await first == "done"
    assert caught.value.kind is Kind.EXHAUSTED
    assert await run.once(held) == "done"
