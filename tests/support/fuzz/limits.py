"""Limits of one input: processor time and memory.

Time is processor time, so that a busy machine does not report hangs. The alarm interrupts Python code; C
code that never returns is ended by the watching process (`watching`). Memory is bounded in two ways: an
input must not raise the peak of the resident memory by much, and no allocation may exceed a cap on the
address space. The cap catches a parser that trusts a length field and allocates memory without touching
it.
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
    """An input took too long. Not an `Exception`, so that the code under test does not catch it."""


def _on_alarm(_signum: int, _frame: FrameType | None) -> None:
    raise HangError


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raises HangError in the main thread when the block has used up its processor time, in seconds."""
    signal.signal(signal.SIGPROF, _on_alarm)
    signal.setitimer(
        signal.ITIMER_PROF, seconds, 0.5
    )  # repeated, because a destructor may swallow the error
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def cap_address_space(more_bytes: int) -> None:
    """Allows this process to map `more_bytes` more from now on; a larger allocation fails."""
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - not a file of Tarn
        found = _SIZE.search(file.read())
    assert found is not None, "/proc/self/status has no such line"
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(found[1]) * 1024 + more_bytes, hard))


class PeakMemory:
    """Measures the peak of this process' resident memory during an input.

    It does not use `ru_maxrss`, which a child inherits from its parent and which never falls.
    """

    def __init__(self) -> None:
        self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        self._reset = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        self._before = 0

    def begin(self) -> None:
        """Resets the peak by writing 5 (proc(5)), so that earlier memory does not count."""
        os.write(self._reset, b"5")
        self._before = self._read()

    def growth(self) -> int:
        """Returns by how many bytes the peak exceeds the memory at the beginning."""
        return self._read() - self._before

    def _read(self) -> int:
        found = _PEAK.search(os.pread(self._status, 8192, 0))
        assert found is not None, "/proc/self/status has no such line"
        return int(found[1]) * 1024
