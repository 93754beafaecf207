"""Children of a builder that end their builds when a test says so, and looks at real ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

import psutil
from heavy_stores import Stores
from slowness import scaled

from tarn.block.committed import BuildResult
from tarn.rpc.process.system import SystemClock
from tarn_graveler.branch.building import BuildOrder
from tarn_graveler.heavy.builder import HeavyLimits, ProcessBuilder
from tarn_graveler.heavy.priority import Priority
from tarn_graveler.heavy.worker import HeavyProcess

__all__ = ["SECONDS", "SlowChild", "SlowChildren", "lives", "pid_of", "slow_builder", "until"]

SECONDS = scaled(60)


def pid_of(builder: ProcessBuilder) -> int:
    assert builder.pid is not None
    return builder.pid


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_so():  # noqa: ASYNC110 - other processes set no event here
            await asyncio.sleep(0.01)


class SlowChild:
    """A child whose builds end when the test says so."""

    pid, is_over = 1, False

    def __init__(self) -> None:
        self.begun: list[BuildOrder] = []
        self.may_end = asyncio.Event()
        self.is_closed = False
        self._running = 0

    @property
    def is_idle(self) -> bool:
        return self._running == 0

    async def build(self, order: BuildOrder) -> BuildResult:
        self.begun.append(order)
        self._running += 1
        await self.may_end.wait()
        self._running -= 1
        return BuildResult(order.base, False, 0, 0, 0, 0, 0, 0, 0)

    async def close(self) -> None:
        self.is_closed = True


class SlowChildren:
    """Starts a slow child of each priority; one that is missing here cannot be started in time."""

    def __init__(self, *priorities: Priority) -> None:
        self.children = {priority: SlowChild() for priority in priorities}
        self.starts: list[Priority] = []

    async def start(self, priority: Priority) -> HeavyProcess:
        self.starts.append(priority)
        if priority not in self.children:
            await asyncio.Event().wait()
        return cast("HeavyProcess", self.children[priority])


def slow_builder(
    stores: Stores, children: SlowChildren, clock: SystemClock, limits: HeavyLimits
) -> ProcessBuilder:
    return ProcessBuilder(
        children.start, stores.kv, stores.committed, clock, random.Random(0), limits
    )
