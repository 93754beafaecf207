"""Logs errors that no code waits for.

asyncio reports exceptions that were never retrieved, tasks that were destroyed while they ran and errors
in callbacks to the loop's exception handler. Python reports coroutines that were never awaited as
warnings. By default both are plain text on standard error, which no alert finds. Here each is one log line
with the event `unhandled error`. Every such line is a defect of Tarn.
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
    """Returns an event loop that logs such errors for its whole life, including its close."""
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_report)
    return loop


@contextmanager
def warnings_logged() -> Iterator[None]:
    """Within the block, Python's warnings become log lines (of the logger `py.warnings`)."""
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        # Collected now, so that errors which only the garbage collector finds are logged.
        gc.collect()
        logging.captureWarnings(capture=False)


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Logs the content of asyncio's own report as keys: message, subject and traceback."""
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
