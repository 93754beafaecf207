"""Shows the progress of long work again and again while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tarn.core.clock import Clock

__all__ = ["ticking"]

_TICK_S: Final = 0.25


@asynccontextmanager
async def ticking(show: Callable[[], None], clock: Clock) -> AsyncIterator[None]:
    """Calls `show` at once and every quarter of a second, as long as the block runs.

    Raises:
        ExceptionGroup: as an `asyncio.TaskGroup`, of an error of the block or of `show`.
    """

    async def tick() -> None:
        while True:
            show()
            await clock.sleep(_TICK_S)

    async with asyncio.TaskGroup() as group:
        ticks = group.create_task(tick())
        yield
        ticks.cancel()
