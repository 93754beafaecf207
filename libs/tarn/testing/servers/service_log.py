"""What must not be in the log of a service, whatever a test did to it.

A running service tells of some defects by its log alone: exceptions that nobody retrieved, tasks that were
destroyed, coroutines that were never awaited, resources that were not closed, tracebacks. Whoever starts a
service in a test calls `check_log` when it has ended.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["check_log", "defects_in"]

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
# grpc prints this by itself when a client has gone before it was sent the status of its stream.
_GRPC_NOISE: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:  .*\n)+grpc\._cython\.cygrpc\.ExecuteBatchError: .*\n"
)
# Cassandra's driver logs by itself, with a traceback of its own frames, that a node does not answer.
_DRIVER_NOISE: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:  File \"cassandra/.*\n(?:    .*\n)*)+\S.*\n"
)
_SHOWN_MAX: Final = 10
_SHOWN_LINES: Final = 30
"""Of one defect: its line and the traceback behind it."""


def defects_in(text: str) -> list[str]:
    """The places of a log that tell of a defect, each with the lines behind it."""
    lines = _DRIVER_NOISE.sub("", _GRPC_NOISE.sub("", text)).splitlines()
    marked = {at for at, line in enumerate(lines) if _MARKS.search(line)}
    # A traceback belongs to the line before it, if that is marked as well.
    starts = [
        at for at in sorted(marked) if not (lines[at].startswith("Traceback") and at - 1 in marked)
    ]
    found = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(lines)
        found.append("\n".join(lines[start : min(end, start + _SHOWN_LINES)]))
    return found


def check_log(path: Path) -> None:
    """Raises `AssertionError` with the lines if a service's log tells of a defect."""
    if not path.exists():
        return
    found = defects_in(path.read_text(errors="replace"))
    if found:
        shown = "\n---\n".join(found[:_SHOWN_MAX])
        raise AssertionError(
            f"{path} tells of {len(found)} defects of the service (see tarn.testing.servers.service_log); "
            f"the first of them:\n{shown}"
        )
