"""Detects network file systems: locks and shared memory work only between the processes of one machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["file_system_of", "refuse_network"]

_NETWORK: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb2",
        "smb3",
    }
)
_NETWORK_FUSE: Final = ("fuse.sshfs", "fuse.s3fs", "fuse.glusterfs", "fuse.cephfs", "fuse.gcsfuse")


def file_system_of(device: int, mountinfo: str) -> str | None:
    """Returns the type of the file system with a device number (`st_dev`), from the text of
    `/proc/self/mountinfo` (proc(5)); None if it is not listed, as btrfs subvolumes are not."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        fields = mount.split()
        if len(fields) > 2 and fields[2] == wanted and source:
            return source.split()[0]
    return None


def refuse_network(root: Path) -> None:
    """Rejects a directory that other machines may have mounted; if the type is unknown, allows it.

    Raises:
        TarnError: FAILED_PRECONDITION if the directory is on a network file system.
    """
    kind: str | None = None
    with suppress(FileNotFoundError, PermissionError):
        kind = file_system_of(root.stat().st_dev, Path("/proc/self/mountinfo").read_text())
    if kind in _NETWORK or kind in _NETWORK_FUSE:
        text = (
            f"{root} is on a network file system ({kind}); local blocks need a disk of this machine"
        )
        raise TarnError(
            Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text, root=str(root), type=str(kind)
        )
