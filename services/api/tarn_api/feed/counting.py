"""Uncommitted changes since the last look, out of counts by folder. Pure.

A pass over the counts of a branch takes one page, or several if there are many staged rows. What a pass counts more
than the one before was written in between. An object that was written twice is one change, and one that was written
and deleted again none, so the differences are lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tarn_proto.graveler.v1 import diff_service_pb2 as pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_rest.schemas import FolderChanges

__all__ = ["FOLDERS_MAX", "StagedCounts"]

FOLDERS_MAX: Final = 200
"""Lines of a pass; folders behind them are not watched."""
_Counts = tuple[int, int, int, int, int]
"""Added, changed and deleted objects, bytes added, bytes gone."""
_NONE: Final[_Counts] = (0, 0, 0, 0, 0)


@dataclass(slots=True)
class _Pass:
    """Counts by folder.

    Attributes:
        counts: by the path of the line.
        end: paths from this one on are not counted; None: all are.
    """

    counts: dict[str, _Counts]
    end: str | None = None

    def covers(self, path: str) -> bool:
        return self.end is None or path.encode() < self.end.encode()


class StagedCounts:
    """Compares the counts of a branch with those of the pass before.

    Attributes:
        token: of the next page of the pass; empty: a pass begins.
    """

    def __init__(self) -> None:
        self.token = ""
        self._before: _Pass | None = None
        self._now: dict[str, _Counts] = {}

    def restart(self) -> None:
        """Begins the pass anew."""
        self.token, self._now = "", {}

    def begin(self, *, is_empty: bool) -> None:
        """Begins anew after a change of the head.

        Args:
            is_empty: whether it took all uncommitted changes away, so that all that is there is new. Otherwise the next
                pass is one that later ones are compared with.
        """
        self.restart()
        self._before = _Pass({}) if is_empty else None

    def add(self, page: pb.SummarizeUncommittedResponse) -> list[FolderChanges]:
        """Adds a page; returns what changed since the pass before, if this page ends the pass."""
        for line in page.folders:
            more = _counts_of(line.counts)
            so_far = self._now.get(line.path, _NONE)
            summed = [left + right for left, right in zip(so_far, more, strict=True)]
            self._now[line.path] = summed[0], summed[1], summed[2], summed[3], summed[4]
        self.token = page.next_page_token
        if self.token and len(self._now) < FOLDERS_MAX:
            return []
        now = _Pass(self._now)
        if self.token:
            # The last line may go on.
            now.end = max(self._now, key=str.encode)
            del now.counts[now.end]
        before, self._before = self._before, now
        self.restart()
        return [] if before is None else list(_differences(before, now))


def _counts_of(found: merge_pb.MergeCounts) -> _Counts:
    return (
        found.added_count,
        found.changed_count,
        found.removed_count,
        found.added_bytes,
        found.removed_bytes,
    )


def _differences(before: _Pass, now: _Pass) -> Iterator[FolderChanges]:
    for path in sorted(before.counts.keys() | now.counts.keys(), key=str.encode):
        old, new = before.counts.get(path, _NONE), now.counts.get(path, _NONE)
        if old == new or not (before.covers(path) and now.covers(path)):
            continue
        added, changed, removed = (new[at] - old[at] for at in range(3))
        writes = max(0, added) + max(0, changed)
        if added == changed == removed == 0:
            writes = 1  # other bytes: an object was written again
        undone = max(0, -(added + changed + removed))
        yield FolderChanges(path=path, writes=writes, deletes=max(0, removed), undone=undone)
