"""Compares two listings, opening only the ranges that they do not share.

A path is in one range of a listing, so a path in a range that both have is the same on both sides:
the differences are those between the rows of the ranges that only the left has and the rows of the
ranges that only the right has. Both are walked together, a window at a time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from collections.abc import Set as AbstractSet

import pyarrow as pa

from tarn.block.rangereader import RangeReader
from tarn.core.diff import diff_runs
from tarn.core.ids import RangeId
from tarn.core.merge import upto
from tarn.core.metarange import Metarange, RangeInfo
from tarn.core.run import EMPTY_RUN, Run

__all__ = ["compared"]


async def compared(
    reader: RangeReader,
    namespace: str,
    left: Metarange,
    right: Metarange,
    *,
    start: str,
    end: str | None,
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Differences of the paths in `[start, end)` as batches of `DIFF_SCHEMA`, none of them empty."""
    left_ids = {info.range_id for info in left.ranges}
    right_ids = {info.range_id for info in right.ranges}
    sides = (
        _Side(reader, namespace, left, right_ids, start, end),
        _Side(reader, namespace, right, left_ids, start, end),
    )
    while True:
        for side in sides:
            await side.fill()
        live = [side for side in sides if len(side.rows)]
        if not live:
            return
        # Up to here both sides are known. A side without rows has come to its end.
        frontier = min(side.rows.last_path for side in live)
        batch = await reader.compute(_window, sides, frontier)
        if batch.num_rows:
            yield batch


def _window(sides: tuple[_Side, _Side], frontier: str) -> pa.RecordBatch:
    rows = [side.take_upto(frontier) for side in sides]
    return diff_runs(rows[0], rows[1])


class _Side:
    """The rows of one listing that the other may not have, in order."""

    def __init__(
        self,
        reader: RangeReader,
        namespace: str,
        listing: Metarange,
        shared: AbstractSet[RangeId],
        start: str,
        end: str | None,
    ) -> None:
        self._reader = reader
        self._namespace = namespace
        self._start, self._end = start, end
        self._left: Iterator[RangeInfo] = (
            info
            for info in listing.ranges[listing.range_of(start) :]
            if info.range_id not in shared and (end is None or info.min_path < end)
        )
        self.rows = EMPTY_RUN

    async def fill(self) -> None:
        """Opens the next range if no row is at hand; none is left if there is none then."""
        while not len(self.rows):
            info = next(self._left, None)
            if info is None:
                return
            found = await self._reader.range(self._namespace, info.range_id)
            first = found.find(self._start) if info.min_path < self._start else 0
            is_cut = self._end is not None and info.max_path >= self._end
            last = found.find(self._end) if is_cut and self._end is not None else len(found)
            self.rows = found.run.slice(first, max(first, last))

    def take_upto(self, path: str) -> Run:
        """Takes the rows up to and with `path`."""
        if not len(self.rows):
            return EMPTY_RUN
        taken, self.rows = upto(self.rows, path)
        return taken
