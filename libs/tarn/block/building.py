"""Builds a metarange: lays staged layers over one another, applies them to a base, cuts and writes ranges.

Rows stream through in key order, one batch of changes and one range of the base at a time. So memory
is bounded by a few batches and ranges, whatever the size of the commit. Ranges of the base that no
change touches are reused by id; they are neither opened nor copied. `tarn.core.listing.breaks` explains
why cutting may start in the middle of a listing and stop early.

One task merges and cuts. Up to `WRITES_MAX` other tasks hash, encode and put the ranges that it cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tarn.block.port import BlockExistsError, BlockKey
from tarn.block.rangefile import (
    describe_range,
    encode_metarange,
    encode_range,
    metarange_path,
    range_path,
)
from tarn.block.rangereader import RangeReader
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule, Cutter
from tarn.core.listing.changes import Counts, apply_changes, overlay, upto
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import EMPTY_RUN, Run, run_of_batch

__all__ = ["BuildResult", "Building", "overlaid"]

WRITES_MAX = 8
"""Ranges that are encoded and written concurrently: enough to hide the latency of an object store."""
_AHEAD_MAX = 4
"""Ranges of the base that are prefetched."""
_KEEP_MAX = 8
"""Written ranges that a build adds to the local cache. An ordinary commit has fewer, and the next commit
reads them again. A bulk load has more; caching all of them would slow it down."""


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


async def overlaid(
    layers: Sequence[AsyncIterator[pa.RecordBatch]], reader: RangeReader
) -> AsyncGenerator[Run, None]:
    """Merges staged layers, newest first, into one stream of runs in path order; the newest row of a path wins.

    A run ends at the smallest last path of the layers' current batches: up to there all layers are known.
    """
    streams = [_Layer(layer, reader) for layer in layers]
    try:
        for stream in streams:
            await stream.advance()
        while live := [stream for stream in streams if len(stream.rows)]:
            end = min(stream.last for stream in live)
            yield await reader.compute(_merge, live, end)
            for stream in live:
                if not len(stream.rows):
                    await stream.advance()
    finally:
        for stream in streams:
            await stream.close()


def _merge(live: Sequence[_Layer], end: str) -> Run:
    if len(live) == 1:
        merged, live[0].rows = live[0].rows, EMPTY_RUN
        return merged
    heads = []
    for stream in live:
        head, stream.rows = upto(stream.rows, end)
        heads.append(head)
    return overlay(heads)


class _Layer:
    """One stream of staged rows, with its current batch."""

    __slots__ = ("_batches", "_reader", "last", "rows")

    def __init__(self, batches: AsyncIterator[pa.RecordBatch], reader: RangeReader) -> None:
        self._batches = batches
        self._reader = reader
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
            return

    async def close(self) -> None:
        """Closes the stream, so that a failed build leaves no scan open."""
        if isinstance(self._batches, AsyncGenerator):
            await self._batches.aclose()


class Building:
    """One build of a listing. An instance is used once."""

    def __init__(
        self, reader: RangeReader, namespace: str, base: Metarange, rule: BreakRule
    ) -> None:
        self._reader = reader
        self._namespace = namespace
        self._base = base
        self._known = {info.range_id for info in base.ranges}
        self._cutter = Cutter(rule)
        self._counts = Counts()
        # The new listing in order; None while a range is being written.
        self._made: list[RangeInfo | None] = []
        self._written = 0
        self._room = asyncio.Semaphore(WRITES_MAX)
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

    async def run(self, changes: AsyncIterator[Run]) -> BuildResult:
        """Applies changes, which arrive in path order, and writes the new ranges and the metarange."""
        async with asyncio.TaskGroup() as group:
            async for piece in changes:
                await self._apply(group, piece)
            await self._go_to(group, len(self._base.ranges))
            last = self._cutter.finish()
            if last is not None:
                await self._emit(group, [last])
        return await self._finish()

    async def _finish(self) -> BuildResult:
        made = [info for info in self._made if info is not None]
        assert len(made) == len(self._made), "every range was written"
        metarange = await self._reader.compute(Metarange, tuple(made))
        if metarange.metarange_id != self._base.metarange_id or not metarange.ranges:
            body = await self._reader.compute(encode_metarange, metarange)
            await self._put(metarange_path(metarange.metarange_id), body)
        self._reader.hold(self._namespace, metarange)
        return BuildResult(
            metarange_id=metarange.metarange_id,
            changed=metarange.metarange_id != self._base.metarange_id,
            added=self._counts.added,
            updated=self._counts.updated,
            removed=self._counts.removed,
            count=metarange.count,
            object_bytes=metarange.object_bytes,
            ranges_written=self._written,
            ranges_reused=len(made) - self._written,
        )

    async def _apply(self, group: asyncio.TaskGroup, changes: Run) -> None:
        pieces = await self._reader.compute(self._split, changes)
        asked = 0
        for number, (place, piece) in enumerate(pieces):
            for ahead, _ in pieces[max(asked, number + 1) : number + 1 + _AHEAD_MAX]:
                self._fetch_ahead(group, ahead)
            asked = number + 1 + _AHEAD_MAX
            await self._merge(group, place, piece, is_whole=number + 1 < len(pieces))

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

    async def _merge(
        self, group: asyncio.TaskGroup, place: int, changes: Run, *, is_whole: bool
    ) -> None:
        """Merges changes into a range of the base; `is_whole` says that no more changes follow for it."""
        if self._next <= place:
            await self._go_to(group, place)
            if place < len(self._base.ranges):
                self._rest = await self._load(place)
                self._next = place + 1

        def work() -> tuple[list[Run], Counts]:
            rows, self._rest = self._rest, EMPTY_RUN
            if not is_whole:
                rows, self._rest = upto(rows, changes.last_path)
            merged = apply_changes(rows, changes)
            return [made for run in merged.runs for made in self._cutter.add(run)], merged.counts

        ranges, counts = await self._reader.compute(work)
        self._counts += counts
        await self._emit(group, ranges)

    async def _go_to(self, group: asyncio.TaskGroup, place: int) -> None:
        """Reuses the ranges of the base that precede its range `place`."""
        if len(self._rest):
            rows, self._rest = self._rest, EMPTY_RUN
            await self._emit(group, await self._cut(rows))
        while self._next < place:
            if self._cutter.is_at_cut:
                self._made.append(self._base.ranges[self._next])
            else:
                await self._emit(group, await self._cut(await self._load(self._next)))
            self._next += 1

    async def _cut(self, rows: Run) -> list[Run]:
        return await self._reader.compute(self._cutter.add, rows)

    async def _emit(self, group: asyncio.TaskGroup, ranges: Sequence[Run]) -> None:
        for run in ranges:
            await self._room.acquire()
            self._made.append(None)
            group.create_task(self._write(group, len(self._made) - 1, run))

    async def _write(self, group: asyncio.TaskGroup, place: int, run: Run) -> None:
        try:
            info, body = await self._reader.compute(self._file, run)
            self._made[place] = info
            if body is None:
                return
            self._written += 1
            if self._written <= _KEEP_MAX:
                group.create_task(self._reader.cache.add(info.range_id, run))
            await self._put(range_path(info.range_id), body)
        finally:
            self._room.release()

    def _file(self, run: Run) -> tuple[RangeInfo, pa.Buffer | None]:
        """Returns a range's row in the metarange, and its file (None if the base has the range)."""
        info = describe_range(run)
        return info, None if info.range_id in self._known else encode_range(run)

    async def _put(self, path: str, body: pa.Buffer) -> None:
        try:
            await self._reader.store.put(BlockKey(self._namespace, path), memoryview(body))
        except BlockExistsError:
            # Another version of the Parquet library wrote the same rows: the id guarantees that.
            return
