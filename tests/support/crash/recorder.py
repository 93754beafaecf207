"""Records all changes that one process makes to the files below a folder."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.crash.os_calls import OsCalls
from tests.support.crash.sqlite_calls import SqliteCalls
from tests.support.crash.trace import Trace

__all__ = ["recording"]


@contextmanager
def recording(root: Path, library: ctypes.CDLL) -> Iterator[Trace]:
    """Yields a trace that grows until the end of the block. Only one recording per process at a time.

    Args:
        root: an existing folder; its present content counts as durable.
        library: see `sqlite_calls.find_library`. Stores opened inside must be closed inside.
    """
    trace = Trace(root)
    sqlite = SqliteCalls(trace, library)
    system = OsCalls(trace)
    sqlite.install()
    system.install()
    try:
        yield trace
    finally:
        system.remove()
        sqlite.remove()
