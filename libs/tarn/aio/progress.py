"""Progress of the work that a task of the event loop does, for the code that started it.

The work reports without knowing its listener, as it records a span of a trace; so no layer between them passes a
callback on. Without a listener, a report costs a look-up of a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["listening", "report"]

_listener: ContextVar[Callable[[int, int], None] | None] = ContextVar("progress", default=None)


def report(done: int, total: int) -> None:
    """Reports that `done` of `total` parts of the present work are done."""
    listener = _listener.get()
    if listener is not None:
        listener(done, total)


@contextmanager
def listening(listener: Callable[[int, int], None]) -> Iterator[None]:
    """Calls `listener` with each report of this task, and of the tasks that it starts, inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
