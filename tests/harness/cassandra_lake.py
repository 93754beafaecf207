"""Graveler replicas in this process on a real store, with adjustable clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tarn.aio.task_set import TaskSet
from tarn.block.mem import MemBlockStore
from tarn.kv.port import Kv
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.config import open_committed

__all__ = ["ShiftedClock", "replica_on"]


class ShiftedClock:
    """This machine's clock, whose wall clock is `shift_seconds` ahead."""

    def __init__(self, shift_seconds: float = 0.0) -> None:
        self.shift_seconds = shift_seconds
        self._clock = SystemClock()

    def now_us(self) -> int:
        return self._clock.now_us() + int(self.shift_seconds * 1e6)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@asynccontextmanager
async def replica_on(
    kv: Kv,
    blocks: MemBlockStore,
    folder: Path,
    clock: ShiftedClock,
    settings: GravelerSettings | None = None,
) -> AsyncIterator[Graveler]:
    """Yields one replica; its cleaner and its drain do not run."""
    tasks = TaskSet()
    async with open_committed(blocks, folder) as committed:
        yield assemble(
            settings=settings or GravelerSettings("test"),
            kv=kv,
            blocks=blocks,
            committed=committed,
            clock=clock,
            ids=SystemIds(clock),
            tasks=tasks,
        )
        await tasks.close()
