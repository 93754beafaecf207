"""Differences: of two listings, and of a listing and staged rows; page by page, without opening shared ranges."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pyarrow as pa

from tarn.block.comparing import Window, compared, compared_segments
from tarn.block.merging import base_listing
from tarn.block.rangereader import RangeReader
from tarn.block.replacements import ErasedRows, replacing_rows
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.changes import upto
from tarn.core.listing.diff import DiffPage, DiffRows, diff_changes
from tarn.core.listing.folders import FolderPage, FolderTally
from tarn.core.listing.run import EMPTY_RUN, run_of_batch
from tarn.core.listing.segments import segments_of
from tarn.core.listing.spans import PathSpan, path_after, prefix_end
from tarn.core.listing.virtual import VirtualLeft

__all__ = ["DiffLeft", "Differences"]

_PAGE_BYTES_MAX = 4 << 20
"""Bytes of one page of differences: a quarter of the size limit of a message."""

_PAGE_RANGES_MAX = 64
"""Ranges opened for one page of differences: typically 640,000 rows of each side, compared in about 0.3 s."""

_WINDOW_ROWS_MIN = 1024
"""Minimum rows of the first window of a comparison. Each window is a switch of threads; fewer rows cost as much."""


DiffLeft = MetarangeId | VirtualLeft | None
"""The left side of a difference of listings; None is the empty listing."""


class Differences:
    """Compares the listings of one block store.

    Args:
        reader: reads ranges and metaranges.
        rule: where listings are cut into ranges.
    """

    def __init__(self, reader: RangeReader, rule: BreakRule) -> None:
        self._reader = reader
        self._rule = rule

    async def page(
        self,
        namespace: str,
        left: DiffLeft,
        right: MetarangeId,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> DiffPage:
        """Returns up to `limit` paths greater than `after` that differ, in byte order.

        A left side of None is the empty listing; one of several common ancestors has the entries of another listing at
        its undecided paths. Ranges that both listings share are not opened. A page ends
        early, possibly without a change, at 4 MiB or after 64 opened ranges; it always makes progress beyond
        `after`.

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

    async def folders(
        self,
        namespace: str,
        left: DiffLeft,
        right: MetarangeId,
        *,
        prefix: str = "",
        delimiter: str = "",
        after: str = "",
        limit: int = 1000,
        changes_max: int | None = None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> FolderPage:
        """Counts the paths greater than `after` that differ, folder by folder (`tarn.core.listing.folders`).

        Up to `limit` lines. Costs and ends as `page`, also in the middle of a folder; and after the window, of one
        range of each side at most, in which the changes became `changes_max` (None: no bound) or `is_late` True.

        Raises:
            TarnError: as `lookup`.
        """
        tally = FolderTally(prefix, delimiter, limit)
        rows_first = max(_WINDOW_ROWS_MIN, limit + 1)
        windows = self._compared(namespace, left, right, prefix, after, rows_first)
        async with aclosing(windows):
            async for window in windows:
                if await self._reader.compute(tally.add, window.changes):
                    return tally.page(tally.last)
                is_full = changes_max is not None and tally.total.count >= changes_max
                if is_full or window.ranges >= _PAGE_RANGES_MAX or is_late():
                    return tally.page(window.upto)
        return tally.page(None)

    async def differs(
        self, namespace: str, left: MetarangeId, right: MetarangeId, span: PathSpan
    ) -> bool:
        """Whether two listings differ in a path of a span. Ranges that both share are not opened.

        Raises:
            TarnError: as `lookup`.
        """
        if left == right:
            return False
        sides = [await self._reader.metarange(namespace, side) for side in (left, right)]
        windows = compared(
            self._reader,
            namespace,
            *sides,
            start=span.start,
            end=span.end,
            rows_first=_WINDOW_ROWS_MIN,
        )
        async with aclosing(windows):
            async for window in windows:
                if window.changes.num_rows:
                    return True
        return False

    async def _compared(
        self,
        namespace: str,
        left: DiffLeft,
        right: MetarangeId,
        prefix: str,
        after: str,
        rows_first: int,
    ) -> AsyncGenerator[Window, None]:
        """Compares two listings, starting after a path."""
        if left == right:
            return
        start = max(prefix, path_after(after)) if after else prefix
        span = PathSpan(start, prefix_end(prefix))
        newer = await self._reader.listing(namespace, right)
        if isinstance(left, VirtualLeft):
            base = await base_listing(self._reader, namespace, left.base)
            own = await self._reader.listing(namespace, left.undecided)
            segments = await self._reader.compute(
                lambda: list(segments_of(base, newer, own, self._rule))
            )
            windows = compared_segments(self._reader, namespace, segments, span)
        else:
            older = await self._reader.listing(namespace, left)
            windows = compared(
                self._reader,
                namespace,
                older,
                newer,
                start=span.start,
                end=span.end,
                rows_first=rows_first,
            )
        async with aclosing(windows):
            async for window in windows:
                yield window

    async def staged_page(
        self,
        namespace: str,
        metarange_id: MetarangeId,
        changes: pa.RecordBatch,
        erased: ErasedRows | None = None,
    ) -> DiffPage:
        """Returns the changes that a page of staged rows makes to a listing, without rows that change nothing.

        Args:
            namespace: the repository's namespace.
            metarange_id: the listing.
            changes: `path` and `value`, sorted, each path once; tombstones delete.
            erased: the repository's erased addresses: the same object as an erased entry is a change. None: none.

        Returns:
            Up to 4 MiB of changes. If there are more, the next page continues after the last path.

        Raises:
            TarnError: as `build`.
        """
        metarange = await self._reader.metarange(namespace, metarange_id)
        left = await self._reader.compute(run_of_batch, changes)
        if erased is not None and await erased.any():
            left = await replacing_rows(left, self._reader, namespace, metarange, erased)
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
