"""The model of a disk: replays a trace and says, at any point, which changes are durable and which may be.

- A file's bytes and size are durable as far as an fsync or fdatasync of the file covers them. Later
  writes and truncations are *pending*: any of them may be on the disk, whole or in part, and in any
  order.
- A name (added or removed) is durable as far as an fsync of its folder covers it; later ones are pending.
  The fsync of a file does not make its name durable, and the fsync of a folder does not make its own name
  durable.
- Changes of one file, or of one name, that survive take effect in the order in which they were made; each
  alone may be missing.
- Nothing else changes: durable bytes stay as they are (sqlite calls it "powersafe overwrite"), and a
  removed file's bytes do not appear in another file.

Real file systems lose less (ext4 orders names, and writes a new file's name with its bytes), so a program
that survives this model survives them, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.crash.trace import Name, NodeKind, Sync, Trace, Truncate, Write

__all__ = ["Change", "Choose", "Disk"]

Change = Write | Truncate

Choose = Callable[[NodeKind, int, Sequence[Change]], Sequence[Change]]
"""Chooses which pending changes of a file, of the given kind and durable size, reach the disk; in order. A
write may be cut into pieces.
"""

ChooseNames = Callable[[Sequence[Name]], Sequence[Name]]


@dataclass(slots=True)
class _File:
    data: bytearray
    pending: list[tuple[int, Change]] = field(default_factory=list)


@dataclass(slots=True)
class _Folder:
    entries: dict[str, int]
    pending: list[tuple[int, Name]] = field(default_factory=list)


class Disk:
    """The disk at one point of a trace; it can only move forward.

    Attributes:
        now: index of the first event that is not replayed yet.
    """

    def __init__(self, trace: Trace) -> None:
        self.now = 0
        self._trace = trace
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {}
        for number, node in enumerate(trace.nodes):
            if node.kind is NodeKind.FOLDER:
                self._folders[number] = _Folder(dict(node.entries))
            else:
                self._files[number] = _File(bytearray(node.data))

    def advance(self, to: int) -> None:
        """Replays the events before index `to`."""
        for index in range(self.now, to):
            event = self._trace.events[index]
            match event:
                case Write() | Truncate():
                    self._files[event.node].pending.append((index, event))
                case Name():
                    self._folders[event.node].pending.append((index, event))
                case Sync():
                    self._sync(event)
        self.now = max(self.now, to)

    def _sync(self, sync: Sync) -> None:
        if sync.node in self._folders:
            folder = self._folders[sync.node]
            _name(folder.entries, [each for index, each in folder.pending if index < sync.covers])
            folder.pending = [each for each in folder.pending if each[0] >= sync.covers]
        else:
            file = self._files[sync.node]
            for index, change in file.pending:
                if index < sync.covers:
                    _change(file.data, change)
            file.pending = [each for each in file.pending if each[0] >= sync.covers]

    def rebuild(self, target: Path, choose: Choose, choose_names: ChooseNames) -> None:
        """Writes the state after a power failure at this point into an empty folder."""
        self._build(0, target, choose, choose_names, {})

    def _build(
        self,
        number: int,
        at: Path,
        choose: Choose,
        choose_names: ChooseNames,
        made: dict[int, Path],
    ) -> None:
        folder = self._folders[number]
        entries = dict(folder.entries)
        _name(entries, choose_names([name for _, name in folder.pending]))
        for name, node in entries.items():
            path = at / name
            if node in self._folders:
                path.mkdir()
                self._build(node, path, choose, choose_names, made)
            elif node in made:
                path.hardlink_to(made[node])
            else:
                self._write(node, path, choose)
                made[node] = path

    def _write(self, number: int, path: Path, choose: Choose) -> None:
        file = self._files[number]
        pending = [change for _, change in file.pending]
        kept = choose(self._trace.nodes[number].kind, len(file.data), pending) if pending else ()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, file.data)
            for change in kept:
                if isinstance(change, Write):
                    os.pwrite(fd, change.data, change.at)
                else:
                    os.ftruncate(fd, change.size)
        finally:
            os.close(fd)


def _change(data: bytearray, change: Change) -> None:
    if isinstance(change, Truncate):
        if change.size < len(data):
            del data[change.size :]
        else:
            data.extend(bytes(change.size - len(data)))
        return
    if change.at > len(data):
        data.extend(bytes(change.at - len(data)))
    data[change.at : change.at + len(change.data)] = change.data


def _name(entries: dict[str, int], changes: Sequence[Name]) -> None:
    for change in changes:
        if change.target is None:
            entries.pop(change.name, None)
        else:
            entries[change.name] = change.target
