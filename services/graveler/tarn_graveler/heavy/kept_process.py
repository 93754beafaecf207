"""`KeptProcess`: one heavy process for as long as there is work for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from tarn.aio.backoff import backoff_seconds
from tarn.aio.task_set import TaskSet
from tarn.block.committed import BuildResult
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.rpc.wire.errors import unavailable_error
from tarn_graveler.branch.building import BuildOrder
from tarn_graveler.heavy.worker import HeavyProcess

__all__ = ["KeptProcess"]

_RETIRE_POLL_SECONDS = 1.0

_log = structlog.get_logger()


class KeptProcess:
    """A child that the first build starts, that ends after some time without one, and that is replaced if it dies.

    Args:
        start: starts a child.
        clock: clock for pauses.
        rng: randomises the pauses between failed starts.
        idle_s: after this time without a build, in seconds, the child ends and releases its memory.

    Attributes:
        starts: children that were started.
        deaths: children that ended unexpectedly.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[HeavyProcess]],
        clock: Clock,
        rng: random.Random,
        idle_s: float,
    ) -> None:
        self._start = start
        self._clock = clock
        self._rng = rng
        self._idle_s = idle_s
        self._changing = asyncio.Lock()  # guards the replacement of the child, not its use
        self._child: HeavyProcess | None = None
        self._failures = 0
        self.starts = self.deaths = 0
        self._used_at = 0.0
        self._tasks = TaskSet()
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""
        return None if self._child is None or self._child.is_over else self._child.pid

    @property
    def is_idle(self) -> bool:
        """Whether no build is running."""
        return self._child is None or self._child.is_idle

    async def build(self, order: BuildOrder) -> BuildResult:
        """Has the child build an order.

        Raises:
            TarnError: as `HeavyProcess.build`; UNAVAILABLE if no child can be started.
        """
        child = await self._running()
        try:
            result = await child.build(order)
        finally:
            self._used_at = self._clock.monotonic()
        self._failures = 0
        return result

    def renew(self, start: Callable[[], Awaitable[HeavyProcess]]) -> None:
        """Starts further children in another way, and ends the child when it has done its builds."""
        self._start = start
        child, self._child = self._child, None
        if child is not None:
            self._tasks.spawn(self._retire(child))

    async def close(self) -> None:
        """Ends the child and fails running builds; later builds are refused. Idempotent."""
        self._is_closed = True
        await self._tasks.close()
        async with self._changing:
            child, self._child = self._child, None
            if child is not None:
                await child.close()

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
                self._child = await self._start_newest()
            except TarnError as error:
                self._failures += 1
                _log.error("heavy process cannot be started", error=error.message)
                raise
            self.starts += 1
            self._used_at = self._clock.monotonic()
            self._tasks.spawn(self._watch(self._child))
            return self._child

    async def _start_newest(self) -> HeavyProcess:
        """Starts a child; again, if `renew` came meanwhile."""
        while True:
            start = self._start
            child = await start()
            if start is self._start:
                return child
            await child.close()

    async def _retire(self, child: HeavyProcess) -> None:
        try:
            while not (child.is_idle or child.is_over):
                await self._clock.sleep(_RETIRE_POLL_SECONDS)
        finally:
            await child.close()

    async def _watch(self, child: HeavyProcess) -> None:
        """Ends a child that has been idle for too long."""
        while child is self._child and not child.is_over:
            left = self._used_at + self._idle_s - self._clock.monotonic()
            if left > 0 or not child.is_idle:
                await self._clock.sleep(max(left, self._idle_s / 4))
                continue
            async with self._changing:
                # A build that took it meanwhile is visible here, because builds enter without waiting.
                if child is self._child and child.is_idle:
                    self._child = None
                    await child.close()
                    _log.info("idle heavy process ended", child=child.pid)
