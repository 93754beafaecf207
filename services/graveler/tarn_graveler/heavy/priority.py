"""How far a heavy process steps back behind the requests of the machine.

A build has several threads, and a niceness counts for each of them: four threads at niceness 5 weigh more than one at
0. Moreover the kernel lets a thread that runs keep its core until the next tick, up to 4 ms, whatever wakes up
meanwhile. Only a thread under SCHED_IDLE yields at once. So compactions, for which no caller waits, run under
SCHED_IDLE.

An ordinary process cannot leave SCHED_IDLE again, so builds for which a caller waits need a process of their own.
"""

from __future__ import annotations

import contextlib
import enum
import os
from pathlib import Path

__all__ = ["Priority", "step_back"]


class Priority(enum.Enum):
    """The builds of a heavy process, as in its command line.

    REQUESTED: builds for which a caller waits. Niceness 5 above the parent's.
    BACKGROUND: builds of compactions. SCHED_IDLE, where the system has it; niceness 19.
    """

    REQUESTED = "requested"
    BACKGROUND = "background"


_NICE = {Priority.REQUESTED: 5, Priority.BACKGROUND: 19}
_OOM_SCORES = {Priority.REQUESTED: "500", Priority.BACKGROUND: "600"}
"""Of 1000: when memory runs out, the kernel kills these processes rather than the one that serves requests."""


def step_back(priority: Priority) -> None:
    """Lowers the priority of this process for processor and memory; continues if that is not permitted.

    Call it before this process has other threads and before it imports anything large: threads inherit it, and the
    imports take most of a second of processor time.
    """
    with contextlib.suppress(OSError):
        os.nice(_NICE[priority])
    if priority is Priority.BACKGROUND and hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORES[priority])
