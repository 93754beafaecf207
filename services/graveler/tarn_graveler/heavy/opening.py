"""Opens the builder that a configuration selects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from tarn.block.committed import Committed
from tarn.config import Config, variables_of
from tarn.kv.port import Kv
from tarn.rpc.process.serve import Runtime
from tarn_graveler.branch.building import Builder, InlineBuilder
from tarn_graveler.heavy.builder import ProcessBuilder
from tarn_graveler.heavy.worker import WorkerLimits, start_process

__all__ = ["open_builder"]


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
