"""What processes cost, from /proc: CPU time, memory, open files. And where they may run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Processes", "pinned"]

_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def pinned(cores: set[int] | None) -> Iterator[None]:
    """Processes that are started inside may run on these cores only; None: anywhere."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Processes:
    """A server's processes.

    Args:
        pids: of all that work for it; what they start later is not counted but by `with_children`.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = tuple(pids)

    def with_children(self) -> Processes:
        """These, and all processes below them as of now."""
        parents: dict[int, int] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):
                    stat = (folder / "stat").read_text()
                    parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
        found = set(self.pids)
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return Processes(sorted(found))

    def cpu_s(self) -> float:
        """User and system time so far, of those that live. Steps of 10 ms each."""
        total = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    def rss_mib(self) -> float:
        """Resident memory now, of the largest one."""
        return max((_status_mib(pid, "VmRSS") for pid in self.pids), default=0.0)

    def anonymous_mib(self) -> float:
        """Resident memory now, of the largest one, without what is mapped from files: the kernel takes
        that back when it likes, so it tells nothing of a leak."""
        return max((_status_mib(pid, "RssAnon") for pid in self.pids), default=0.0)

    def peak_rss_mib(self) -> float:
        """The most since `forget_peak`, of the largest one."""
        return max((_status_mib(pid, "VmHWM") for pid in self.pids), default=0.0)

    def forget_peak(self) -> None:
        """Starts the peak again from what is resident now."""
        for pid in self.pids:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def open_files(self) -> int:
        """Descriptors of all of them."""
        total = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                total += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        return total


def _status_mib(pid: int, name: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
    return 0.0
