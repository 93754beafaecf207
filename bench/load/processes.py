"""Cost of processes, from /proc: CPU time, memory, open files; and pinning to cores."""

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
    """Processes that are started in the block may use only these cores; None: all."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Processes:
    """The processes of a server.

    Args:
        pids: process ids of the server; processes that they start later count only by `with_children`.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = tuple(pids)

    def with_children(self) -> Processes:
        """Returns these processes and all processes below them, as of now."""
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
        """User and system time so far of the living processes, in seconds, in steps of 10 ms each."""
        total = 0
        for pid in self.pids:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    def rss_mib(self) -> float:
        """Current resident memory of the largest process, in MiB."""
        return max((_status_mib(pid, "VmRSS") for pid in self.pids), default=0.0)

    def anonymous_mib(self) -> float:
        """Current resident memory of the largest process without mapped files, in MiB.

        The kernel can reclaim mapped files at any time, so they do not indicate a leak.
        """
        return max((_status_mib(pid, "RssAnon") for pid in self.pids), default=0.0)

    def peak_rss_mib(self) -> float:
        """Peak memory of the largest process since `forget_peak`, in MiB."""
        return max((_status_mib(pid, "VmHWM") for pid in self.pids), default=0.0)

    def forget_peak(self) -> None:
        """Resets the peak to the current resident memory."""
        for pid in self.pids:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    def open_files(self) -> int:
        """Number of open files of all processes."""
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
