"""Runs a command of the user as a child process, in a process group of its own, and passes signals on to the group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Final

__all__ = ["CANNOT_RUN", "NOT_FOUND", "run_child"]

CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
"""Statuses of a command that cannot be run, or is not found: those of a shell."""

_SIGNAL_BASE: Final = 128
_STDERR: Final = 2
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run_child(
    command: Sequence[str], environment: Mapping[str, str], *, stdout_to_stderr: bool
) -> int:
    """Runs a command to its end and returns its exit status; 128 and the number of the signal that ended it.

    SIGINT, SIGTERM, SIGHUP and SIGQUIT go to its process group. At a terminal the group is in the foreground, so Ctrl-C
    reaches it without this process.

    Args:
        command: program and arguments.
        environment: the whole environment of the child.
        stdout_to_stderr: what it prints goes to standard error.
    """
    with _forwarding() as started:
        try:
            child = subprocess.Popen(
                command,
                env=dict(environment),
                stdout=_STDERR if stdout_to_stderr else None,
                process_group=0,
            )
        except FileNotFoundError:
            return NOT_FOUND
        except OSError:
            return CANNOT_RUN
        started(child)
        with _foreground(child.pid):
            status = child.wait()
    return status if status >= 0 else _SIGNAL_BASE - status


class _Forwarder:
    """Passes signals on to the group of a child; those that arrive before it starts, when it does."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        elif self._child.returncode is None:  # until then its id belongs to no other group
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def started(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        for number in self._early:
            self(number, None)


@contextlib.contextmanager
def _forwarding() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    forwarder = _Forwarder()
    before = {number: signal.signal(number, forwarder) for number in _PASSED_ON}
    try:
        yield forwarder.started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _foreground(group: int) -> Iterator[None]:
    """Lets a process group use the terminal, if this process may."""
    own = os.getpgrp()
    try:
        has_terminal = os.tcgetpgrp(0) == own
    except OSError:  # standard input is no terminal
        has_terminal = False
    if not has_terminal:
        yield
        return
    # Without it, this process would be stopped when it takes the terminal back.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, group)
            os.killpg(group, signal.SIGCONT)  # it may have been stopped for reading too early
        yield
    finally:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, own)
        signal.signal(signal.SIGTTOU, before)
