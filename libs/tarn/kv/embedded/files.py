"""What must be true of the file's folder, and the lock that writers of all processes queue on.

sqlite lets one writer in at a time and makes the others sleep and try again, with growing pauses:
of two busy processes one then waits for seconds. A blocking `flock` on a side file queues them in the
kernel instead. One lock alone is not fair (who gives it up takes it again before the waiter has woken
up: 150 ms at the 100th percentile, measured); with a *gate* in front, which the next writer
holds while it waits, turns alternate (3 ms) at some 15 % of the fully contended rate.

The lock is also what makes several processes safe with sqlite before 3.51.3, whose WAL-reset bug
needs one connection to checkpoint while another commits: every commit and checkpoint is inside it.
The kernel drops both locks when a process dies.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from types import TracebackType

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["WriteLock", "check_filesystem", "filesystem_type", "unusable_error"]

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "fuse", "ceph")
)
_CLUSTER = frozenset(("glusterfs", "lustre", "beegfs", "gpfs", "ocfs2", "gfs2", "orangefs"))


def unusable_error(path: Path, why: str) -> TarnError:
    """The store cannot be opened at `path`, and trying again will not help."""
    text = f"cannot open the store {path}: {why}"
    return TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text, path=str(path))


def check_filesystem(path: Path) -> None:
    """Refuses a folder whose file system is on a network or in user space: there neither the locks
    nor the shared memory of the write-ahead log work between machines, and the file gets corrupted.

    Raises:
        TarnError: FAILED_PRECONDITION.
    """
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return  # no Linux: nobody to ask
    found = filesystem_type(path.resolve(), mounts)
    if found in _NETWORK | _CLUSTER or found.startswith("fuse."):
        raise unusable_error(path, f"file system {found!r} is not local; use a local disk")


def filesystem_type(path: Path, mountinfo: str) -> str:
    """The type of the file system that holds `path`, from the text of proc(5)'s mountinfo.

    Args:
        path: absolute, without symbolic links.
        mountinfo: later mounts hide earlier ones at the same place.
    """
    best, found = -1, ""
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        mount = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields.split(" ")[4]))
        depth = len(mount.parts)
        if depth >= best and path.is_relative_to(mount):
            best, found = depth, tail.split(" ")[0]
    return found


class WriteLock:
    """Lets one writer in at a time, over all processes, in turn. A context manager.

    Held for one transaction or one checkpoint, never while idle. Not re-entrant. A process that is
    stopped (SIGSTOP) inside it stops all writers until it goes on or dies.
    """

    def __init__(self, path: Path) -> None:
        self._gate = _open_lock_file(path.with_name(path.name + "-gate"))
        try:
            self._lock = _open_lock_file(path.with_name(path.name + "-lock"))
        except OSError:
            os.close(self._gate)
            raise

    def __enter__(self) -> None:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Gives the files back; the lock must not be held."""
        os.close(self._gate)
        os.close(self._lock)


def _open_lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
