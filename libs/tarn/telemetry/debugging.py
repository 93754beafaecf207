"""The present work of a running process: the stacks of its threads and tasks, and where its time goes.

A process whose event loop hangs cannot serve its admin port. Its threads are written to its log by `SIGUSR1`.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Generator, Iterable
from types import FrameType
from typing import Any, Final

__all__ = ["SECONDS_MAX", "Profiler", "dump_threads_on_signal", "stacks"]

SECONDS_MAX: Final = 60.0
"""Greatest length of a profile."""

_INTERVAL_SECONDS: Final = 0.01
_FRAMES_MAX: Final = 100
_GROUPS_MAX: Final = 500
_PATHS_MAX: Final = 20_000
_OVERFLOW: Final = ("(more than 20,000 different stacks)",)

Frames = tuple[str, ...]
"""A stack: its frames, outermost first."""


def dump_threads_on_signal() -> None:
    """Makes `SIGUSR1` write the stacks of all threads to the standard error stream."""
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)


def stacks() -> str:
    """Returns the stacks of all threads, and those of the tasks of the running loop; equal ones once, with a number.

    They hold names of files and functions, and no values. At most 500 different stacks of 100 frames are shown.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way to see other threads
        lines.append(f"thread {names.get(ident, ident)}")
        lines += [f"    {each}" for each in _of_frame(frame)]
    found = Counter(_of_task(task) for task in asyncio.all_tasks())
    for frames, count in found.most_common(_GROUPS_MAX):
        lines += ["", f"{count} tasks" if count > 1 else "1 task"]
        lines += [f"    {each}" for each in frames]
    if len(found) > _GROUPS_MAX:
        lines += ["", f"and {len(found) - _GROUPS_MAX} other stacks"]
    return "\n".join(lines) + "\n"


class Profiler:
    """Profiles the process by looking at the stacks of its threads 100 times a second.

    The samples are taken by a thread, between two steps of the interpreter. A call into C that keeps the interpreter's
    lock is seen at its end, with its full weight.
    """

    def __init__(self) -> None:
        self._is_running = False

    @property
    def is_running(self) -> bool:
        """Whether a profile is being taken; only one is at a time."""
        return self._is_running

    async def profile(self, seconds: float) -> str:
        """Returns lines of `frame;frame;frame count`, outermost frame first (Gregg's folded stacks).

        The count is the number of samples. A thread that waits is counted, too: its innermost frame tells that.
        If the caller is cancelled, the samples end early.
        """
        assert not self._is_running
        self._is_running = True
        end = threading.Event()
        try:
            counts = await asyncio.to_thread(_sampled, seconds, end)
        finally:
            end.set()
            self._is_running = False
        return "".join(f"{';'.join(frames)} {count}\n" for frames, count in counts.most_common())


def _sampled(seconds: float, end: threading.Event) -> Counter[Frames]:
    me = threading.get_ident()
    counts: Counter[Frames] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until and not end.wait(_INTERVAL_SECONDS):
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():  # noqa: SLF001 - as above
            if ident == me:
                continue
            frames = (str(names.get(ident, ident)), *_of_frame(frame, with_lines=False))
            counts[frames if frames in counts or len(counts) < _PATHS_MAX else _OVERFLOW] += 1
    return counts


def _of_frame(frame: FrameType | None, *, with_lines: bool = True) -> Frames:
    found: list[str] = []
    while frame is not None and len(found) < _FRAMES_MAX:
        found.append(_shown(frame, with_lines=with_lines))
        frame = frame.f_back
    return tuple(reversed(found))


def _of_task(task: asyncio.Task[Any]) -> Frames:
    return tuple(_shown(frame) for frame in _awaiting(task.get_coro()))


def _awaiting(
    at: Coroutine[Any, Any, Any] | Generator[Any, Any, Any] | None,
) -> Iterable[FrameType]:
    """Yields the frames of a suspended coroutine and of those that it awaits."""
    found: Any = at
    for _ in range(_FRAMES_MAX):
        frame = next(
            (
                frame
                for name in ("cr_frame", "gi_frame", "ag_frame")
                if (frame := getattr(found, name, None))
            ),
            None,
        )
        if frame is None:
            return
        yield frame
        found = next(
            (
                awaited
                for name in ("cr_await", "gi_yieldfrom", "ag_await")
                if (awaited := getattr(found, name, None))
            ),
            None,
        )


def _shown(frame: FrameType, *, with_lines: bool = True) -> str:
    code = frame.f_code
    parts = code.co_filename.replace(";", ",").split("/")
    line = f":{frame.f_lineno}" if with_lines else ""
    return f"{code.co_qualname} ({'/'.join(parts[-2:])}{line})"
