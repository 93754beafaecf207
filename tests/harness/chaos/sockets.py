"""Finds the process at the other end of a local connection, and connections without an answer, by /proc.

Workers share a port (SO_REUSEPORT), so the address does not identify the process. A connection that no
process has accepted yet belongs to no worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["waiting_for"]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def waiting_for(port: int, pids: Iterable[int]) -> dict[int, int]:
    """Finds accepted connections to a port on which the client has no unread answer.

    Returns:
        The process id by the client's port.
    """
    pid_of = {inode: pid for pid in pids for inode in _socket_inodes(pid)}
    found, answered = dict[int, int](), set[int]()
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            local, remote = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
            unread, inode = int(fields[4].rpartition(":")[2], 16), fields[9]
            if local == port and remote and inode in pid_of:  # 0: it listens
                found[remote] = pid_of[inode]
            elif remote == port and unread:
                answered.add(local)
    return {local: pid for local, pid in found.items() if local not in answered}


def _socket_inodes(pid: int) -> set[str]:
    """Returns the socket inodes of a process; empty if it has ended."""
    found = set()
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                name = str(descriptor.readlink())
            except FileNotFoundError:
                continue  # closed meanwhile
            if name.startswith("socket:["):
                found.add(name[len("socket:[") : -1])
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return found
