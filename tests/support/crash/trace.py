"""The recorded changes of a disk: writes, names and syncs, in order.

Files and folders are *nodes* with numbers of their own: a file keeps its node under any name, and a new
file never reuses an old node, unlike inodes.
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
    """The kind of a node; `loss` gives each kind its own probability."""

    FOLDER = "folder"
    FILE = "file"
    DATABASE = "database"
    LOG = "log"  # sqlite's write-ahead log
    JOURNAL = "journal"  # sqlite's rollback journal: used once, to enter WAL mode


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes passed to the operating system."""

    node: int
    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A file truncated, or extended, to a size."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Name:
    """An entry of a folder: added, or removed (`target` None)."""

    node: int
    name: str
    target: int | None


@dataclass(frozen=True, slots=True)
class Sync:
    """An fsync or fdatasync that has returned.

    Attributes:
        node: a file (its bytes and size are synced) or a folder (its entries are synced).
        covers: events of this node before this index are durable now: those before the call.
        site: the place in the code that called sync; tests can remove all syncs of one site.
    """

    node: int
    covers: int
    site: str


Event = Write | Truncate | Name | Sync


@dataclass(slots=True)
class Node:
    """A file or folder, and its durable content when the recording began."""

    kind: NodeKind
    data: bytes = b""
    entries: dict[str, int] = field(default_factory=dict)


class Trace:
    """A recording. The lock keeps events in the order in which the operating system did them.

    Args:
        root: an existing folder; its present content counts as durable.

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
        """Numbers a file or folder that was just created; forgets an older one of its inode."""
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
        """Returns the node of an inode; None if it is not below the root."""
        return self._by_inode.get((found.st_dev, found.st_ino))

    def forget(self, found: os.stat_result) -> None:
        """Handles a removed name. If it was the last one, the inode may soon be reused, possibly by a file
        that is not below the root.
        """
        if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
            self._by_inode.pop((found.st_dev, found.st_ino), None)

    @property
    def now(self) -> int:
        """Index of the next event."""
        return len(self.events)

    @property
    def sites(self) -> set[str]:
        """Returns the places in the code whose syncs covered an event; their syncs may still be redundant."""
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
        """Returns the same run for a program without the syncs of one place; a sync has no other effect."""
        other = copy.copy(self)
        # A sync that covers nothing keeps its index, so that points in time do not shift.
        other.events = [
            Sync(event.node, 0, site) if isinstance(event, Sync) and event.site == site else event
            for event in self.events
        ]
        return other


def calling_site(depth: int) -> str:
    """Returns the calling code: the two innermost functions of Tarn on the stack.

    Args:
        depth: frames of the recorder itself to leave out.
    """
    frame = sys._getframe(depth)
    names: list[str] = []
    caller: FrameType | None = frame
    while caller is not None and len(names) < 2:
        module = caller.f_globals.get("__name__", "")
        name = caller.f_code.co_qualname.replace(".<locals>", "").replace(".<lambda>", "")
        if module.startswith("tarn."):
            names.append(f"{module.removeprefix('tarn.')}:{name}")
        caller = caller.f_back
    return " < ".join(names)
