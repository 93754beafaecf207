"""Compares two listings and opens only the ranges that they do not share.

A listing has each path in exactly one range. So all paths of a shared range are equal on both sides, and
the differences lie between the rows of the unshared ranges. Both sides are walked together in windows.

The first windows are small, and each window is twice as large as the one before, up to a whole range.
A page of dense changes compares few rows beyond its own, and a page of sparse changes needs few windows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import pyarrow as pa

from tarn.aio.first_error import collapse_error_groups
from tarn.block.rangereader import RangeReader
from tarn.core.errors import TarnError
from tarn.core.listing.changes import upto
from tarn.core.listing.diff import diff_runs
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import EMPTY_RUN, Run
from tarn.core.listing.segments import Segment
from tarn.core.listing.spans import PathSpan
from tarn.core.listing.virtual import decided, fold_rows

__all__ = ["AlignedRows", "ListingSide", "Window", "aligned", "compared", "compared_segments"]


@dataclass(frozen=True, slots=True)
class Window:
    """One step of a comparison.

    Attributes:
        upto: all paths up to and including this one have been compared.
        changes: the differences of this step, a batch of `DIFF_SCHEMA`; may be empty.
        ranges: number of ranges opened so far, on both sides.
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
        namespace: the namespace of both listings.
        left: the older listing.
        right: the newer listing.
        start: inclusive.
        end: exclusive; None: no bound.
        rows_first: maximum number of rows of each side in the first window.
    """
    lefts, rights = await reader.compute(_unshared, left, right, start, end)
    sides = (
        ListingSide(reader, namespace, lefts, start, end),
        ListingSide(reader, namespace, rights, start, end),
    )
    rows = rows_first
    while True:
        for side in sides:
            await side.fill()
        live = [side for side in sides if len(side.rows)]
        if not live:
            return
        # Both sides are known up to here. A side without rows has reached its end.
        frontier = min(side.path_at(rows) for side in live)
        changes = await reader.compute(_changes, sides, frontier)
        yield Window(frontier, changes, sum(side.opened for side in sides))
        rows *= 2


@dataclass(frozen=True, slots=True, eq=False)
class AlignedRows:
    """One step of a walk along several sequences of ranges.

    Attributes:
        upto: all paths up to and including this one have been passed.
        runs: the rows of this step in each sequence; some of them may be empty, not all.
        ranges: number of ranges opened so far in all sequences.
    """

    upto: str
    runs: tuple[Run, ...]
    ranges: int


async def aligned(
    reader: RangeReader, namespace: str, sequences: Sequence[Sequence[RangeInfo]], start: str = ""
) -> AsyncGenerator[AlignedRows, None]:
    """Walks sequences of ranges together from the path `start`. Each step ends where one of their ranges ends.

    Holds one range of each sequence.

    Raises:
        TarnError: as `RangeReader.range`.
    """
    sides = []
    for sequence in sequences:
        ranges = [info for info in sequence if info.max_path >= start]
        sides.append(ListingSide(reader, namespace, ranges, start, None))
    while True:
        with collapse_error_groups(prefer=TarnError):
            async with asyncio.TaskGroup() as group:
                for side in sides:
                    if not len(side.rows):
                        group.create_task(side.fill())
        live = [side for side in sides if len(side.rows)]
        if not live:
            return
        upto_path = min(side.rows.last_path for side in live)
        runs = tuple(side.take_upto(upto_path) for side in sides)
        yield AlignedRows(upto_path, runs, sum(side.opened for side in sides))


async def compared_segments(
    reader: RangeReader, namespace: str, segments: Sequence[Segment], span: PathSpan
) -> AsyncGenerator[Window, None]:
    """Compares a virtual base with another listing, in order.

    Args:
        reader: opens ranges.
        namespace: the namespace of all listings.
        segments: of the base, with the newer listing as source, and as destination the listing that has the entries of
            undecided paths.
        span: the paths to compare.
    """
    opened = 0
    for segment in segments:
        if segment.base == segment.source or segment.last_path < span.start:
            continue
        if span.end is not None and segment.first_path >= span.end:
            return
        own = (segment.dest,) if segment.steps else ()
        steps = aligned(reader, namespace, (*segment.bases, *own, segment.source), span.start)
        here = 0
        async with aclosing(steps):
            async for step in steps:
                changes = await reader.compute(_base_changes, segment, step.runs, span.end)
                here = step.ranges
                yield Window(step.upto, changes, opened + here)
        opened += here


def _base_changes(segment: Segment, runs: Sequence[Run], end: str | None) -> pa.RecordBatch:
    *bases, newer = runs
    if segment.steps:
        *parts, own = bases
        bases = [decided(fold_rows(parts, segment.steps), own)]
    if end is not None:
        bases, newer = [bases[0].slice(0, bases[0].find(end))], newer.slice(0, newer.find(end))
    return diff_runs(bases[0], newer)


def _unshared(
    left: Metarange, right: Metarange, start: str, end: str | None
) -> tuple[list[RangeInfo], list[RangeInfo]]:
    """Returns the ranges of each listing that may hold a path in `[start, end)` and are not in the other one."""
    # A shared range spans the same paths in both listings, so it is in both of these.
    lefts, rights = (_spanning(listing, start, end) for listing in (left, right))
    left_ids, right_ids = ({info.range_id for info in infos} for infos in (lefts, rights))
    return (
        [info for info in lefts if info.range_id not in right_ids],
        [info for info in rights if info.range_id not in left_ids],
    )


def _spanning(listing: Metarange, start: str, end: str | None) -> Sequence[RangeInfo]:
    """Returns the ranges that may hold a path in `[start, end)`."""
    first, last = listing.range_of(start), len(listing.ranges)
    if end is not None:
        last = listing.range_of(end)
        last += last < len(listing.ranges) and listing.ranges[last].min_path < end
    return listing.ranges[first:last]


def _changes(sides: tuple[ListingSide, ListingSide], frontier: str) -> pa.RecordBatch:
    rows = [side.take_upto(frontier) for side in sides]
    return diff_runs(rows[0], rows[1])


class ListingSide:
    """The rows of some ranges of one listing, in order.

    Attributes:
        rows: the rows that are loaded and not yet compared.
        opened: number of ranges opened so far.
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
        """Opens the next range if `rows` is empty; `rows` stays empty at the end of the listing."""
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
        """Returns the path of the last of the first `count` rows. Requires at least one row."""
        path: str = self.rows.paths[min(count, len(self.rows)) - 1].as_py()
        return path

    def take_upto(self, path: str) -> Run:
        """Removes and returns the rows up to and including `path`."""
        if not len(self.rows):
            return EMPTY_RUN
        taken, self.rows = upto(self.rows, path)
        return taken
