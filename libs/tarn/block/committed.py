"""Committed metadata: builds listings from staged changes, and reads and compares them.

Everything here is immutable and named by content, so reads need no verification against a branch
(design §4, rule 2). The decisions are pure functions in `tarn.core`; here is what reads and writes.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Final

import pyarrow as pa

from tarn.block.building import Building, BuildResult, overlaid
from tarn.block.comparing import compared
from tarn.block.port import BlockStore
from tarn.block.rangecache import RangeCache
from tarn.block.rangereader import RangeReader
from tarn.core.breaks import BreakRule
from tarn.core.diff import DiffEntry, DiffKind, count_diff, diff_changes, diff_entries
from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing import path_after, prefix_end
from tarn.core.merge import Counts, upto
from tarn.core.metarange import EMPTY_METARANGE, Metarange
from tarn.core.run import EMPTY_RUN, run_of_batch

__all__ = [
    "NOT_CACHED",
    "BuildResult",
    "Committed",
    "DiffEntry",
    "DiffKind",
    "NotCached",
]


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
                by path over all batches, each path once; markers delete. They are closed at the end.

        Raises:
            TarnError: CORRUPT for damaged ranges or layers that are not as said; what the store raises.
        """
        metarange = EMPTY_METARANGE
        if base is not None:
            metarange = await self._reader.metarange(namespace, base)
        building = Building(self._reader, namespace, metarange, self._rule)
        try:
            async with aclosing(overlaid(layers, self._reader)) as changes:
                return await building.run(changes)
        except ExceptionGroup as group:
            raise _first(group) from None

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
    ) -> list[DiffEntry]:
        """Up to `limit` paths greater than `after` that differ, in byte order.

        Shorter than `limit` means the end. What both listings share is not opened.

        Raises:
            TarnError: as `lookup`.
        """
        entries: list[DiffEntry] = []
        batches = self.diff_batches(namespace, left, right, prefix=prefix, after=after)
        async with aclosing(batches):
            async for batch in batches:
                entries += diff_entries(batch.slice(0, limit - len(entries)))
                if len(entries) >= limit:
                    break
        return entries

    async def diff_batches(
        self,
        namespace: str,
        left: MetarangeId,
        right: MetarangeId,
        *,
        prefix: str = "",
        after: str = "",
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """All differences as batches of `tarn.core.diff.DIFF_SCHEMA`, none of them empty."""
        if left == right:
            return
        start = max(prefix, path_after(after)) if after else prefix
        sides = [await self._reader.metarange(namespace, side) for side in (left, right)]
        batches = compared(self._reader, namespace, *sides, start=start, end=prefix_end(prefix))
        async with aclosing(batches):
            async for batch in batches:
                yield batch

    async def count_diff(
        self, namespace: str, left: MetarangeId, right: MetarangeId, *, prefix: str = ""
    ) -> Counts:
        """How many paths differ, by kind."""
        counts = Counts()
        batches = self.diff_batches(namespace, left, right, prefix=prefix)
        async with aclosing(batches):
            async for batch in batches:
                counts += count_diff(batch)
        return counts

    async def diff_staged(
        self, namespace: str, metarange_id: MetarangeId, changes: pa.RecordBatch
    ) -> list[DiffEntry]:
        """What a page of staged rows changes of a listing; rows that change nothing are left out.

        Args:
            namespace: of the repository.
            metarange_id: the listing.
            changes: `path` and `value`, sorted, each path once; markers delete.

        Raises:
            TarnError: as `build`.
        """
        metarange = await self._reader.metarange(namespace, metarange_id)
        left = await self._reader.compute(run_of_batch, changes)
        entries: list[DiffEntry] = []
        while len(left):
            place = metarange.range_of(left.first_path)
            rows, here, left = EMPTY_RUN, left, EMPTY_RUN
            if place < len(metarange.ranges):
                info = metarange.ranges[place]
                here, left = upto(here, info.max_path)
                rows = (await self._reader.range(namespace, info.range_id)).run
            entries += diff_entries(await self._reader.compute(diff_changes, rows, here))
        return entries


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """What went wrong first; callers know one error at a time."""
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            return _first(error)
        if isinstance(error, TarnError):
            return error
    return group.exceptions[0]
