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
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "WriteLock",
    "check_filesystem",
    "filesystem_type",
    "make_folder",
    "sync_folder",
    "unusable_error",
]

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "fuse", "ceph")
)
_CLUSTER = frozenset(("glusterfs", "lustre", "beegfs", "gpfs", "ocfs2", "gfs2", "orangefs"))


def unusable_error(path: Path, why: str) -> TarnError:
    """The store cannot be opened at `path`, and trying again will not help."""
    text = f"cannot open the store {path}: {why}"
    return TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text, path=str(path))


def make_folder(path: Path) -> None:
    """Makes a folder, if it is missing, and those above it; its name is durable afterwards.

    Where it begins, it also syncs a name that it found: whoever made it may have died before its sync.
    """
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    with suppress(PermissionError):  # a folder that we may pass but not read: not of our making
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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

    From its making to `close` it also counts as a user of the store: either one of many, or `alone`,
    and then nobody else has the store open in any process of the machine.

    Raises:
        TarnError: FAILED_PRECONDITION: somebody has it open, or somebody has it alone.
    """

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        self._users = _open_users(path, alone=alone)
        try:
            self._open(path)
        except BaseException:
            os.close(self._users)
            raise

    def _open(self, path: Path) -> None:
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
        os.close(self._users)


def _open_users(path: Path, *, alone: bool) -> int:
    descriptor = _open_lock_file(path.with_name(path.name + "-users"))
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        why = "another process has it open; stop Tarn first" if alone else "a tool has it alone"
        raise unusable_error(path, why) from None
    return descriptor


def _open_lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
