"""Counts changes folder by folder, as a listing with a delimiter rolls up paths.

All paths with equal text up to and including the first delimiter after the prefix are one line. In byte order they
are adjacent, so a page of lines is built in one pass and can end anywhere: also in the middle of a folder, whose rest
the next page then begins with. So a page has a bounded cost, however large its folders are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.listing.run import VALUE_END
from tarn.core.listing.tally import ChangeStats, stats_of_groups

__all__ = ["Folder", "FolderPage", "FolderTally"]


@dataclass(frozen=True, slots=True)
class Folder:
    """The changes below one common prefix, or of one path.

    Attributes:
        path: the common prefix, with its delimiter; or the path.
        is_prefix: whether `path` is a common prefix.
        stats: the changes.
    """

    path: str
    is_prefix: bool
    stats: ChangeStats


@dataclass(frozen=True, slots=True)
class FolderPage:
    """A page of folders, in byte order.

    Attributes:
        total: all changes of the page.
        folders: its lines; none without a delimiter.
        next_after: the path after which the next page begins; None at the end. If it lies in the last folder, the
            next page begins with the rest of the same folder.
    """

    total: ChangeStats
    folders: list[Folder]
    next_after: str | None


@dataclass(slots=True)
class FolderTally:
    """Counts changes until they fill a page.

    Attributes:
        prefix: all paths start with it.
        delimiter: where paths are rolled up; empty: count the total only.
        limit: most lines, at least one.
        total: all changes counted so far.
        last: the last path counted so far; some path was counted before `add` returns True.
    """

    prefix: str
    delimiter: str
    limit: int
    total: ChangeStats = field(default_factory=ChangeStats)
    last: str = ""
    # Invariant: in byte order; the order of insertion.
    _stats: dict[str, ChangeStats] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> bool:
        """Counts the next changes, a batch of `DIFF_SCHEMA`. Returns whether some of them did not fit."""
        if not batch.num_rows:
            return False
        lines = self._lines_of(batch.column("path"))
        taken = self._fitting(lines)
        if not taken:
            return True
        self.last = batch.column("path")[taken - 1].as_py()
        for name, stats in stats_of_groups(batch.slice(0, taken), lines.slice(0, taken)):
            self.total += stats
            if self.delimiter:
                self._stats[name] = self._stats.get(name, ChangeStats()) + stats
        return bool(taken < batch.num_rows)

    def page(self, next_after: str | None) -> FolderPage:
        """The lines that were counted, and where the next page begins."""
        folders = [
            Folder(path, self._is_prefix(path), stats) for path, stats in self._stats.items()
        ]
        return FolderPage(self.total, folders, next_after)

    def _is_prefix(self, line: str) -> bool:
        return line.find(self.delimiter, len(self.prefix)) >= 0

    def _lines_of(self, paths: pa.StringArray) -> pa.StringArray:
        """The line of each path."""
        if not self.delimiter:
            return pa.repeat(pa.scalar("", pa.string()), len(paths))
        skip = len(self.prefix.encode())
        rests = pc.binary_slice(paths.cast(pa.binary()), skip, VALUE_END).cast(pa.string())
        firsts = pc.list_element(pc.split_pattern(rests, self.delimiter, max_splits=1), 0)
        rolled = pc.binary_join_element_wise(self.prefix, firsts, self.delimiter, "")
        return pc.if_else(pc.match_substring(rests, self.delimiter), rolled, paths)

    def _fitting(self, lines: pa.StringArray) -> int:
        """The number of rows whose lines still fit the page."""
        room = self.limit - len(self._stats)
        room += lines[0].as_py() in self._stats
        # Equal lines are adjacent, so the numbers of the lines ascend.
        numbers = lines.dictionary_encode().indices.to_numpy()
        return int(np.searchsorted(numbers, room)) if self.delimiter else len(lines)
