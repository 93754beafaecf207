"""Metrics of the process itself: memory, files, processor time, and the lag of the event loop."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from pathlib import Path
from typing import Final

from tarn.core.clock import Clock
from tarn.telemetry.meters import Meters

__all__ = ["LAG_PERIOD_SECONDS", "measure_loop_lag", "register_process"]

LAG_PERIOD_SECONDS: Final = 0.25

_STATM: Final = Path("/proc/self/statm")
_FILES: Final = "/proc/self/fd"
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def register_process(meters: Meters, clock: Clock, service: str, version: str) -> None:
    """Registers the gauges of the process. They are absent where the system has no `/proc`."""
    start = clock.now_us() / 1_000_000
    meters.sample("build.info", lambda: 1, service=service, version=version)
    meters.sample("process.start_time", lambda: start)
    meters.sample("process.clock", lambda: clock.now_us() / 1_000_000)
    meters.sample("process.cpu", _cpu_seconds)
    meters.sample("process.open_files_max", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    meters.sample("process.threads", threading.active_count)
    if _STATM.exists():
        meters.sample("process.resident_memory", _resident_bytes)
        meters.sample("process.open_files", lambda: len(os.listdir(_FILES)))  # noqa: PTH208 - cheaper


async def measure_loop_lag(meters: Meters) -> None:
    """Records how late timers of the running loop fire; runs until it is cancelled."""
    lag = meters.histogram("process.loop_lag")
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PERIOD_SECONDS
        await asyncio.sleep(LAG_PERIOD_SECONDS)
        lag.record(max(0.0, loop.time() - due))


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
