"""Ties a process to its parent: `python -m tarn_cli.node.lifeline PARENT_PID COMMAND…`.

The kernel sends the command SIGTERM when the parent dies, whatever the cause. The setting survives the
exec, so the command needs no code for it. A separate process sets it after the fork, because code
between fork and exec (`preexec_fn`) may deadlock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replaces this process with the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("tarn: the supervisor died before its worker began")
    os.execvp(command[0], command)  # noqa: S606 - the supervisor's own command, no shell


if __name__ == "__main__":
    main()
