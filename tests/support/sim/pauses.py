"""Pauses of processes, between any two of their steps.

Swapping, a garbage collection or a full thread pool can stop a process, which does not notice it. The loop
asks before each step of a task; steps and timers that are due during a pause run after it. The context of a
callback names its process: tasks inherit it from the task that starts them, and sent requests (`Wire`) run
in a context without a process.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar

from tests.support.sim.faults import FaultInjector

__all__ = ["STRAND", "Process", "Strand"]

_ALL_RATE = 0.3
"""Share of the pauses that stop the whole process; the others stop one task, as a full thread pool would."""


class Process:
    """One process of the installation.

    Args:
        faults: says how often the process pauses and for how long.
        rng: random generator of this process.

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

    def stop(self, until: float) -> None:
        """Pauses the whole process."""
        self.pauses += 1
        self._until = until

    def until(self, task: asyncio.Task[object] | None, now: float, *, may_stop: bool) -> float:
        """Returns the time until which a step must wait; it may run at once if that is `now` or earlier.

        Args:
            task: the task that the step belongs to; None for a timer or a callback.
            now: time of the loop.
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
    """A part of the work of a process.

    Args:
        process: the process.
        may_stop: whether pauses may begin in it. They do not in a cleaner, which polls: it would get most
            of them.
    """

    __slots__ = ("may_stop", "process")

    def __init__(self, process: Process, *, may_stop: bool) -> None:
        self.process = process
        self.may_stop = may_stop


STRAND: ContextVar[Strand | None] = ContextVar("strand", default=None)
"""The strand that the running code belongs to; None for code outside the processes."""
