"""The closed loop of driver-level requests, and ratios of measurements in the same rounds."""

import asyncio
from array import array

import pytest
from bench.load.cases.cassandra_kv import closed_loop, compared
from bench.load.client import Measured
from bench.load.table import Row

from tarn.core.errors import Kind, Reason, TarnError

ROW = Row("cassandra-kv", "set")


def run_of(count: int, seconds: float = 1.0) -> Measured:
    return Measured(seconds=seconds, latencies_s=array("d", [0.001] * count))


async def test_the_loop_keeps_its_concurrency_and_numbers_requests_uniquely() -> None:
    under_way = most = 0
    seen: list[tuple[int, int]] = []

    async def operation(task: int, number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        seen.append((task, number))
        await asyncio.sleep(0)
        under_way -= 1

    measured = await closed_loop(operation, 5, 0.3)
    assert most == 5
    assert {task for task, _ in seen} == set(range(5))
    assert [number for _, number in seen] == list(range(len(seen)))
    assert measured.count == len(seen)
    assert measured.seconds >= 0.3


async def test_refused_requests_are_counted_apart_and_too_many_end_the_run() -> None:
    async def operation(_task: int, number: int) -> None:
        await asyncio.sleep(0)
        if number % 2:
            raise TarnError(Kind.UNAVAILABLE, Reason.OVERLOADED, "no")

    async with asyncio.timeout(20):
        measured = await closed_loop(operation, 1, 600)
    assert measured.is_hopeless
    assert measured.failures.total() <= measured.count
    assert measured.first_failure == "no"


async def test_a_bug_of_the_benchmark_ends_it() -> None:
    async def operation(_task: int, _number: int) -> None:
        raise RuntimeError("bug")

    with pytest.raises(ExceptionGroup):
        await closed_loop(operation, 1, 600)


def test_a_ratio_is_of_the_same_round() -> None:
    row = compared(ROW, [run_of(10), run_of(30), run_of(5)], "get", [run_of(20)] * 3)
    assert (row.ratio_low, row.ratio, row.ratio_high) == (0.25, 0.5, 1.5)
    assert row.yardstick == "get: 20/s"


def test_without_another_there_is_no_ratio() -> None:
    assert compared(ROW, [run_of(10)], "", ()) == ROW
