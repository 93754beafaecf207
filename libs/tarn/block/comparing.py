"""Compares two listings, opening only the ranges that they do not share.

A path is in one range of a listing, so a path in a range that both have is the same on both sides:
the differences are those between the rows of the ranges that only the left has and the rows of the
ranges that only the right has. Both are walked together, a window at a time.

The first windows are small and each is twice the one before, up to whole ranges: a page of dense
changes compares little more than the rows that are on it, a sparse one has few steps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tarn.block.rangereader import RangeReader
from tarn.core.listing.changes import upto
from tarn.core.listing.diff import diff_runs
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import EMPTY_RUN, Run

__all__ = ["Window", "compared"]


@dataclass(frozen=True, slots=True)
class Window:
    """One step of a comparison.

    Attributes:
        upto: all paths up to and with this one have been compared.
        changes: of this step, a batch of `DIFF_SCHEMA`; may be empty.
        ranges: how many were opened so far, on both sides.
    """

    upto: str
    changes: pa.RecordBatch
    ranges: int


async def compared(
    reader: RangeReader,
    namespace: str,
    left: Metarange,
    right: Metarange,
    *,
    start: str,
    end: str | None,
    rows_first: int,
) -> AsyncGenerator[Window, None]:
    """Compares the paths in `[start, end)`, in order.

    Args:
        reader: opens ranges.
        namespace: of both listings.
        left: before.
        right: after.
        start: inclusive.
        end: exclusive; None for none.
        rows_first: how many rows of a side the first window has at most.
    """
    lefts, rights = await reader.compute(_unshared, left, right, start, end)
    sides = (
        _Side(reader, namespace, lefts, start, end),
        _Side(reader, namespace, rights, start, end),
    )
    rows = rows_first
    while True:
        for side in sides:
            await side.fill()
        live = [side for side in sides if len(side.rows)]
        if not live:
            return
        # Up to here both sides are known. A side without rows has come to its end.
        frontier = min(side.path_at(rows) for side in live)
        changes = await reader.compute(_changes, sides, frontier)
        yield Window(frontier, changes, sum(side.opened for side in sides))
        rows *= 2


def _unshared(
    left: Metarange, right: Metarange, start: str, end: str | None
) -> tuple[list[RangeInfo], list[RangeInfo]]:
    """The ranges of each listing that may hold a path in `[start, end)` and that the other one lacks."""
    # A range that both have spans the same paths in both, so it is in both of these.
    lefts, rights = (_spanning(listing, start, end) for listing in (left, right))
    left_ids, right_ids = ({info.range_id for info in infos} for infos in (lefts, rights))
    return (
        [info for info in lefts if info.range_id not in right_ids],
        [info for info in rights if info.range_id not in left_ids],
    )


def _spanning(listing: Metarange, start: str, end: str | None) -> Sequence[RangeInfo]:
    """The ranges that may hold a path in `[start, end)`."""
    first, last = listing.range_of(start), len(listing.ranges)
    if end is not None:
        last = listing.range_of(end)
        last += last < len(listing.ranges) and listing.ranges[last].min_path < end
    return listing.ranges[first:last]


def _changes(sides: tuple[_Side, _Side], frontier: str) -> pa.RecordBatch:
    rows = [side.take_upto(frontier) for side in sides]
    return diff_runs(rows[0], rows[1])


class _Side:
    """The rows of one listing that the other may not have, in order.

    Attributes:
        rows: at hand.
        opened: how many ranges they and those before came from.
    """

    def __init__(
        self,
        reader: RangeReader,
        namespace: str,
        ranges: Sequence[RangeInfo],
        start: str,
        end: str | None,
    ) -> None:
        self._reader = reader
        self._namespace = namespace
        self._start, self._end = start, end
        self._left: Iterator[RangeInfo] = iter(ranges)
        self.rows = EMPTY_RUN
        self.opened = 0

    async def fill(self) -> None:
        """Opens the next range if no row is at hand; none is left if there is none then."""
        while not len(self.rows):
            info = next(self._left, None)
            if info is None:
                return
            found = await self._reader.range(self._namespace, info.range_id)
            self.opened += 1
            first = found.find(self._start) if info.min_path < self._start else 0
            is_cut = self._end is not None and info.max_path >= self._end
            last = found.find(self._end) if is_cut and self._end is not None else len(found)
            self.rows = found.run.slice(first, max(first, last))

    def path_at(self, count: int) -> str:
        """The path of the last of the first `count` rows at hand, of which there is one at least."""
        path: str = self.rows.paths[min(count, len(self.rows)) - 1].as_py()
        return path

    def take_upto(self, path: str) -> Run:
        """Takes the rows up to and with `path`."""
        if not len(self.rows):
            return EMPTY_RUN
        taken, self.rows = upto(self.rows, path)
        return taken
