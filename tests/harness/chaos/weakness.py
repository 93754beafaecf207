"""The guards that a chaos run can disable: those of the simulator, and one that only a crash shows."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.sim.lake_guards import GUARDS
from tests.support.faults.guards import Guard, Weakening

from tarn_graveler.branch.staging import Staging

__all__ = ["weaken"]

_LATE_SECONDS = 0.05

_stage = Staging.stage


async def _acknowledge_early(self: Staging, *args: Any, **options: Any) -> None:
    """Acknowledges a write while it is only in memory; it becomes durable a moment later."""
    task = asyncio.ensure_future(_late(self, *args, **options))
    _late_writes.add(task)
    task.add_done_callback(_late_writes.discard)


async def _late(self: Staging, *args: Any, **options: Any) -> None:
    await asyncio.sleep(_LATE_SECONDS)
    await _stage(self, *args, **options)


_late_writes: set[asyncio.Future[None]] = set()

_OWN = (
    Guard(
        "write-is-durable",
        "1",
        "I1 I4",
        "a write is acknowledged before its row is durable",
        (Weakening(Staging, "stage", _acknowledge_early),),
    ),
)


def weaken(name: str) -> None:
    """Disables a guard in this process.

    Raises:
        LookupError: there is no such guard.
    """
    (guard,) = [guard for guard in (*_OWN, *GUARDS) if guard.name == name]
    for weakening in guard.weakenings:
        setattr(weakening.owner, weakening.name, weakening.instead)
