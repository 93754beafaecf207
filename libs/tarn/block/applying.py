"""Builds a metarange: lays staged layers over one another, applies them to a base, cuts and writes ranges.

Rows stream through in key order, one batch of changes and one range of the base at a time. So memory
is bounded by a few batches and ranges, whatever the size of the commit. Ranges of the base that no
change touches are reused by id; they are neither opened nor copied. `tarn.core.listing.breaks` explains
why cutting may start in the middle of a listing and stop early. Ranges of a compaction that the rule would not
have ended are cut anew, unless the build is a compaction itself: so a commit is cut by the rule, whatever was
compacted before, and equal commits have equal ids.

One task applies changes and cuts, and others write the ranges (`tarn.block.assembling`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tarn.block.assembling import ListingWriter
from tarn.block.rangereader import RangeReader
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.changed_paths import NO_PATHS, ChangedPaths, PathCollector
from tarn.core.listing.changes import Counts, apply_changes, overlay, upto
from tarn.core.listing.metarange import Metarange
from tarn.core.listing.run import EMPTY_RUN, Run, run_of_batch, tombstones_of

__all__ = ["BuildResult", "ChangeApplier", "StagedTally", "overlaid"]

_AHEAD_MAX = 4
"""Ranges of the base that are prefetched."""
_FINER_RANGES = 16
"""Ranges that a compaction cuts finer: some 40,000 rows, as many as two or three places need. A large compaction writes
the others as a commit does, which takes these over; a file costs some 3 ms of CPU, whatever its size."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a build.

    Attributes:
        metarange_id: the new listing; the base's id if nothing changed.
        changed: whether the listing differs from the base.
        added: number of paths that the base does not have.
        updated: number of paths whose identity changed.
        removed: number of paths that the base has and the new listing does not.
        count: number of entries in the new listing.
        object_bytes: sum of the sizes of its objects.
        ranges_written: number of ranges that the base does not have.
        ranges_reused: number of ranges shared with the base.
        changed_paths: the paths that are counted above.
        rows_read: number of staged rows that were read, in all layers; 0 for the reset of a part.
        tombstones_read: number of tombstones among them.
        rows_written: number of rows in the ranges that were written.
        made: paths of the ranges and metaranges that were put. A collection may have judged one that was there already
            (docs/design/collection.md), so they are checked before the listing is relied upon.
    """

    metarange_id: MetarangeId
    changed: bool
    added: int
    updated: int
    removed: int
    count: int
    object_bytes: int
    ranges_written: int
    ranges_reused: int
    changed_paths: ChangedPaths = field(default=NO_PATHS, compare=False)
    rows_read: int = 0
    tombstones_read: int = 0
    rows_written: int = 0
    made: tuple[str, ...] = field(default=(), compare=False)


@dataclass(slots=True)
class StagedTally:
    """Counts the staged rows that a build reads.

    Attributes:
        rows: rows so far, tombstones included.
        tombstones: tombstones among them.
    """

    rows: int = 0
    tombstones: int = 0

    def add(self, rows: Run) -> None:
        """Counts rows."""
        self.rows += len(rows)
        self.tombstones += int(tombstones_of(rows.values).sum())


async def overlaid(
    layers: Sequence[AsyncIterator[pa.RecordBatch]],
    reader: RangeReader,
    tally: StagedTally | None = None,
) -> AsyncGenerator[Run, None]:
    """Merges staged layers, newest first, into one stream of runs in path order; the newest row of a path wins.

    A run ends at the smallest last path of the layers' current batches: up to there all layers are known. `tally`
    counts the rows of all layers.
    """
    streams = [_Layer(layer, reader, tally) for layer in layers]
    try:
        for stream in streams:
            await stream.advance()
        while live := [stream for stream in streams if len(stream.rows)]:
            end = min(stream.last for stream in live)
            yield await reader.compute(_overlay_upto, live, end)
            for stream in live:
                if not len(stream.rows):
                    await stream.advance()
    finally:
        for stream in streams:
            await stream.close()


def _overlay_upto(live: Sequence[_Layer], end: str) -> Run:
    if len(live) == 1:
        rows, live[0].rows = live[0].rows, EMPTY_RUN
        return rows
    heads = []
    for stream in live:
        head, stream.rows = upto(stream.rows, end)
        heads.append(head)
    return overlay(heads)


class _Layer:
    """One stream of staged rows, with its current batch."""

    __slots__ = ("_batches", "_reader", "_tally", "last", "rows")

    def __init__(
        self,
        batches: AsyncIterator[pa.RecordBatch],
        reader: RangeReader,
        tally: StagedTally | None,
    ) -> None:
        self._batches = batches
        self._reader = reader
        self._tally = tally
        self.rows = EMPTY_RUN
        self.last: str = ""  # Invariant: the last path of the newest batch.

    async def advance(self) -> None:
        """Reads the next batch that is not empty; `rows` stays empty at the end."""
        async for batch in self._batches:
            if not batch.num_rows:
                continue
            after = self.last or None
            self.rows = await self._reader.compute(run_of_batch, batch, after)
            self.last = self.rows.last_path
            if self._tally is not None:
                self._tally.add(self.rows)
            return

    async def close(self) -> None:
        """Closes the stream, so that a failed build leaves no scan open."""
        if isinstance(self._batches, AsyncGenerator):
            await self._batches.aclose()


class ChangeApplier:
    """Applies changes to one base listing and writes the new one. An instance is used once.

    Args:
        reader: where ranges are read and written.
        namespace: the repository's namespace.
        base: the listing to start from.
        rule: where listings are cut into ranges.
        known: further metaranges in that namespace; their ranges are not written again.
        finely: cuts the first ranges that are written finer, for a compaction.
        exact: a change with the identity of the base's entry replaces it, if their bytes differ.
    """

    def __init__(
        self,
        reader: RangeReader,
        namespace: str,
        base: Metarange,
        rule: BreakRule,
        known: Sequence[Metarange] = (),
        *,
        finely: bool = False,
        exact: bool = False,
    ) -> None:
        self._reader = reader
        self._exact = exact
        self._namespace = namespace
        self._base = base
        # The last range ends with the listing; nothing needs to be cut there.
        recut = () if finely else rule.open_ranges(base.ranges[:-1])
        finer = _FINER_RANGES if finely else 0
        self._writer = ListingWriter(
            reader, namespace, [base, *known], rule, finer=finer, recut=recut
        )
        self._counts = Counts()
        self._paths = PathCollector()
        # Invariant: ranges of the base before `_next` are finished, except the rows `_rest` of the last.
        self._next = 0
        self._rest = EMPTY_RUN
        # The index of every path past the range before it: the last range of the base if that range
        # ended because there were no more rows, else none.
        self._last = len(base.ranges)
        if base.ranges:
            last = base.ranges[-1]
            is_closed = rule.is_closed(last.max_path, last.count, last.size_bytes)
            self._last -= not is_closed

    async def run(
        self, changes: AsyncIterator[Run], tally: StagedTally | None = None
    ) -> BuildResult:
        """Applies changes, which arrive in path order, and writes the new ranges and the metarange.

        `tally` counts the staged rows that `changes` is made of.
        """
        async with asyncio.TaskGroup() as group:
            async for piece in changes:
                await self._apply(group, piece)
            await self._go_to(group, len(self._base.ranges))
            await self._writer.end(group)
        metarange = await self._writer.publish()
        tally = tally or StagedTally()
        return BuildResult(
            metarange_id=metarange.metarange_id,
            changed=metarange.metarange_id != self._base.metarange_id,
            added=self._counts.added,
            updated=self._counts.updated,
            removed=self._counts.removed,
            count=metarange.count,
            object_bytes=metarange.object_bytes,
            ranges_written=self._writer.written,
            ranges_reused=len(metarange.ranges) - self._writer.written,
            changed_paths=self._paths.result(),
            rows_read=tally.rows,
            tombstones_read=tally.tombstones,
            rows_written=self._writer.rows_written,
            made=tuple(self._writer.made),
        )

    async def _apply(self, group: asyncio.TaskGroup, changes: Run) -> None:
        pieces = await self._reader.compute(self._split, changes)
        requested = 0
        for number, (place, piece) in enumerate(pieces):
            for ahead, _ in pieces[max(requested, number + 1) : number + 1 + _AHEAD_MAX]:
                self._fetch_ahead(group, ahead)
            requested = number + 1 + _AHEAD_MAX
            await self._apply_to_range(group, place, piece, is_whole=number + 1 < len(pieces))

    def _split(self, changes: Run) -> list[tuple[int, Run]]:
        """Splits changes by the range of the base that contains their paths."""
        pieces = []
        while len(changes):
            place = self._base.range_of(changes.first_path)
            if place >= self._last:
                pieces.append((self._last, changes))
                break
            piece, changes = upto(changes, self._base.max_paths[place])
            pieces.append((place, piece))
        return pieces

    def _fetch_ahead(self, group: asyncio.TaskGroup, place: int) -> None:
        if place < len(self._base.ranges):
            range_id = self._base.ranges[place].range_id
            if self._reader.cache.opened(range_id) is None:
                group.create_task(self._load(place))

    async def _load(self, place: int) -> Run:
        range_id = self._base.ranges[place].range_id
        return (await self._reader.range(self._namespace, range_id)).run

    async def _apply_to_range(
        self, group: asyncio.TaskGroup, place: int, changes: Run, *, is_whole: bool
    ) -> None:
        """Applies changes to a range of the base; `is_whole` says that no more changes follow for it."""
        if self._next <= place:
            await self._go_to(group, place)
            if place < len(self._base.ranges):
                self._rest = await self._load(place)
                self._next = place + 1

        def work() -> tuple[list[Run], Counts]:
            rows, self._rest = self._rest, EMPTY_RUN
            if not is_whole:
                rows, self._rest = upto(rows, changes.last_path)
            after = apply_changes(rows, changes, exact=self._exact)
            self._paths.add(after.paths)
            made: list[Run] = []
            for number, run in enumerate(after.runs):
                made += self._writer.cutter.add(run, is_old=number != after.changed)
            return made, after.counts

        ranges, counts = await self._reader.compute(work)
        self._counts += counts
        await self._writer.emit(group, ranges)

    async def _go_to(self, group: asyncio.TaskGroup, place: int) -> None:
        """Reuses the ranges of the base that precede its range `place`."""
        if len(self._rest):
            rows, self._rest = self._rest, EMPTY_RUN
            await self._writer.add_old(group, rows)
        if self._next < place:
            await self._writer.keep(group, self._base.ranges[self._next : place])
            self._next = place
