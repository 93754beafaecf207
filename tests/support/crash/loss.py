"""Decides which unsynced changes reach the disk: none, all, or a seeded choice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.crash.disk import Change, Disk
from tests.support.crash.trace import Name, NodeKind, Truncate, Write

__all__ = ["rebuild_all", "rebuild_some", "rebuild_synced"]

_SECTORS: Final = (512, 4096)
_TEAR_CHANCE: Final = 0.2


def rebuild_synced(disk: Disk, target: Path) -> None:
    """Rebuilds the disk with the synced changes only."""
    disk.rebuild(target, lambda *_: (), lambda _: ())


def rebuild_all(disk: Disk, target: Path) -> None:
    """Rebuilds the disk with all changes, as a crash of only the process leaves it."""
    disk.rebuild(target, lambda _kind, _size, changes: changes, lambda names: names)


def rebuild_some(disk: Disk, target: Path, chance: random.Random) -> None:
    """Rebuilds the disk with a seeded choice of the changes.

    Each kind of file gets its own probability (all, none, or a share), so that, for instance, a database
    whose log is lost is frequent; the earliest changes of a file may reach the disk last; single writes
    are torn at sectors and pages.
    """
    shares = {kind: chance.choice((0.0, 0.3, 0.7, 1.0)) for kind in NodeKind}
    name_share = chance.choice((0.0, 0.5, 1.0))

    def choose(kind: NodeKind, size: int, changes: Sequence[Change]) -> list[Change]:
        kept: list[Change] = []
        for change in changes[chance.choice((0, 0, 1, 3)) :]:
            if chance.random() >= shares[kind]:
                continue
            if isinstance(change, Truncate) or chance.random() >= _TEAR_CHANCE:
                kept.append(change)
            else:
                kept += _torn(change, size, chance)
        return kept

    def choose_names(names: Sequence[Name]) -> list[Name]:
        return [name for name in names if chance.random() < name_share]

    disk.rebuild(target, choose, choose_names)


def _torn(write: Write, durable_size: int, chance: random.Random) -> list[Change]:
    """Cuts a write into sectors, each of which may be missing. Past the durable end a missing sector may be
    zeros, as after a file system that wrote the new size before the bytes.
    """
    sector = chance.choice(_SECTORS)
    pieces: list[Change] = []
    end = write.at + len(write.data)
    at = write.at
    while at < end:
        stop = min(end, (at // sector + 1) * sector)
        fate = chance.random()
        if fate < 0.5:
            pieces.append(Write(write.node, at, write.data[at - write.at : stop - write.at]))
        elif fate < 0.7 and at >= durable_size:
            pieces.append(Write(write.node, at, bytes(stop - at)))
        at = stop
    return pieces
