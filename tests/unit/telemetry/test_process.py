"""Metrics of the process itself are read from the running process."""

from __future__ import annotations

import asyncio
import os
import time

from tests.support.clock import ManualClock

from tarn.telemetry.meters import Meters
from tarn.telemetry.process import LAG_PERIOD_SECONDS, measure_loop_lag, register_process


def value(meters: Meters, name: str) -> float:
    ((_, found),) = meters.samples(name)
    return found


def test_the_gauges_follow_the_process() -> None:
    meters, clock = Meters(), ManualClock()
    register_process(meters, clock, "toy", "1.2.3")
    assert list(meters.samples("build.info")) == [({"service": "toy", "version": "1.2.3"}, 1)]
    assert value(meters, "process.start_time") == clock.now_us() / 1_000_000
    assert value(meters, "process.cpu") > 0
    assert value(meters, "process.threads") >= 1
    assert value(meters, "process.resident_memory") > 1 << 20
    before = value(meters, "process.open_files")
    read_fd, write_fd = os.pipe()
    assert value(meters, "process.open_files") == before + 2
    os.close(read_fd)
    os.close(write_fd)


async def test_a_blocked_loop_is_recorded_as_lag() -> None:
    meters = Meters()
    task = asyncio.get_running_loop().create_task(measure_loop_lag(meters))
    await asyncio.sleep(0)
    time.sleep(LAG_PERIOD_SECONDS + 0.3)  # noqa: ASYNC251 - the fault that is measured
    while not value(meters, "process.loop_lag.count"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert value(meters, "process.loop_lag.sum") >= 0.3
