"""Merges two listings with a common ancestor; previews merges; pages through their conflicts.

`tarn.core.listing.segments` divides the three listings, and `tarn.core.listing.three_way` merges the rows of the
segments that all three changed. Only the ranges of these segments are opened, one of each listing at a time, so
memory is bounded by a few ranges, whatever the size of the merge. docs/design/versioning.md states the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tarn.aio.progress import report
from tarn.block.assembling import ListingWriter
from tarn.block.comparing import AlignedRows, aligned
from tarn.block.rangereader import RangeReader
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.changes import apply_changes
from tarn.core.listing.choice import Choice
from tarn.core.listing.diff import diff_changes, diff_runs, fitting
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import Run
from tarn.core.listing.segments import Segment, segments_of
from tarn.core.listing.spans import path_after
from tarn.core.listing.tally import ChangeStats, ChangeTally
from tarn.core.listing.three_way import RunMerge, merge_runs
from tarn.core.listing.virtual import UNDECIDED, VirtualBase, VirtualListing, fold_rows

__all__ = [
    "ConflictPage",
    "MergeBaseListing",
    "MergeListings",
    "MergePreview",
    "MergeResult",
    "MergeSides",
    "Merging",
    "base_listing",
]

_AHEAD_MAX = 2
"""Segments of which the first range of each listing is read ahead."""
_PAGE_BYTES_MAX = 4 << 20
"""Bytes of one page of conflicts: a quarter of the size limit of a message."""
_PAGE_RANGES_MAX = 96
"""Ranges opened for one page of conflicts: typically 640,000 rows of each listing."""


MergeBaseListing = MetarangeId | VirtualBase | None
"""The base of a merge; None is the empty listing."""


@dataclass(frozen=True, slots=True)
class MergeSides:
    """The listings of a merge; None is the empty listing.

    A revert and a cherry-pick are merges, too (docs/design/versioning.md).

    Attributes:
        base: the common ancestor, or the fold of several.
        source: the listing whose changes since `base` are merged.
        dest: the listing that takes them.
    """

    base: MergeBaseListing
    source: MetarangeId | None
    dest: MetarangeId | None


async def base_listing(
    reader: RangeReader, namespace: str, base: MergeBaseListing
) -> Metarange | VirtualListing:
    """Returns the listing of a merge base, or of the fold of several."""
    if not isinstance(base, VirtualBase):
        return await reader.listing(namespace, base)
    listings = [await reader.listing(namespace, each) for each in base.listings]
    return VirtualListing(tuple(listings), base.steps)


@dataclass(frozen=True, slots=True)
class MergeListings:
    """The metaranges of `MergeSides`."""

    base: Metarange | VirtualListing
    source: Metarange
    dest: Metarange

    @property
    def all(self) -> tuple[Metarange, ...]:
        """The merged listings, and those that the base is made of."""
        if isinstance(self.base, VirtualListing):
            return (self.dest, self.source, *self.base.listings)
        return (self.dest, self.source, self.base)


@dataclass(slots=True)
class ConflictPage:
    """Conflicts in byte order of their paths. Every list has one item for each path.

    Attributes:
        paths: the paths in conflict.
        bases: packed entries of the base; empty if it does not have the path, or is undecided.
        sources: packed entries of the source, likewise.
        dests: packed entries of the destination, likewise.
        undecided: whether the path is undecided in a virtual base (`tarn.core.listing.virtual`).
        next_after: where the next page begins; None at the end. A page may be short before the end.
    """

    paths: list[str] = field(default_factory=list)
    bases: list[bytes] = field(default_factory=list)
    sources: list[bytes] = field(default_factory=list)
    dests: list[bytes] = field(default_factory=list)
    undecided: list[bool] = field(default_factory=list)
    next_after: str | None = None


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge.

    Attributes:
        metarange_id: the new listing, durable; None if conflicts refused the merge.
        count: number of entries in the new listing; 0 if there is none.
        object_bytes: sum of the sizes of its objects.
        ranges_written: number of ranges that none of the merged listings has.
        ranges_reused: number of ranges shared with one of them.
        conflict_count: number of conflicts that the choice refuses.
        conflicts: the first of them.
        source_count: number of conflicts that the choice gave to the source.
        dest_count: number of conflicts that the choice gave to the destination.
        made: as `BuildResult.made`; empty if there is no listing.
    """

    metarange_id: MetarangeId | None
    count: int
    object_bytes: int
    ranges_written: int
    ranges_reused: int
    conflict_count: int
    conflicts: ConflictPage
    source_count: int
    dest_count: int
    made: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class MergePreview:
    """The changes that a merge would make in the destination, and its conflicts.

    Attributes:
        changes: all changes, without the paths in conflict.
        prefixes: the changes below each top-level prefix, which ends with its `/`; the empty prefix is for paths
            without a `/`.
        other_prefixes: the changes below all further prefixes, after the first `tally.PREFIXES_MAX`.
        conflict_count, conflicts, source_count, dest_count: as in `MergeResult`.
    """

    changes: ChangeStats
    prefixes: dict[str, ChangeStats]
    other_prefixes: ChangeStats
    conflict_count: int
    conflicts: ConflictPage
    source_count: int
    dest_count: int


