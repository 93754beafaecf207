"""Turns errors that are only logged into failures of the test that caused them.

asyncio and Python report some defects nowhere else: exceptions that were never retrieved, tasks that were
destroyed, coroutines that were never awaited, resources that were not closed. `no_unhandled_errors` is for code
on the test's own event loop. `no_lost_errors` is around each test (`tests/conftest.py`). A test that starts a service
in its own process calls `check_log` after the service has ended.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

__all__ = ["check_log", "defects_in", "no_lost_errors", "no_unhandled_errors"]

_MARKS: Final = re.compile(
    r"exception was never retrieved"
    r"|Task was destroyed but it is pending"
    r"|was never awaited"
    r"|ResourceWarning"
    r"|\b[Uu]nclosed\b"
    r"|Traceback \(most recent call last\)"
    r"|Exception ignored in"
    r"|unhandled error"
    r"|background task failed"
)
# grpc itself prints this when a client disconnects before it gets the status of its stream.
_GRPC_NOISE: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:  .*\n)+grpc\._cython\.cygrpc\.ExecuteBatchError: .*\n"
)
# Cassandra's driver logs, with a traceback of its own frames, that a node does not answer. Compiled modules have no
# folder in it; the others lie among the installed packages.
_DRIVER_NOISE: Final = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?:  File \"(?:/.*/site-packages/)?cassandra/.*\n(?:    .*\n)*)+\S.*\n"
)
_SHOWN_MAX: Final = 10
_SHOWN_LINES: Final = 30
"""Lines shown of one defect: its own line and the traceback after it."""


@asynccontextmanager
async def no_unhandled_errors() -> AsyncIterator[None]:
    """Raises, at the end of the block, the unretrieved errors of the running loop's futures, tasks and
    callbacks.

    Raises:
        AssertionError: with asyncio's descriptions; the first error is its cause.
    """
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    contexts: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    try:
        yield
        # Run due callbacks, and find futures that only the garbage collector sees.
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(before)
    if contexts:
        errors = [
            error for each in contexts if isinstance(error := each.get("exception"), Exception)
        ]
        told = "\n".join(f"{each.get('message')}: {each}" for each in contexts)
        text = f"{len(contexts)} errors that asyncio would only log:\n{told}"
        raise AssertionError(text) from (errors[0] if errors else None)


_ASYNCIO: Final = logging.getLogger("asyncio")


class _LostErrors(logging.Handler):
    """Collects what asyncio logs about errors that were never retrieved."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        around = [each for each in _ASYNCIO.handlers if isinstance(each, _LostErrors)]
        if self is around[-1] and "never retrieved" in record.getMessage():
            self.found.append(logging.Formatter().format(record))


@contextmanager
def no_lost_errors() -> Iterator[None]:
    """Raises, at the end of the block, the errors of futures and tasks of any loop that were never retrieved.

    Those that only the garbage collector sees belong to the block in which it runs; of blocks around each other, the
    innermost one has them.

    Raises:
        AssertionError: with asyncio's descriptions and the tracebacks.
    """
    handler = _LostErrors()
    _ASYNCIO.addHandler(handler)
    try:
        yield
    finally:
        _ASYNCIO.removeHandler(handler)
    if handler.found:
        told = "\n---\n".join(handler.found[:_SHOWN_MAX])
        raise AssertionError(f"{len(handler.found)} errors were never retrieved:\n{told}")


def defects_in(text: str) -> list[str]:
    """Returns the places of a log that report a defect, each with the lines after it."""
    lines = _DRIVER_NOISE.sub("", _GRPC_NOISE.sub("", text)).splitlines()
    marked = {at for at, line in enumerate(lines) if _MARKS.search(line)}
    # A traceback belongs to the line before it, if that line matches, too.
    starts = [
        at for at in sorted(marked) if not (lines[at].startswith("Traceback") and at - 1 in marked)
    ]
    found = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(lines)
        found.append("\n".join(lines[start : min(end, start + _SHOWN_LINES)]))
    return found


def check_log(path: Path) -> None:
    """Raises `AssertionError` with the lines if a service's log reports a defect."""
    if not path.exists():
        return
    found = defects_in(path.read_text(errors="replace"))
    if found:
        shown = "\n---\n".join(found[:_SHOWN_MAX])
        raise AssertionError(
            f"{path} reports {len(found)} defects of the service (see tests.support.unhandled); "
            f"the first of them:\n{shown}"
        )
