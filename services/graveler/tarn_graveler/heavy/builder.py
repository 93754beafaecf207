"""`ProcessBuilder`: keeps large builds out of the process that serves requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

import structlog

from tarn.aio.backoff import backoff_seconds
from tarn.aio.task_set import TaskSet
from tarn.block.committed import BuildResult, Committed
from tarn.config import Config, variables_of
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.kv.port import Kv
from tarn.rpc.process.serve import Runtime
from tarn.rpc.wire.errors import unavailable_error
from tarn_graveler.branch.building import Builder, BuildOrder, InlineBuilder
from tarn_graveler.heavy.weighing import again, few_rows, rows_apart, rows_touched
from tarn_graveler.heavy.worker import HeavyProcess, WorkerLimits, start_process

__all__ = ["HeavyLimits", "ProcessBuilder", "open_builder"]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HeavyLimits:
    """Decides when the child is used. A build in the child takes as long as in process (and saves 90 % of
    the processor time of this process), so the bounds only decide which commits are too small to justify
    75 MiB of a second process.

    Attributes:
        rows_here: greatest number of staged rows of a build that is done in the replica itself.
        rows_rewritten_here: greatest number of rows in the ranges that those rows touch.
        builds: greatest number of concurrent builds in the child; others wait. One of them is kept free of background
            builds, unless there is only one.
        idle_s: after this time without a build, in seconds, the child ends and releases its memory.
    """

    rows_here: int = 1_000
    rows_rewritten_here: int = 100_000
    builds: int = 2
    idle_s: float = 300.0


class ProcessBuilder:
    """A `Builder` with a child process, started by the first large build and again after the child ended.

    Enter it before the first build; leaving it ends the child and fails running builds.

    Args:
        start: starts a child.
        kv: store that small builds read.
        committed: listings that small builds use.
        clock: clock for pauses.
        rng: randomises the pauses between failed starts.
        limits: see `HeavyLimits`.

    Attributes:
        running: builds in the child.
        waiting: builds that wait for room in it.
        starts: children that were started.
        deaths: children that ended although nobody asked for it.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[HeavyProcess]],
        kv: Kv,
        committed: Committed,
        clock: Clock,
        rng: random.Random,
        limits: HeavyLimits | None = None,
    ) -> None:
        self._start = start
        self._kv = kv
        self._committed = committed
        self._clock = clock
        self._rng = rng
        self._limits = limits or HeavyLimits()
        self._room = asyncio.Semaphore(self._limits.builds)
        self._background_room = asyncio.Semaphore(max(1, self._limits.builds - 1))
        self._changing = asyncio.Lock()  # guards the replacement of the child, not its use
        self._child: HeavyProcess | None = None
        self._failures = 0
        self._used_at = 0.0
        self._tasks = TaskSet()
        self._is_closed = False
        self.running = self.waiting = self.starts = self.deaths = 0

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""
        return None if self._child is None or self._child.is_over else self._child.pid

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._is_closed = True
        await self._tasks.close()
        async with self._changing:
            child, self._child = self._child, None
            if child is not None:
                await child.close()

    async def build(self, order: BuildOrder) -> BuildResult:
        """See `Builder.build`."""
        layers = await few_rows(self._kv, order.tokens, self._limits.rows_here, order.reset)
        if layers is not None:
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
                return await self._committed.build(
                    order.namespace,
                    order.base,
                    streams,
                    head=order.head,
                    restored=order.reset,
                    counts_changes=order.counts_changes,
                )
        del layers
        self.waiting += 1
        waits = ExitStack()
        waits.callback(self._begin)
        with waits:
            if order.is_background:
                async with self._background_room:
                    return await self._build_there(order, waits)
            return await self._build_there(order, waits)

    def _begin(self) -> None:
        self.waiting -= 1

    async def _build_there(self, order: BuildOrder, waits: ExitStack) -> BuildResult:
        """Builds in the child, when it has room; `waits` ends with the waiting."""
        async with self._room:
            child = await self._running()
            waits.close()
            self.running += 1
            try:
                result = await child.build(order)
            finally:
                self.running -= 1
                self._used_at = self._clock.monotonic()
        self._failures = 0
        return result

    async def _running(self) -> HeavyProcess:
        """Returns the child; starts one if there is none, after a pause if the last starts failed.

        Raises:
            TarnError: UNAVAILABLE.
        """
        async with self._changing:
            if self._child is not None and not self._child.is_over:
                return self._child
            if self._child is not None:
                child, self._child = self._child, None
                self._failures += 1
                self.deaths += 1
                await child.close()
            if self._failures > 1:
                await self._clock.sleep(backoff_seconds(self._rng, self._failures - 2))
            if self._is_closed:
                raise unavailable_error("this replica is stopping; nothing was committed")
            try:
                self._child = await self._start()
            except TarnError as error:
                self._failures += 1
                _log.error("heavy process cannot be started", error=error.message)
                raise
            self.starts += 1
            self._used_at = self._clock.monotonic()
            self._tasks.spawn(self._watch(self._child))
            return self._child

    async def _watch(self, child: HeavyProcess) -> None:
        """Ends a child that has been idle for too long."""
        while child is self._child and not child.is_over:
            left = self._used_at + self._limits.idle_s - self._clock.monotonic()
            if left > 0 or not child.is_idle:
                await self._clock.sleep(max(left, self._limits.idle_s / 4))
                continue
            async with self._changing:
                # A build that took it meanwhile is visible here, because builds enter without waiting.
                if child is self._child and child.is_idle:
                    self._child = None
                    await child.close()
                    _log.info("idle heavy process ended", child=child.pid)


@asynccontextmanager
async def open_builder(
    config: Config, runtime: Runtime, kv: Kv, committed: Committed
) -> AsyncIterator[Builder]:
    """Opens a builder over the stores of this process; its child process, if any, ends with the block."""
    if not config.graveler.heavy_process:
        yield InlineBuilder(kv, committed)
        return
    start = partial(start_process, variables_of(config), runtime.clock, WorkerLimits())
    async with ProcessBuilder(start, kv, committed, runtime.clock, runtime.rng) as builder:
        yield builder
