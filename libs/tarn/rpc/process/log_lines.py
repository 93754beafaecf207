"""Writes rendered log lines: one write for all lines of a tick of the event loop.

A busy process writes a line per request, and a system call per line took a fiftieth of the time of a small
request. Only lines below the level of a warning may wait for the end of the tick, some milliseconds. A
process that is killed before then loses those lines and nothing else. Warnings and errors are written
immediately, after the waiting lines.

This is no `tarn.aio.batcher.TickBatch`, because a batch belongs to one event loop. Here any thread may log, all
lines keep their order, and lines that an ended loop left are written with those of the next loop.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TextIO

__all__ = ["LogLines"]

_WAITING_MAX = 256


class LogLines:
    """The innermost logger of structlog; its methods are named after the levels. Safe to use from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # Held by whoever writes, so that lines keep their order. Adding a line needs no lock: see `flush`.
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        # Whether the loop will call `flush`. Set before the call is scheduled, cleared before it looks.
        self._is_due = False
        # The loop that calls `flush`, and its thread; asking for the running loop is a system call.
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None

    def info(self, line: str) -> None:
        """Writes a line at the end of the loop's tick; immediately in a thread without a loop."""
        home = self._home
        if home is None or home[1] != threading.get_ident() or not home[0].is_running():
            try:
                home = self._home = asyncio.get_running_loop(), threading.get_ident()
            except RuntimeError:
                self.error(line)
                return
            self._is_due = False  # the flush of a closed loop never comes
        waiting = self._waiting
        waiting.append(line)
        if not self._is_due:
            self._is_due = True
            home[0].call_soon(self.flush)  # also writes the lines that a closed loop has left
        elif len(waiting) >= _WAITING_MAX:
            self.flush()

    def error(self, line: str) -> None:
        """Writes a line immediately."""
        self._waiting.append(line)
        self.flush()

    debug = info
    warning = critical = error

    def flush(self) -> None:
        """Writes the waiting lines. A line that another thread adds meanwhile stays behind those that are written."""
        with self._lock:
            self._is_due = False
            waiting = self._waiting
            lines = waiting[:]
            del waiting[: len(lines)]
            if lines:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
