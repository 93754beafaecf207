"""Merges rows of layers that are all at hand: the newest row of each path, without those that tombstones hide."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_

from tarn.core.entry import FLAG_TOMBSTONE

__all__ = ["NewestRows", "PathRows", "newest_rows"]

PathRows = tuple[Sequence[str], Sequence[bytes]]
"""Sorted paths, and the packed entry of each path."""

_SPLICE_OF = 8
"""A run of the committed layer is copied in pieces if it has at least this many times the rows of all other layers."""


@dataclass(frozen=True, slots=True)
class NewestRows:
    """The newest rows of some runs.

    Attributes:
        count: the number of distinct paths.
        front: how many of the first ones are hidden.
        rows: the visible ones, in order.
    """

    count: int
    front: int
    rows: PathRows

    @property
    def hidden(self) -> int:
        """How many paths are hidden."""
        return self.count - len(self.rows[0])


def newest_rows(runs: Sequence[PathRows], *, may_hide: bool, has_base: bool) -> NewestRows:
    """Merges runs, newest first; there is at least one, and none is empty.

    Args:
        runs: the rows of each layer that has any.
        may_hide: whether tombstones hide rows; otherwise they are listed.
        has_base: whether the last run is of the committed layer, which holds no tombstones.
    """
    paths, entries = runs[0]
    others = sum(len(run_paths) for run_paths, _ in runs[:-1])
    if may_hide and has_base and others * _SPLICE_OF <= len(runs[-1][0]):
        return _spliced(runs)
    # If a folder was deleted as a whole, both layers have the same paths; this check costs next to nothing.
    if any(run_paths != paths for run_paths, _ in runs[1:]):
        newest: dict[str, bytes] = {}
        for run in reversed(runs):
            newest.update(zip(*run, strict=True))
        paths = sorted(newest)
        entries = [newest[path] for path in paths]
    hidden = [entry[1] & FLAG_TOMBSTONE for entry in entries] if may_hide else ()
    if not any(hidden):
        return NewestRows(len(paths), 0, (paths, entries))
    visible = list(map(not_, hidden))
    front = visible.index(True) if not all(hidden) else len(paths)
    rows = list(compress(paths, visible)), list(compress(entries, visible))
    return NewestRows(len(paths), front, rows)


def _spliced(runs: Sequence[PathRows]) -> NewestRows:
    """`newest_rows` for few rows over many: copies the many in pieces."""
    base_paths, base_entries = runs[-1]
    newer: dict[str, bytes] = {}
    for run in reversed(runs[:-1]):
        newer.update(zip(*run, strict=True))
    paths: list[str] = []
    entries: list[bytes] = []
    done = added = front = 0
    for path in sorted(newer):
        place = bisect_left(base_paths, path, done)
        paths += base_paths[done:place]
        entries += base_entries[done:place]
        is_over = place < len(base_paths) and base_paths[place] == path
        done = place + is_over
        added += not is_over
        if not newer[path][1] & FLAG_TOMBSTONE:
            paths.append(path)
            entries.append(newer[path])
        elif not paths:
            front += 1
    paths += base_paths[done:]
    entries += base_entries[done:]
    return NewestRows(len(base_paths) + added, front, (paths, entries))
