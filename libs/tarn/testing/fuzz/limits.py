"""What one input may take: processor time and memory.

Time is that of the processor, so that a busy machine makes no hangs. The alarm interrupts Python code;
C code that never comes back is for the watching process (`watching`). Memory is bounded twice: an
input must not raise the peak of the resident memory by much, and no allocation may pass a cap on the
address space, which a length that was believed does without ever touching the memory.
"""

from __future__ import annotations

import os
import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["HangError", "PeakMemory", "cap_address_space", "cpu_limit"]

_PEAK = re.compile(rb"VmHWM:\s+(\d+) kB")
_SIZE = re.compile(rb"VmSize:\s+(\d+) kB")


class HangError(BaseException):
    """An input took too long. No `Exception`: the code under test must not catch it."""


def _on_alarm(_signum: int, _frame: FrameType | None) -> None:
    raise HangError


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raises HangError in the main thread when the block has used up its processor time."""
    signal.signal(signal.SIGPROF, _on_alarm)
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.5)  # again, if it was lost in a destructor
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def cap_address_space(more_bytes: int) -> None:
    """From here on this process may map so many bytes more; an allocation beyond fails."""
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - no path of ours
        found = _SIZE.search(file.read())
    assert found is not None, "Linux says how large a process is"
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(found[1]) * 1024 + more_bytes, hard))


class PeakMemory:
    """The peak of this process' resident memory during an input.

    Not `ru_maxrss`, which a child inherits from the process that started it and which never falls.
    """

    def __init__(self) -> None:
        self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        self._reset = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        self._before = 0

    def begin(self) -> None:
        """What was there before does not count; 5 resets the peak (proc(5))."""
        os.write(self._reset, b"5")
        self._before = self._read()

    def growth(self) -> int:
        """How many bytes more than at the beginning there were at once."""
        return self._read() - self._before

    def _read(self) -> int:
        found = _PEAK.search(os.pread(self._status, 8192, 0))
        assert found is not None, "Linux says how large a process is"
        return int(found[1]) * 1024
