"""A change of a branch record whose answer is lost, and whose settling read finds a later record."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from lake import Lake, Running, reached
from tests.support.faults.gates import HeldOperation

__all__ = ["lose_and_hold"]

T = TypeVar("T")


async def lose_and_hold(
    lake: Lake, running: Running, work: Coroutine[Any, Any, T]
) -> tuple[asyncio.Task[T], HeldOperation]:
    """Starts work whose first compare-and-set of the record of `main` is applied, and its answer lost.

    Returns the work, and the settling read, which is held: whatever a test does now comes before it.
    """
    change = lake.kv.hold("set_if", lake.branch_key)
    task = running.start(work)
    await reached(change)
    lake.kv.lose("set_if", lake.branch_key, applied=True)
    settling = lake.kv.hold("get_many", lake.branch_key)
    change.open()
    await reached(settling)
    return task, settling
