"""Committed metadata: builds listings from staged changes, and reads and compares them.

Everything here is immutable and named by its content, so a read needs no verification against a branch
record (docs/design/protocol.md, rule 2). `tarn.core` decides, in pure functions; this module reads and writes.
"""

from __future__ import annotations

import asyncio
import enum
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from tarn.aio.first_error import collapse_error_groups
from tarn.block.applying import BuildResult, ChangeApplier, StagedTally, overlaid
from tarn.block.assembling import ListingWriter
from tarn.block.comparing import compared
from tarn.block.differences import Differences
from tarn.block.headrows import head_rows, with_head_entries
from tarn.block.merging import (
    ConflictPage,
    MergeListings,
    MergePreview,
    MergeResult,
    MergeSides,
    Merging,
    base_listing,
)
from tarn.block.port import BlockStore
from tarn.block.rangecache import RangeCache
from tarn.block.rangereader import RangeReader
from tarn.block.replacements import ErasedRows, with_replacements
from tarn.block.uncovered import Ahead, Covered, Places, held_places, look_ahead, places_of, rows_at
from tarn.core.entry import identity_of
from tarn.core.errors import TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.choice import REFUSE, Choice
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange, RangeInfo
from tarn.core.listing.run import Run
from tarn.core.listing.spans import PathSpan, prefix_end

__all__ = [
    "NOT_CACHED",
    "BuildResult",
    "Committed",
    "NotCached",
    "open_committed",
]


_THREADS_PER_CORE = 2
_SAME_ROWS = 1000
"""Rows of the first window in which a finer listing is compared with the commit."""


class NotCached(enum.Enum):
    """The type of `NOT_CACHED`."""

    NOT_CACHED = "not cached"


NOT_CACHED: Final = NotCached.NOT_CACHED
"""Returned by `lookup_cached` if an answer would need I/O."""