class _ConflictRows:
    """Counts conflicts and collects the first ones as a page."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes_left = _PAGE_BYTES_MAX
        self.page = ConflictPage()
        self.count = 0
        self.source_count = 0
        self.dest_count = 0

    def add(self, merged: RunMerge) -> None:
        batch, page = merged.conflicts, self.page
        self.count += batch.num_rows
        self.source_count += merged.source_count
        self.dest_count += merged.dest_count
        if not batch.num_rows or page.next_after is not None:
            return
        taken = fitting(batch, self._limit - len(page.paths), self._bytes_left)
        self._bytes_left -= taken.nbytes
        page.paths += taken.column("path").to_pylist()
        bases, sources, dests = (
            pc.fill_null(taken.column(name), b"").to_pylist() for name in ("base", "source", "dest")
        )
        page.undecided += [base == UNDECIDED for base in bases]
        page.bases += [b"" if base == UNDECIDED else base for base in bases]
        page.sources += sources
        page.dests += dests
        if taken.num_rows < batch.num_rows:
            page.next_after = page.paths[-1]


class Merging:
    """One merge. An instance is used once.

    Args:
        reader: where ranges are read and written.
        namespace: the namespace of all listings.
        listings: the listings to merge.
        rule: the rule that the listings were cut by.
        choice: decides conflicts.
        limit: most conflicts of a page, at least one.
    """

    def __init__(
        self,
        reader: RangeReader,
        namespace: str,
        listings: MergeListings,
        rule: BreakRule,
        choice: Choice,
        limit: int,
    ) -> None:
        assert limit > 0, "a page has a conflict"
        self._reader = reader
        self._namespace = namespace
        self._listings = listings
        self._rule = rule
        self._choice = choice
        self._found = _ConflictRows(limit)

    async def build(self) -> MergeResult:
        """Builds and publishes the merged listing, unless conflicts refuse it."""
        sides = self._listings
        writer = ListingWriter(self._reader, self._namespace, sides.all, self._rule)
        segments = await self._segments()
        rows = [each for each in segments if each.kept is None]
        ahead = _ReadAhead(self._reader, self._namespace, rows)
        async with asyncio.TaskGroup() as group:
            for done, segment in enumerate(segments):
                report(done, len(segments))
                kept = segment.kept
                if kept is None:
                    ahead.go_on(group)
                    await self._build_rows(group, writer, segment)
                elif not self._found.count:
                    await writer.keep(group, kept)
            if not self._found.count:
                await writer.end(group)
        found = self._found
        if found.count:
            return self._result(None, writer.written)
        made = await writer.publish()
        return replace(self._result(made, writer.written), made=tuple(writer.made))

    def _result(self, made: Metarange | None, written: int) -> MergeResult:
        return MergeResult(
            metarange_id=made.metarange_id if made is not None else None,
            count=made.count if made is not None else 0,
            object_bytes=made.object_bytes if made is not None else 0,
            ranges_written=written,
            ranges_reused=len(made.ranges) - written if made is not None else 0,
            conflict_count=self._found.count,
            conflicts=self._found.page,
            source_count=self._found.source_count,
            dest_count=self._found.dest_count,
        )

    async def _build_rows(
        self, group: asyncio.TaskGroup, writer: ListingWriter, segment: Segment
    ) -> None:
        def work(runs: Sequence[Run]) -> list[Run]:
            dest = runs[-1]
            merged = self._merged(segment, runs)
            self._found.add(merged)
            # A refused merge writes no more ranges and only goes on to count its conflicts.
            if self._found.count:
                return []
            rows = apply_changes(dest, merged.changes, exact=True)
            return [made for run in rows.runs for made in writer.cutter.add(run)]

        async with aclosing(self._rows(segment)) as steps:
            async for step in steps:
                await writer.emit(group, await self._reader.compute(work, step.runs))

    async def preview(self) -> MergePreview:
        """Returns the changes and conflicts of the merge, and writes nothing. Opens all ranges that differ."""
        tally = ChangeTally()

        def work(segment: Segment, runs: Sequence[Run]) -> None:
            tally.add(self._changes(segment, runs))

        segments = [each for each in await self._segments() if each.is_changed]
        ahead = _ReadAhead(self._reader, self._namespace, segments)
        async with asyncio.TaskGroup() as group:
            for done, segment in enumerate(segments):
                report(done, len(segments))
                ahead.go_on(group)
                async with aclosing(self._rows(segment)) as steps:
                    async for step in steps:
                        await self._reader.compute(work, segment, step.runs)
        return MergePreview(
            changes=tally.total,
            prefixes=tally.prefixes,
            other_prefixes=tally.others,
            conflict_count=self._found.count,
            conflicts=self._found.page,
            source_count=self._found.source_count,
            dest_count=self._found.dest_count,
        )

    def _changes(self, segment: Segment, runs: Sequence[Run]) -> pa.RecordBatch:
        source, dest = runs[-2:]
        if segment.kept is not None:
            return diff_runs(dest, source)
        merged = self._merged(segment, runs)
        self._found.add(merged)
        return diff_changes(dest, merged.changes)

    def _merged(self, segment: Segment, runs: Sequence[Run]) -> RunMerge:
        """Merges one step of a segment; the base comes first, as one run or as the parts of a fold."""
        *bases, source, dest = runs
        return merge_runs(fold_rows(bases, segment.steps), source, dest, self._choice)

    async def conflicts(self, after: str) -> ConflictPage:
        """Returns a page of the conflicts whose paths are greater than `after`."""
        page = self._found.page
        segments = [each for each in await self._segments() if each.kept is None]
        segments = [each for each in segments if each.last_path > after]
        opened = 0
        for segment in segments:
            here = 0
            async with aclosing(self._rows(segment, after)) as steps:
                async for step in steps:
                    merged = await self._reader.compute(self._merged, segment, step.runs)
                    self._found.add(merged)
                    here = step.ranges
                    if page.next_after is None and opened + here >= _PAGE_RANGES_MAX:
                        page.next_after = step.upto
                    if page.next_after is not None:
                        return page
            opened += here
        return page

    async def _segments(self) -> list[Segment]:
        sides = self._listings
        return await self._reader.compute(
            lambda: list(segments_of(sides.base, sides.source, sides.dest, self._rule))
        )

    def _rows(self, segment: Segment, after: str = "") -> AsyncGenerator[AlignedRows, None]:
        start = path_after(after) if after else ""
        return aligned(self._reader, self._namespace, _opened(segment), start)


def _opened(segment: Segment) -> tuple[Sequence[RangeInfo], ...]:
    """The ranges of base, source and destination whose rows are needed: without the base if the destination has it."""
    bases = segment.bases if segment.kept is None else ()
    return *bases, segment.source, segment.dest


class _ReadAhead:
    """Reads the first ranges of the segments to come, so that a merge does not wait for a store once per range."""

    def __init__(self, reader: RangeReader, namespace: str, segments: Sequence[Segment]) -> None:
        self._reader = reader
        self._namespace = namespace
        self._segments = segments
        self._at = 0
        # Invariant: the segments before `_requested` need no reading ahead.
        self._requested = 0

    def go_on(self, group: asyncio.TaskGroup) -> None:
        """Call it once for each segment, before its rows are read."""
        self._at += 1
        self._requested = max(self._requested, self._at)
        while self._requested < min(len(self._segments), self._at + _AHEAD_MAX):
            for ranges in _opened(self._segments[self._requested]):
                for info in ranges[:1]:
                    if self._reader.cache.opened(info.range_id) is None:
                        group.create_task(self._read(info.range_id))
            self._requested += 1

    async def _read(self, range_id: RangeId) -> None:
        await self._reader.range(self._namespace, range_id)
