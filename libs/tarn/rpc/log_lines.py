"""Where rendered log lines go out: one write for all lines of a turn of the event loop.

A busy process writes a line per request, and a system call per line was a fiftieth of a small request.
Only what tells that all is well may wait for the end of its turn, some milliseconds: a process that is
killed meanwhile loses those lines and nothing else. Warnings and errors go out at once, behind what
waits.
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
        # The loop that will call `flush`, while lines wait.
        self._loop: asyncio.AbstractEventLoop | None = None

    def info(self, line: str) -> None:
        """Writes a line when the loop turns; at once in a thread without a loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.error(line)
            return
        with self._lock:
            self._waiting.append(line)
            if self._loop is not loop:
                self._loop = loop
                loop.call_soon(self.flush)
            full = len(self._waiting) >= _WAITING_MAX
        if full:
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
            lines, self._waiting, self._loop = self._waiting, [], None
            if lines:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
