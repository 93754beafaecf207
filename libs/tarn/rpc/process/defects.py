"""Errors that nobody waits for, as log lines.

asyncio reports an exception that was never retrieved, a task that was destroyed while it ran and an error
in a callback to the loop's exception handler; Python reports a coroutine that was never awaited as a
warning. By default both are bare text on standard error, which no alert finds. Here each is one line with
the event `unhandled error`, which is a defect of Tarn, always.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import uvloop

__all__ = ["EVENT", "new_loop", "warnings_logged"]

EVENT = "unhandled error"

_log = structlog.get_logger()


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop that logs such errors as long as it lives, its close included."""
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_report)
    return loop


@contextmanager
def warnings_logged() -> Iterator[None]:
    """For the block, Python's warnings are log lines (of the logger `py.warnings`)."""
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        # What is only found by the garbage collector is told while there is a log.
        gc.collect()
        logging.captureWarnings(capture=False)


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """What asyncio's own handler tells, as keys: the message, what it is about, and the traceback."""
    about = {
        name: repr(value) for name, value in context.items() if name not in ("message", "exception")
    }
    error = context.get("exception")
    _log.error(
        EVENT,
        what=str(context.get("message", "")),
        exc_info=error if isinstance(error, BaseException) else None,
        **about,
    )
