"""Where rendered log lines go out: one write for all lines of a tick of the event loop.

A busy process writes a line per request, and a system call per line was a fiftieth of a small request.
Only what tells that all is well may wait for the end of its tick, some milliseconds: a process that is
killed meanwhile loses those lines and nothing else. Warnings and errors go out at once, behind what
waits.

No `tarn.aio.batcher.TickBatch`: that one belongs to one loop, while any thread logs, in one order, and what a
loop that has ended left comes with the next one's lines.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TextIO

__all__ = ["LogLines"]

_WAITING_MAX = 256


class LogLines:
    """The innermost logger of structlog; its methods are named for the levels. Any thread may use it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        # The loop that calls `flush`, and its thread; asking for the running one is a system call.
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None

    def info(self, line: str) -> None:
        """Writes a line at the next tick of the loop; at once in a thread without a loop."""
        home, thread = self._home, threading.get_ident()
        if home is None or home[1] != thread or not home[0].is_running():
            try:
                home = self._home = asyncio.get_running_loop(), thread
            except RuntimeError:
                self.error(line)
                return
            home[0].call_soon(self.flush)  # also what a loop that ended has left
        with self._lock:
            self._waiting.append(line)
            count = len(self._waiting)
        if count == 1:
            home[0].call_soon(self.flush)
        elif count >= _WAITING_MAX:
            self.flush()

    def error(self, line: str) -> None:
        """Writes a line now."""
        with self._lock:
            self._waiting.append(line)
        self.flush()

    debug = info
    warning = critical = error

    def flush(self) -> None:
        """Writes what waits."""
        with self._lock:
            lines, self._waiting = self._waiting, []
            if lines:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
