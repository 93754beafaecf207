"""Divides three listings into segments that can be merged one by one, and finds those that need no rows.

A segment is a span of paths at whose ends no range of the three listings is cut in two. Segments are as short as
possible, so almost all of them hold one range of each listing. In most segments two of the three listings have
the same ranges. Then the ids of the ranges decide the merge, by the first three lines of the rule in
`tarn.core.listing.three_way`, and no range is opened.

Joining ranges of different listings gives the ranges that a build from nothing would give, because every cut forgets
the past (`tarn.core.listing.breaks`). The one range that was not ended by the rule is the last of a listing: it
ended because there were no more rows. A row behind it would have joined it, so its segment has no end.

A base may be a fold of several listings (`tarn.core.listing.virtual`). Then no range of any of them is cut in two, and
a segment whose base the ids do not decide has the rest of the fold.

Cost: O(ranges), about 2 microseconds each.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.virtual import FoldStep, Ranges, VirtualListing, reduced

__all__ = ["Segment", "segments_of"]


@dataclass(frozen=True, slots=True)
class Segment:
    """The ranges of one span of paths, in order; at least one listing has one.

    Attributes:
        bases: one item is the base; several are the parts of a fold, whose result is the base.
        source: those of the listing whose changes are merged.
        dest: those of the listing that takes them.
        steps: the fold; empty for one base.
    """

    bases: tuple[Ranges, ...]
    source: Ranges
    dest: Ranges
    steps: tuple[FoldStep, ...] = ()

    @property
    def base(self) -> Ranges | None:
        """The ranges of the base; None if rows decide it."""
        return None if self.steps else self.bases[0]

    @property
    def kept(self) -> Ranges | None:
        """The ranges of the result; None if the rows must be merged."""
        if self.source in (self.base, self.dest):
            return self.dest
        return self.source if self.dest == self.base else None

    @property
    def is_changed(self) -> bool:
        """Whether the merge may change the destination here."""
        return self.source not in (self.base, self.dest)

    @property
    def first_path(self) -> str:
        """The smallest path of a row."""
        return min(ranges[0].min_path for ranges in self._all if ranges)

    @property
    def last_path(self) -> str:
        """The greatest path of a row."""
        return max(ranges[-1].max_path for ranges in self._all if ranges)

    @property
    def _all(self) -> tuple[Ranges, ...]:
        return (*self.bases, self.source, self.dest)


def segments_of(
    base: Metarange | VirtualListing, source: Metarange, dest: Metarange, rule: BreakRule
) -> Iterator[Segment]:
    """Yields the segments of some listings in order.

    Args:
        base: the common ancestor, or the fold of several.
        source: the listing whose changes are merged.
        dest: the listing that takes them.
        rule: the rule that all listings were cut by.
    """
    if not isinstance(base, VirtualListing):
        for found, theirs, ours in _spans((base, source, dest), rule):
            yield Segment((found,), theirs, ours)
        return
    for *parts, theirs, ours in _spans((*base.listings, source, dest), rule):
        fold = reduced(parts, base.steps)
        yield Segment(fold.parts, theirs, ours, fold.steps)


def _spans(listings: Sequence[Metarange], rule: BreakRule) -> Iterator[Sequence[Ranges]]:
    """Yields the ranges of all listings in the shortest spans at whose ends no range is cut in two."""
    is_open = [_ends_open(listing, rule) for listing in listings]
    spans = heapq.merge(
        *(
            [(info.min_path, side, info) for info in listing.ranges]
            for side, listing in enumerate(listings)
        )
    )
    found: list[list[RangeInfo]] = [[] for _ in listings]
    end: str | None = ""  # None: the segment has no end
    for min_path, side, info in spans:
        if end is not None and min_path > end:
            if any(found):
                yield [tuple(ranges) for ranges in found]
            found = [[] for _ in listings]
        found[side].append(info)
        if is_open[side] and info is listings[side].ranges[-1]:
            end = None
        elif end is not None:
            end = max(end, info.max_path)
    if any(found):
        yield [tuple(ranges) for ranges in found]


def _ends_open(listing: Metarange, rule: BreakRule) -> bool:
    """Whether the last range would take rows that follow it."""
    if not listing.ranges:
        return False
    last = listing.ranges[-1]
    return not rule.is_closed(last.max_path, last.count, last.size_bytes)
