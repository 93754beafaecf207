"""Assembles a listing in order, from ranges that exist and from rows, and writes the new ranges and the metarange.

One task adds rows and ranges. Up to `WRITES_MAX` other tasks hash, encode and put the ranges that were cut.
`tarn.core.listing.breaks` explains why an existing range may be taken over where the new listing is at a cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pyarrow as pa

from tarn.block.port import BlockExistsError, BlockKey, put_again
from tarn.block.rangefile import (
    describe_range,
    encode_metarange,
    encode_range,
    metarange_path,
    range_path,
)
from tarn.block.rangereader import RangeReader
from tarn.core.ids import RangeId
from tarn.core.listing.breaks import BreakRule, Cutter
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import Run

__all__ = ["WRITES_MAX", "ListingWriter"]

WRITES_MAX = 8
"""Ranges that are encoded and written concurrently: enough to hide the latency of an object store."""
_KEEP_ROWS = 160_000
"""Rows of written ranges that a listing adds to the local cache. An ordinary commit has fewer, and the next commit
reads them again. A bulk load has more; caching all of them would slow it down."""
_BESIDE_ROWS_MIN = 1000
"""A range of fewer rows is hashed in about the time that a second thread takes to begin."""
_AHEAD_MAX = 4
"""Ranges that are prefetched before they are cut anew."""


class ListingWriter:
    """Writes one listing. An instance is used once, inside one task group.

    Args:
        reader: where ranges are read and written.
        namespace: the repository's namespace.
        known: metaranges in that namespace; their ranges are not written again.
        rule: where the listing is cut into ranges.
        finer: the number of written ranges, from the first one on, that the finer rule cuts.
        recut: ranges that are not kept as they are, because the rule would not have ended them there.

    Attributes:
        cutter: takes rows; call `emit` with the ranges that it completes.
        written: number of ranges written so far.
        rows_written: number of rows in them.
        made: paths of the ranges and metaranges that were put, whether or not they were there already.
    """

    def __init__(
        self,
        reader: RangeReader,
        namespace: str,
        known: Iterable[Metarange],
        rule: BreakRule,
        *,
        finer: int = 0,
        recut: Iterable[RangeInfo] = (),
    ) -> None:
        known = tuple(known)
        self._reader = reader
        self._namespace = namespace
        self._known_listings = {listing.metarange_id for listing in known}
        self._known = {info.range_id for listing in known for info in listing.ranges}
        self._recut = {info.range_id for info in recut}
        self.cutter = Cutter(rule, finer)
        # The new listing in order; None while a range is being written.
        self._made: list[RangeInfo | None] = []
        self.written = 0
        self.rows_written = 0
        self.made: list[str] = []
        self._kept: list[tuple[RangeId, Run]] = []
        self._room = asyncio.Semaphore(WRITES_MAX)
        self._writing = 0

    async def keep(self, group: asyncio.TaskGroup, ranges: Sequence[RangeInfo]) -> None:
        """Adds existing ranges: unopened if the listing is at a cut, else their rows. Also rows of ranges in `recut`.

        Only a range that the rule ended, or the last one of the listing, may be kept; or another one in a listing that
        is cut finer.
        """
        requested = 0
        for number, info in enumerate(ranges):
            if self.cutter.is_at_cut and info.range_id not in self._recut:
                self._made.append(info)
                continue
            for ahead in ranges[max(requested, number + 1) : number + 1 + _AHEAD_MAX]:
                if (
                    ahead.range_id in self._recut
                    and self._reader.cache.opened(ahead.range_id) is None
                ):
                    group.create_task(self._reader.range(self._namespace, ahead.range_id))
            requested = number + 1 + _AHEAD_MAX
            found = await self._reader.range(self._namespace, info.range_id)
            await self.add_old(group, found.run)

    async def add_old(self, group: asyncio.TaskGroup, rows: Run) -> None:
        """Adds the next rows, which are neighbours in one existing range."""
        await self.emit(group, await self._reader.compute(self.cutter.add, rows, is_old=True))

    async def emit(self, group: asyncio.TaskGroup, ranges: Sequence[Run]) -> None:
        """Starts writing the next ranges; waits while too many are being written."""
        for run in ranges:
            await self._room.acquire()
            self._made.append(None)
            self._writing += 1
            group.create_task(self._write(len(self._made) - 1, run))

    async def end(self, group: asyncio.TaskGroup) -> None:
        """Ends the last range."""
        last = self.cutter.finish()
        if last is not None:
            await self.emit(group, [last])

    async def publish(self) -> Metarange:
        """Writes the metarange, after the task group has ended. The listing is durable on return."""
        made = [info for info in self._made if info is not None]
        assert len(made) == len(self._made), "every range was written"
        metarange = await self._reader.compute(Metarange, tuple(made))
        # The empty listing is a known one that may never have been written.
        if metarange.metarange_id not in self._known_listings or not metarange.ranges:
            body = await self._reader.compute(encode_metarange, metarange)
            await self._put(metarange_path(metarange.metarange_id), body)
        self._reader.hold(self._namespace, metarange)
        # Not before: it takes a tenth of the processor time of a build of 100,000 rows, and no caller needs it.
        for range_id, run in self._kept:
            self._reader.cache.add(range_id, run)
        return metarange

    async def _write(self, place: int, run: Run) -> None:
        try:
            info, body = await self._file(run)
            self._made[place] = info
            if body is None:
                return
            self.written += 1
            self.rows_written += len(run)
            if self.rows_written <= _KEEP_ROWS:
                self._kept.append((info.range_id, run))
            await self._put(range_path(info.range_id), body)
        finally:
            self._writing -= 1
            self._room.release()

    async def _file(self, run: Run) -> tuple[RangeInfo, pa.Buffer | None]:
        """Returns a range's row in the metarange, and its file (None if it exists).

        While no other range is being written, a core is idle. Then the rows are hashed beside their encoding, which is
        in vain if the file exists.
        """
        if self._writing > 1 or len(run) < _BESIDE_ROWS_MIN:
            return await self._reader.compute(self._hashed_first, run)
        async with asyncio.TaskGroup() as both:
            body = both.create_task(self._reader.compute(encode_range, run))
            info = both.create_task(self._reader.compute(describe_range, run))
        is_known = info.result().range_id in self._known
        return info.result(), None if is_known else body.result()

    def _hashed_first(self, run: Run) -> tuple[RangeInfo, pa.Buffer | None]:
        info = describe_range(run)
        return info, None if info.range_id in self._known else encode_range(run)

    async def _put(self, path: str, body: pa.Buffer) -> None:
        key = BlockKey(self._namespace, path)
        self.made.append(path)
        try:
            await self._reader.store.put(key, memoryview(body))
        except BlockExistsError:
            # Another version of the Parquet library wrote the same rows: the id guarantees that.
            await put_again(self._reader.store, key)
