"""Committed metadata: builds listings from staged changes, and reads and compares them.

Everything here is immutable and named by content, so reads need no verification against a branch
(docs/design/protocol.md, rule 2). The decisions are pure functions in `tarn.core`; here is what reads and writes.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Final

import pyarrow as pa

from tarn.aio.first_error import collapse_error_groups
from tarn.block.building import Building, BuildResult, overlaid
from tarn.block.comparing import Window, compared
from tarn.block.port import BlockStore
from tarn.block.rangecache import RangeCache
from tarn.block.rangereader import RangeReader
from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.changes import upto
from tarn.core.listing.diff import DiffPage, DiffRows, diff_changes
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange
from tarn.core.listing.pages import path_after, prefix_end
from tarn.core.listing.run import EMPTY_RUN, run_of_batch

__all__ = [
    "NOT_CACHED",
    "BuildResult",
    "Committed",
    "NotCached",
]

_PAGE_BYTES_MAX = 4 << 20
"""Of a page of differences: a quarter of what a message may have."""

_PAGE_RANGES_MAX = 64
"""Opened for a page of differences: mostly 640,000 rows of each side, compared in some 0.3 s."""

_WINDOW_ROWS_MIN = 1024
"""A step is a change of thread; smaller ones cost as much."""


class NotCached(enum.Enum):
    """The type of `NOT_CACHED`."""

    NOT_CACHED = "not cached"


NOT_CACHED: Final = NotCached.NOT_CACHED
"""An answer that needs input or output."""


class Committed:
    """Listings of one block store. Safe to share between tasks of one event loop.

    Args:
        store: where ranges and metaranges are written.
        cache: the ranges that this machine has.
        executor: runs what takes long, one thread per core will do; None: the loop's own.
        rule: how listings are cut.
    """

    def __init__(
        self,
        store: BlockStore,
        cache: RangeCache,
        *,
        executor: Executor | None = None,
        rule: BreakRule | None = None,
    ) -> None:
        self._reader = RangeReader(store, cache, executor)
        self._rule = rule or BreakRule()

    async def build(
        self,
        namespace: str,
        base: MetarangeId | None,
        layers: Sequence[AsyncIterator[pa.RecordBatch]],
    ) -> BuildResult:
        """Applies staged changes to a listing; everything is durable when it returns.

        Args:
            namespace: of the repository.
            base: the listing to start from, None for the empty one.
            layers: newest first. Each gives batches of `path` (string or binary) and `value`, sorted
                by path over all batches, each path once; tombstones delete. They are closed at the end.

        Raises:
            TarnError: CORRUPT for damaged ranges or layers that are not as said; what the store raises.
        """
        metarange = EMPTY_METARANGE
        if base is not None:
            metarange = await self._reader.metarange(namespace, base)
        building = Building(self._reader, namespace, metarange, self._rule)
        with collapse_error_groups(prefer=TarnError):
            async with aclosing(overlaid(layers, self._reader)) as changes:
                return await building.run(changes)

    async def metarange(self, namespace: str, metarange_id: MetarangeId) -> Metarange:
        """The ranges of a listing: for what walks all of it, and for its totals.

        Raises:
            TarnError: as `lookup`.
        """
        return await self._reader.metarange(namespace, metarange_id)

    def lookup_cached(
        self, namespace: str, metarange_id: MetarangeId, path: str
    ) -> bytes | NotCached | None:
        """As `lookup`, if memory has all that it takes; else `NOT_CACHED`. Never waits."""
        metarange = self._reader.held_metarange(namespace, metarange_id)
        if metarange is None:
            return NOT_CACHED
        place = metarange.range_of(path)
        if place == len(metarange.ranges) or path < metarange.ranges[place].min_path:
            return None
        found = self._reader.cache.opened(metarange.ranges[place].range_id)
        return NOT_CACHED if found is None else found.get(path)

    async def lookup(self, namespace: str, metarange_id: MetarangeId, path: str) -> bytes | None:
        """The packed entry of a path; None if the listing does not have it.

        Raises:
            TarnError: CORRUPT, or `BlockNotFoundError` if the store lacks the listing.
        """
        packed = self.lookup_cached(namespace, metarange_id, path)
        if packed is not NOT_CACHED:
            return packed
        metarange = await self._reader.metarange(namespace, metarange_id)
        place = metarange.range_of(path)
        if place == len(metarange.ranges) or path < metarange.ranges[place].min_path:
            return None
        found = await self._reader.range(namespace, metarange.ranges[place].range_id)
        return found.get(path)

    async def page(
        self,
        namespace: str,
        metarange_id: MetarangeId,
        start: str,
        limit: int,
        prefix: str = "",
    ) -> tuple[list[str], list[bytes]]:
        """Up to `limit` paths and their packed entries from `start` (inclusive) on, in byte order.

        Shorter than `limit` means the end. To seek, ask from further on: that costs two bisections.

        Raises:
            TarnError: as `lookup`.
        """
        metarange = await self._reader.metarange(namespace, metarange_id)
        start, end = max(start, prefix), prefix_end(prefix)
        paths: list[str] = []
        entries: list[bytes] = []
        if end is not None and start >= end:
            return paths, entries
        for info in metarange.ranges[metarange.range_of(start) :]:
            if len(paths) >= limit or (end is not None and info.min_path >= end):
                break
            found = await self._reader.range(namespace, info.range_id)
            first = found.find(start) if info.min_path < start else 0
            last = min(len(found), first + limit - len(paths))
            if end is not None and info.max_path >= end:
                last = min(last, found.find(end))
            found_paths, found_entries = found.rows(first, last)
            paths += found_paths
            entries += found_entries
        return paths, entries

    async def diff(
        self,
        namespace: str,
        left: MetarangeId,
        right: MetarangeId,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> DiffPage:
        """Up to `limit` paths greater than `after` that differ, in byte order.

        What both listings share is not opened. A page ends early, even without a change, when it has
        4 MiB or has opened 64 ranges; it always gets further than `after`.

        Raises:
            TarnError: as `lookup`.
        """
        found = DiffRows(limit, _PAGE_BYTES_MAX)
        rows_first = max(_WINDOW_ROWS_MIN, limit + 1)
        windows = self._compared(namespace, left, right, prefix, after, rows_first)
        async with aclosing(windows):
            async for window in windows:
                if found.add(window.changes):
                    return found.page(found.paths[-1])
                if window.ranges >= _PAGE_RANGES_MAX:
                    return found.page(window.upto)
        return found.page(None)

    async def _compared(
        self,
        namespace: str,
        left: MetarangeId,
        right: MetarangeId,
        prefix: str,
        after: str,
        rows_first: int,
    ) -> AsyncGenerator[Window, None]:
        """The comparison of two listings, from behind a path on."""
        if left == right:
            return
        start = max(prefix, path_after(after)) if after else prefix
        sides = [await self._reader.metarange(namespace, side) for side in (left, right)]
        windows = compared(
            self._reader,
            namespace,
            *sides,
            start=start,
            end=prefix_end(prefix),
            rows_first=rows_first,
        )
        async with aclosing(windows):
            async for window in windows:
                yield window

    async def diff_staged(
        self, namespace: str, metarange_id: MetarangeId, changes: pa.RecordBatch
    ) -> DiffPage:
        """What a page of staged rows changes of a listing; rows that change nothing are left out.

        Args:
            namespace: of the repository.
            metarange_id: the listing.
            changes: `path` and `value`, sorted, each path once; tombstones delete.

        Returns:
            What fits in 4 MiB; it goes on after its last path if that is not all.

        Raises:
            TarnError: as `build`.
        """
        metarange = await self._reader.metarange(namespace, metarange_id)
        left = await self._reader.compute(run_of_batch, changes)
        found = DiffRows(len(left), _PAGE_BYTES_MAX)
        while len(left):
            place = metarange.range_of(left.first_path)
            rows, here, left = EMPTY_RUN, left, EMPTY_RUN
            if place < len(metarange.ranges):
                info = metarange.ranges[place]
                here, left = upto(here, info.max_path)
                rows = (await self._reader.range(namespace, info.range_id)).run
            if found.add(await self._reader.compute(diff_changes, rows, here)):
                return found.page(found.paths[-1])
        return found.page(None)
