"""`ProcessBuilder`: keeps large builds out of the process that serves requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Self

import structlog

from tarn.block.committed import BuildResult, Committed
from tarn.config import Config, variables_of
from tarn.core.clock import Clock
from tarn.kv.port import Kv
from tarn.rpc.process.serve import Runtime
from tarn_graveler.branch.building import (
    Builder,
    BuildOrder,
    InlineBuilder,
    again,
    build_layers,
    rows_batch,
)
from tarn_graveler.heavy.kept_process import KeptProcess
from tarn_graveler.heavy.priority import Priority
from tarn_graveler.heavy.weighing import few_rows, rows_apart, rows_touched
from tarn_graveler.heavy.worker import HeavyProcess, WorkerLimits, start_process

__all__ = ["HeavyLimits", "ProcessBuilder", "open_builder"]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HeavyLimits:
    """Decides when the child is used. A build in the child takes as long as in process, and saves 90 % of the processor
    time of this process. So the bounds only decide which commits are too small to justify 75 MiB of a second process.

    Attributes:
        rows_here: greatest number of staged rows of a build that is done in the replica itself.
        rows_rewritten_here: greatest number of rows in the ranges that those rows touch.
        builds: greatest number of concurrent builds for which callers wait; others wait for their turn.
        background_s: a build of a compaction that takes longer, in seconds, with the start of its child, is done by the
            other child: the machine is too busy for work that yields to everything.
        starved_s: for so long after that, in seconds, compactions are built there at once.
        idle_s: after this time without a build, in seconds, a child ends and releases its memory.
    """

    rows_here: int = 1_000
    rows_rewritten_here: int = 100_000
    builds: int = 2
    background_s: float = 20.0
    starved_s: float = 600.0
    idle_s: float = 300.0


class ProcessBuilder:
    """A `Builder` with two child processes, one for builds for which callers wait and one for compactions. Each is
    started by the first large build of its kind, and again after it ended.

    Enter it before the first build; leaving it ends the children and fails running builds.

    Args:
        start: starts a child of a priority.
        kv: store that small builds read.
        committed: listings that small builds use.
        clock: clock for pauses.
        rng: randomises the pauses between failed starts.
        limits: see `HeavyLimits`.

    Attributes:
        running: builds that have their turn.
        waiting: builds that wait for it.
    """

    def __init__(
        self,
        start: Callable[[Priority], Awaitable[HeavyProcess]],
        kv: Kv,
        committed: Committed,
        clock: Clock,
        rng: random.Random,
        limits: HeavyLimits | None = None,
    ) -> None:
        self._kv = kv
        self._committed = committed
        self._clock = clock
        self._limits = limits or HeavyLimits()
        self._children = {
            priority: KeptProcess(partial(start, priority), clock, rng, self._limits.idle_s)
            for priority in Priority
        }
        # With a compaction that starves, `builds` + 1 builds share the child of the callers.
        self._rooms = {
            Priority.REQUESTED: asyncio.Semaphore(self._limits.builds),
            Priority.BACKGROUND: asyncio.Semaphore(1),
        }
        self._starved_until = -inf
        self.running = self.waiting = 0

    @property
    def pid(self) -> int | None:
        """Process id of the child for callers; None while there is none."""
        return self._children[Priority.REQUESTED].pid

    @property
    def processes(self) -> int:
        """Number of children that run."""
        return sum(child.pid is not None for child in self._children.values())

    @property
    def starts(self) -> int:
        """Number of children that were started."""
        return sum(child.starts for child in self._children.values())

    @property
    def deaths(self) -> int:
        """Number of children that ended unexpectedly."""
        return sum(child.deaths for child in self._children.values())

    def renew(self, start: Callable[[Priority], Awaitable[HeavyProcess]]) -> None:
        """Starts further children in another way, and ends those that run when they have done their builds."""
        for priority, child in self._children.items():
            child.renew(partial(start, priority))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        async with asyncio.TaskGroup() as group:
            for child in self._children.values():
                group.create_task(child.close())

    async def build(self, order: BuildOrder) -> BuildResult:
        """See `Builder.build`."""
        layers = await few_rows(self._kv, order.tokens, self._limits.rows_here, order.reset)
        if layers is not None:
            if order.rows:
                layers.insert(0, [rows_batch(order.rows)])
            base = await self._committed.metarange(order.namespace, order.base)
            most = self._limits.rows_rewritten_here
            rows = rows_touched(base, layers, most)
            if order.head is not None:
                head = await self._committed.metarange(order.namespace, order.head)
                if order.counts_changes:
                    rows += rows_apart(base, head, order.reset)
                else:
                    rows += rows_touched(head, layers, most)
            if rows <= most:
                streams = [again(batches) for batches in layers]
                return await build_layers(self._kv, self._committed, order, streams)
        del layers
        priority = Priority.BACKGROUND if order.is_background else Priority.REQUESTED
        async with self._room_of(priority):
            if priority is Priority.BACKGROUND:
                return await self._build_behind(order)
            return await self._children[priority].build(order)

    @asynccontextmanager
    async def _room_of(self, priority: Priority) -> AsyncIterator[None]:
        """Waits for a turn, and counts."""
        self.waiting += 1
        try:
            await self._rooms[priority].acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._rooms[priority].release()

    async def _build_behind(self, order: BuildOrder) -> BuildResult:
        """Builds while the machine has nothing else to do; if that takes too long, beside the builds of callers.

        No record refers to the files of the first attempt, and the second one writes the same files.
        """
        if self._clock.monotonic() >= self._starved_until:
            try:
                async with asyncio.timeout(self._limits.background_s):
                    return await self._children[Priority.BACKGROUND].build(order)
            except TimeoutError:
                self._starved_until = self._clock.monotonic() + self._limits.starved_s
                _log.warning(
                    "the machine is too busy to build a compaction in the background",
                    seconds=self._limits.background_s,
                )
        return await self._children[Priority.REQUESTED].build(order)


@asynccontextmanager
async def open_builder(
    config: Config, runtime: Runtime, kv: Kv, committed: Committed
) -> AsyncIterator[Builder]:
    """Opens a builder over the stores of this process; its child processes, if any, end with the block."""
    if not config.graveler.heavy_process:
        yield InlineBuilder(kv, committed)
        return

    def starter(now: Config) -> Callable[[Priority], Awaitable[HeavyProcess]]:
        return partial(start_process, variables_of(now), runtime.clock, WorkerLimits())

    async with ProcessBuilder(
        starter(config), kv, committed, runtime.clock, runtime.rng
    ) as builder:
        used = config

        async def renew(changed: Config) -> None:
            nonlocal used
            if changed != used:
                used = changed
                builder.renew(starter(changed))

        runtime.secrets.subscribe(renew)
        yield builder
