"""What was done to the disk: writes, names and syncs, in the order in which they were done.

Files and folders are *nodes* with numbers of their own: a file keeps its node whatever its names, and a
new file never takes over an old one's, as inodes do.
"""

from __future__ import annotations

import copy
import os
import stat
import sys
import threading
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType

__all__ = [
    "Event",
    "Name",
    "Node",
    "NodeKind",
    "Sync",
    "Trace",
    "Truncate",
    "Write",
    "calling_site",
]


class NodeKind(Enum):
    """What a node is: a crash treats each kind in a temper of its own."""

    FOLDER = "folder"
    FILE = "file"
    DATABASE = "database"
    LOG = "log"  # sqlite's write-ahead log
    JOURNAL = "journal"  # sqlite's rollback journal: used once, to enter WAL mode


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes handed to the operating system."""

    node: int
    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A file cut, or grown, to a size."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Name:
    """An entry of a folder: made, or taken away (`target` None)."""

    node: int
    name: str
    target: int | None


@dataclass(frozen=True, slots=True)
class Sync:
    """An fsync or fdatasync that has returned.

    Attributes:
        node: a file: its bytes and size; a folder: its entries.
        covers: events before this index, of this node, are durable now: those that came before the call.
        site: the place in the code that synced, to leave out all that it does.
    """

    node: int
    covers: int
    site: str


Event = Write | Truncate | Name | Sync


@dataclass(slots=True)
class Node:
    """A file or folder and what of it was durable when the recording began."""

    kind: NodeKind
    data: bytes = b""
    entries: dict[str, int] = field(default_factory=dict)


class Trace:
    """A recording. The lock orders events as the operating system did them.

    Args:
        root: an existing folder; all that it holds now counts as durable.

    Attributes:
        nodes: node 0 is the root.
        events: append only; `len(events)` is a point in time.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.nodes: list[Node] = []
        self.events: list[Event] = []
        self.lock = threading.RLock()
        self._by_inode: dict[tuple[int, int], int] = {}
        self._adopt(self.root)

    def _adopt(self, path: Path) -> int:
        found = path.lstat()
        known = self.find(found)
        if known is not None:
            return known
        number = self.new_node(found, path.name)
        node = self.nodes[number]
        if stat.S_ISDIR(found.st_mode):
            node.entries = {child.name: self._adopt(child) for child in sorted(path.iterdir())}
        else:
            node.data = path.read_bytes()
        return number

    def new_node(self, found: os.stat_result, name: str) -> int:
        """Numbers a file or folder that was made just now; forgets an older one of its inode."""
        if stat.S_ISDIR(found.st_mode):
            kind = NodeKind.FOLDER
        elif name.endswith("-wal"):
            kind = NodeKind.LOG
        elif name.endswith("-journal"):
            kind = NodeKind.JOURNAL
        elif name.endswith((".db", ".sqlite")):
            kind = NodeKind.DATABASE
        else:
            kind = NodeKind.FILE
        self.nodes.append(Node(kind))
        number = self._by_inode[found.st_dev, found.st_ino] = len(self.nodes) - 1
        return number

    def find(self, found: os.stat_result) -> int | None:
        """The node of an inode; None if it is not below the root."""
        return self._by_inode.get((found.st_dev, found.st_ino))

    def forget(self, found: os.stat_result) -> None:
        """Its name is gone. If that was the last one, its inode may soon be another file's, perhaps one
        that is not below the root."""
        if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
            self._by_inode.pop((found.st_dev, found.st_ino), None)

    @property
    def now(self) -> int:
        """The index of the next event."""
        return len(self.events)

    @property
    def sites(self) -> set[str]:
        """The places in the code whose syncs made something durable; what they sync may be nothing new."""
        found: set[str] = set()
        last: dict[int, int] = {}
        for index, event in enumerate(self.events):
            if not isinstance(event, Sync):
                last[event.node] = index
            elif last.get(event.node, event.covers) < event.covers:
                del last[event.node]
                found.add(event.site)
        return found

    def without_site(self, site: str) -> Trace:
        """The same run by a program that does not sync at one place: a sync has no other effect."""
        other = copy.copy(self)
        # A sync that covers nothing keeps its place: points in time stay what they were.
        other.events = [
            Sync(event.node, 0, site) if isinstance(event, Sync) and event.site == site else event
            for event in self.events
        ]
        return other


def calling_site(depth: int) -> str:
    """Who is asking: the two innermost functions of Tarn on the stack.

    Args:
        depth: frames of the recorder itself to leave out.
    """
    frame = sys._getframe(depth)  # noqa: SLF001 - the documented way to look at a stack cheaply
    names: list[str] = []
    caller: FrameType | None = frame
    while caller is not None and len(names) < 2:
        module = caller.f_globals.get("__name__", "")
        name = caller.f_code.co_qualname.replace(".<locals>", "").replace(".<lambda>", "")
        if module.startswith("tarn.") and not module.startswith("tarn.testing."):
            names.append(f"{module.removeprefix('tarn.')}:{name}")
        caller = caller.f_back
    return " < ".join(names)
