"""Processes that stand still for a while between any two of their steps, and go on as if nothing had been.

A machine that swaps, a garbage collection, a thread pool that is full: the process knows nothing of it. The
loop asks before each step of a task; whose step is due during a pause gets it afterwards, and so do timers.
Which process a callback belongs to is in its context: what a process starts inherits it, and what it has
sent (`Wire`) has none.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar

from tarn.testing.sim.faults import FaultInjector

__all__ = ["STRAND", "Process", "Strand"]

_ALL_RATE = 0.3
"""Pauses that stop the whole process; the others stop one task, as a full thread pool would."""


class Process:
    """One process of the installation.

    Args:
        faults: how often, and how long.
        rng: of this process.

    Attributes:
        pauses: how many pauses it had.
        put_off: numbers of the loop's timers for steps that waited for the end of a pause.
    """

    def __init__(self, faults: FaultInjector, rng: random.Random) -> None:
        self._faults = faults
        self._random = rng
        self._until = 0.0
        self._tasks: dict[asyncio.Task[object], float] = {}
        self._is_killed = False
        self.pauses = 0
        self.put_off: set[int] = set()

    def kill(self) -> None:
        """Ends its pause, and allows no other one. Otherwise the end of a task that is cancelled would wait."""
        self._is_killed = True

    def until(self, task: asyncio.Task[object] | None, now: float, *, may_stop: bool) -> float:
        """Until when a step has to wait; `now` or earlier: it may run.

        Args:
            task: whose step; None: of a timer or a callback.
            now: of the loop's clock.
            may_stop: whether a pause may begin with this step.
        """
        if self._is_killed:
            return now
        if self._until > now:
            return self._until
        if task is None:
            return now
        end = self._tasks.pop(task, now)
        if end > now:
            self._tasks[task] = end
            return end
        profile = self._faults.profile
        if may_stop and profile.pause_rate and self._random.random() < profile.pause_rate:
            return self._stop(task, now)
        return now

    def _stop(self, task: asyncio.Task[object], now: float) -> float:
        self.pauses += 1
        end = now + self._random.uniform(0.1, 1.0) * self._faults.profile.pause_seconds
        if self._random.random() < _ALL_RATE:
            self._until = end
        else:
            self._tasks[task] = end
        return end


class Strand:
    """Part of what a process does.

    Args:
        process: whose.
        may_stop: whether pauses begin in it. A cleaner that polls would have most of them.
    """

    __slots__ = ("may_stop", "process")

    def __init__(self, process: Process, *, may_stop: bool) -> None:
        self.process = process
        self.may_stop = may_stop


STRAND: ContextVar[Strand | None] = ContextVar("strand", default=None)
"""What the running code belongs to; None: to the world around the processes."""