class Committed:
    """Listings of one block store. Tasks of one event loop may share an instance.

    Args:
        store: receives ranges and metaranges.
        cache: the ranges on this machine's disk.
        executor: runs long computations, best with one thread per core; None: the loop's default executor.
        rule: where listings are cut into ranges.
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
        self.differences = Differences(self._reader, self._rule)
        """Compares listings with each other, and with staged rows."""

    async def build(
        self,
        namespace: str,
        base: MetarangeId | None,
        layers: Sequence[AsyncIterator[pa.RecordBatch]],
        *,
        head: MetarangeId | None = None,
        restored: PathSpan | None = None,
        counts_changes: bool = True,
        finely: bool = False,
        erased: ErasedRows | None = None,
    ) -> BuildResult:
        """Applies staged changes to a listing. The result is durable on return.

        Args:
            namespace: the repository's namespace.
            base: the listing to start from, None for the empty one.
            layers: newest first. Each yields batches of `path` (string or binary) and `value`, sorted
                by path across all batches, with each path once; tombstones delete. All layers are closed
                at the end.
            head: the listing of the branch's commit, if `base` is a compacted one. The result counts the changes
                of this listing, and has its entries wherever identities are equal.
            restored: these paths get the content of `head` again; no layer has rows of them. Then the result counts
                the changes of `base`.
            counts_changes: False: the result counts the changes of `base` also if there is a `head`; so ranges that
                the layers do not touch are not opened.
            finely: cuts the listing finer where it is written, so that the next build over it rewrites less; for
                compacted listings. If the result has the entries of the commit (`head`, or else `base`), it is that
                listing.
            erased: the repository's erased addresses: the same object as an erased entry of the commit replaces it.
                None: none.

        Raises:
            TarnError: CORRUPT if a range is damaged or a layer breaks these rules; any error of the store.
        """
        metarange = EMPTY_METARANGE
        if base is not None:
            metarange = await self._reader.metarange(namespace, base)
        if head is not None and head != metarange.metarange_id:
            commit = await self._reader.metarange(namespace, head)
            result = await self._build_over(
                namespace, metarange, layers, commit, restored, erased, finely=finely
            )
            if restored is None and counts_changes:
                result = await self._counted(namespace, head, result)
        else:
            commit = metarange
            applier = ChangeApplier(self._reader, namespace, metarange, self._rule, finely=finely)
            tally = StagedTally()
            with collapse_error_groups(prefer=TarnError):
                async with self._changes(namespace, layers, tally, commit, erased) as changes:
                    result = await applier.run(changes, tally)
        if finely and await self._is_same(namespace, commit, result):
            changed = commit.metarange_id != metarange.metarange_id
            return replace(result, metarange_id=commit.metarange_id, changed=changed)
        return result

    async def build_part(
        self,
        namespace: str,
        base: MetarangeId,
        layers: Sequence[AsyncIterator[pa.RecordBatch]],
        span: PathSpan,
        *,
        head: MetarangeId,
        finely: bool = False,
        erased: ErasedRows | None = None,
    ) -> BuildResult:
        """Builds the paths of a span as a listing of its own, which is durable on return; see `joined`.

        So many processes build one compacted listing. The result counts the rows of `base` that a span cuts off from
        their range as if they were added.

        Args:
            namespace: the repository's namespace.
            base: the listing to start from.
            layers: as in `build`; their paths are in the span.
            span: the paths. If a row of the result is the last one of its span, and the rule ends a range after its
                path, then the joined ranges are those of one build.
            head: the listing of the branch's commit; may be `base`.
            finely: as in `build`; best for the first part only.
            erased: as in `build`.

        Raises:
            TarnError: as `build`.
        """
        whole = await self._reader.metarange(namespace, base)
        commit = await self._reader.metarange(namespace, head)
        inside = Metarange(tuple(info for info in whole.ranges if _is_inside(info, span)))
        cut = [info for info in whole.ranges if _meets(info, span) and not _is_inside(info, span)]
        layers = [*layers, self._rows_of(namespace, cut, span)]
        return await self._build_over(
            namespace, inside, layers, commit, None, erased, finely=finely
        )

    async def _rows_of(
        self, namespace: str, ranges: Sequence[RangeInfo], span: PathSpan
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yields the rows of some ranges that are in a span, as a layer of a build."""
        for info in ranges:
            run = (await self._reader.range(namespace, info.range_id)).run
            end = len(run) if span.end is None else run.find(span.end)
            yield run.slice(run.find(span.start), end).batch()

    async def joined(
        self, namespace: str, parts: Sequence[MetarangeId], *, head: MetarangeId
    ) -> MetarangeId:
        """Makes one compacted listing of listings whose paths follow each other. It is durable on return.

        Args:
            namespace: the repository's namespace.
            parts: their ids, by their paths. Together they have all rows.
            head: the listing of the branch's commit; returned if the result has the same entries.

        Raises:
            TarnError: as `lookup`.
        """
        ranges: list[RangeInfo] = []
        for part in parts:
            ranges += (await self._reader.metarange(namespace, part)).ranges
        commit = await self._reader.metarange(namespace, head)
        writer = ListingWriter(self._reader, namespace, [commit], self._rule)
        with collapse_error_groups(prefer=TarnError):
            async with asyncio.TaskGroup() as group:
                await writer.keep(group, ranges)
        made = await writer.publish()
        return head if await self._is_same(namespace, commit, made) else made.metarange_id

    async def _build_over(
        self,
        namespace: str,
        base: Metarange,
        layers: Sequence[AsyncIterator[pa.RecordBatch]],
        head: Metarange,
        restored: PathSpan | None,
        erased: ErasedRows | None,
        *,
        finely: bool,
    ) -> BuildResult:
        """`build` over a compacted listing.

        Of equal entries, the commit's one counts, or else the newest one: an entry beneath that is not committed may be
        erased (docs/design/erase.md).
        """
        if restored is not None:
            layers = [head_rows(self._reader, namespace, base, head, restored), *layers]
        applier = ChangeApplier(
            self._reader, namespace, base, self._rule, [head], finely=finely, exact=True
        )
        # A reset also applies rows of the head, which are no staged ones: it counts none.
        tally = StagedTally() if restored is None else None
        with collapse_error_groups(prefer=TarnError):
            async with (
                self._changes(namespace, layers, tally, head, erased) as changes,
                aclosing(
                    with_head_entries(changes, self._reader, namespace, head)
                ) as compared_changes,
            ):
                return await applier.run(compared_changes, tally)

    @asynccontextmanager
    async def _changes(
        self,
        namespace: str,
        layers: Sequence[AsyncIterator[pa.RecordBatch]],
        tally: StagedTally | None,
        commit: Metarange,
        erased: ErasedRows | None,
    ) -> AsyncIterator[AsyncGenerator[Run, None]]:
        """Opens the stream of all layers' changes; those that replace an erased entry of the commit say so."""
        async with aclosing(overlaid(layers, self._reader, tally)) as changes:
            if erased is None:
                yield changes
                return
            replacements = with_replacements(changes, self._reader, namespace, commit, erased)
            async with aclosing(replacements) as marked:
                yield marked

    async def _is_same(
        self, namespace: str, commit: Metarange, result: BuildResult | Metarange
    ) -> bool:
        """Whether a listing that was cut finer has the entries of a commit.

        Ends at the first difference. Equal identities are enough: a compaction takes entries from the commit.
        """
        if (result.count, result.object_bytes) != (commit.count, commit.object_bytes):
            return False
        built = await self._reader.metarange(namespace, result.metarange_id)
        windows = compared(
            self._reader, namespace, commit, built, start="", end=None, rows_first=_SAME_ROWS
        )
        async with aclosing(windows):
            async for window in windows:
                if window.changes.num_rows:
                    return False
        return True

    async def _counted(
        self, namespace: str, head_id: MetarangeId, result: BuildResult
    ) -> BuildResult:
        """Returns a result that counts the changes of the head."""
        sides = MergeSides(base=head_id, source=result.metarange_id, dest=head_id)
        counts = (await self.preview_merge(namespace, sides, limit=1)).changes
        return replace(
            result,
            changed=result.metarange_id != head_id,
            added=counts.added,
            updated=counts.updated,
            removed=counts.removed,
        )

    async def merge(
        self, namespace: str, sides: MergeSides, choice: Choice = REFUSE, *, limit: int = 1000
    ) -> MergeResult:
        """Merges two listings (docs/design/versioning.md). The result is durable on return, or refused.

        Only ranges of spans that source and destination both changed are opened.

        Args:
            namespace: the repository's namespace.
            sides: the listings to merge.
            choice: decides the paths that both sides changed.
            limit: most conflicts that are returned; `merge_conflicts` returns more.

        Raises:
            TarnError: as `lookup`; any error of the store.
        """
        merging = await self._merging(namespace, sides, choice, limit)
        with collapse_error_groups(prefer=TarnError):
            return await merging.build()

    async def preview_merge(
        self, namespace: str, sides: MergeSides, choice: Choice = REFUSE, *, limit: int = 1000
    ) -> MergePreview:
        """Returns the changes that `merge` would make in the destination, and writes nothing.

        Opens the ranges that `merge` opens, and those where the result is the source's, to count their changes.

        Raises:
            TarnError: as `lookup`.
        """
        merging = await self._merging(namespace, sides, choice, limit)
        with collapse_error_groups(prefer=TarnError):
            return await merging.preview()

    async def merge_conflicts(
        self,
        namespace: str,
        sides: MergeSides,
        choice: Choice = REFUSE,
        *,
        after: str = "",
        limit: int = 1000,
    ) -> ConflictPage:
        """Returns up to `limit` conflicts of a merge with paths greater than `after`.

        A page ends early, possibly without a conflict, at 4 MiB or after 96 opened ranges; it always makes
        progress beyond `after`.

        Raises:
            TarnError: as `lookup`.
        """
        return await (await self._merging(namespace, sides, choice, limit)).conflicts(after)

    async def _merging(
        self, namespace: str, sides: MergeSides, choice: Choice, limit: int
    ) -> Merging:
        listings = MergeListings(
            await base_listing(self._reader, namespace, sides.base),
            await self._reader.listing(namespace, sides.source),
            await self._reader.listing(namespace, sides.dest),
        )
        return Merging(self._reader, namespace, listings, self._rule, choice, limit)

    async def metarange(self, namespace: str, metarange_id: MetarangeId) -> Metarange:
        """Returns the ranges and totals of a listing, for callers that walk all of it.

        Raises:
            TarnError: as `lookup`.
        """
        return await self._reader.metarange(namespace, metarange_id)

    @property
    def cache(self) -> RangeCache:
        """The ranges on this machine's disk."""
        return self._reader.cache

    def lookup_cached(
        self, namespace: str, metarange_id: MetarangeId, path: str
    ) -> bytes | NotCached | None:
        """Like `lookup`, but returns `NOT_CACHED` if that would need more than memory. Never waits."""
        metarange = self._reader.held_metarange(namespace, metarange_id)
        if metarange is None:
            return NOT_CACHED
        place = metarange.range_of(path)
        if place == len(metarange.ranges) or path < metarange.ranges[place].min_path:
            return None
        found = self._reader.cache.opened(metarange.ranges[place].range_id)
        return NOT_CACHED if found is None else found.get(path)

    async def lookup(self, namespace: str, metarange_id: MetarangeId, path: str) -> bytes | None:
        """Returns the packed entry of a path; None if the listing does not contain it.

        Raises:
            TarnError: CORRUPT if stored metadata is damaged; `BlockNotFoundError` if the store lacks it.
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

    async def same_at(
        self, namespace: str, left: MetarangeId, right: MetarangeId, paths: Sequence[str]
    ) -> tuple[list[bool], int]:
        """Returns for each path whether both listings have the same version of the object there, or none.

        Ranges that both listings share are not opened. Also returns the number of ranges that were needed.

        Raises:
            TarnError: as `lookup`.
        """
        sides = [await self._reader.metarange(namespace, side) for side in (left, right)]
        same, needed = [], set()
        for path in paths:
            infos = [side.range_at(path) for side in sides]
            if infos[0] == infos[1]:
                same.append(True)
                continue
            found = []
            for info in infos:
                rows = info and await self._reader.range(namespace, info.range_id)
                packed = rows and rows.get(path)
                found.append(packed and identity_of(packed))
                needed.add(info)
            same.append(found[0] == found[1])
        return same, len(needed)

    async def page(
        self,
        namespace: str,
        metarange_id: MetarangeId,
        start: str,
        limit: int,
        prefix: str = "",
    ) -> tuple[list[str], list[bytes]]:
        """Returns up to `limit` paths and their packed entries, from `start` (inclusive), in byte order.

        A page shorter than `limit` is the last. To skip paths, pass a later `start`: that costs two bisections.

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

    async def look_ahead(
        self, namespace: str, metarange: Metarange, span: PathSpan, limit: int, covered: Covered
    ) -> Ahead:
        """Finds the first rows of a span that staged rows do not override; see `tarn.block.uncovered`."""
        return await look_ahead(
            self._reader, namespace, metarange, span.start, span.end, limit, covered
        )

    async def rows_at(self, namespace: str, places: Places) -> tuple[list[str], list[bytes]]:
        """Returns the paths and packed entries of rows that `look_ahead` found."""
        return await rows_at(self._reader, namespace, places)

    async def places_of(self, namespace: str, metarange: Metarange, paths: Sequence[str]) -> Places:
        """Returns the places of adjacent rows of a listing, whose paths are given in order."""
        return await places_of(self._reader, namespace, metarange, paths)

    def held_places(
        self, namespace: str, metarange_id: MetarangeId, paths: Sequence[str]
    ) -> Places:
        """Returns the places of paths, given in order, as far as memory tells. Never waits."""
        metarange = self._reader.held_metarange(namespace, metarange_id)
        return [] if metarange is None else held_places(self._reader, metarange, paths)


@asynccontextmanager
async def open_committed(
    blocks: BlockStore,
    directory: Path,
    *,
    cache_bytes: int = 1 << 30,
    rule: BreakRule | None = None,
    threads: int = 0,
) -> AsyncIterator[Committed]:
    """Opens the committed listings of a block store, with their own range cache and threads.

    Args:
        blocks: the store.
        directory: of the cache; see `RangeCache`.
        cache_bytes: bound of the cache.
        rule: where listings are cut into ranges.
        threads: 0: two for each core.
    """
    threads = threads or _THREADS_PER_CORE * (os.cpu_count() or 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="committed") as executor:
        cache = RangeCache(directory, bytes_max=cache_bytes, executor=executor)
        try:
            yield Committed(blocks, cache, executor=executor, rule=rule)
        finally:
            cache.close()


def _meets(info: RangeInfo, span: PathSpan) -> bool:
    """Whether a span may have rows of a range."""
    return info.max_path >= span.start and (span.end is None or info.min_path < span.end)


def _is_inside(info: RangeInfo, span: PathSpan) -> bool:
    """Whether a span has all rows of a range."""
    return info.min_path >= span.start and (span.end is None or info.max_path < span.end)
