"""Leaps: how a listing passes rows that tombstones hide without reading either of them.

The plain merge (`tarn.core.listing.pages`) reads every tombstone and every row beneath. A leap reads, for a part
of the listing:

1. of the committed listing the rows that no token is known to override (`coverage`);
2. of each token the rows that are no tombstones and of whose path no token above holds a row: the store sorts them
   out (`Kv.scan_without`);
3. for each of the committed rows, whether a token holds a row of its path: by point reads.

So it reads a tombstone only where it does not know otherwise that a row is hidden. The answer is that of the plain
merge: the newest row of a path decides, and a path without a live row is not listed. Each row is read at some moment of
the call, as in the plain merge; a row that is written meanwhile may or may not be seen.

A leap is only made where it is cheaper. The rounds of the plain merge show which rows are hidden.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from tarn.block.committed import Committed
from tarn.block.uncovered import Ahead, Places
from tarn.core.entry import TOMBSTONE, is_tombstone
from tarn.core.ids import MetarangeId
from tarn.core.listing.metarange import Metarange
from tarn.core.listing.newest import PathRows
from tarn.core.listing.pages import Leap, MayLeap, PageRequest
from tarn.core.listing.spans import PathSpan, prefix_end
from tarn.kv.keys import PATHS_END, path_key, path_of, paths_of
from tarn.kv.port import Kv, Partition, RowFilter
from tarn_graveler.branch.coverage import Coverage

__all__ = ["LEAP_ROWS_MIN", "Leaps"]

LEAP_ROWS_MIN = 512
"""Hidden rows for which a leap is worth its fixed cost: some statements, and a change of threads if they are many."""

_GAP_ROWS_MIN = 128
"""The same if they are known, and committed rows follow them: the leap needs no reads but one of the token."""

_TOMBSTONES = TOMBSTONE[:2]
"""The beginning of every tombstone: version and flags. Entries have another flags byte."""

_CANDIDATES_MAX = 1_001
_BESIDE_MAX = 64
"""Committed rows of a leap over tombstones that hide no committed rows."""
_PAUSE_OFFERS = 8
"""Rounds of the plain merge after a leap that found hidden rows only."""
_COST_ROWS = 10_000
"""A leap examines up to 200,000 rows in the time in which the merge reads about a tenth of them."""


class Leaps:
    """Answers the offers of one page's merge.

    Args:
        kv: the store of the tokens.
        committed: the store of the listing beneath.
        coverage: the overridden rows that the replica knows; learns from the offers.
        namespace: the repository's namespace.
        tokens: the partitions of the record's tokens, newest first.
        metarange_id: the listing beneath them.
        request: the page.
        rows_min: hidden rows for which a leap is made.
    """

    def __init__(
        self,
        kv: Kv,
        committed: Committed,
        coverage: Coverage,
        namespace: str,
        tokens: Sequence[Partition],
        metarange_id: MetarangeId,
        request: PageRequest,
        rows_min: int = LEAP_ROWS_MIN,
    ) -> None:
        self._kv = kv
        self._committed = committed
        self._coverage = coverage
        self._namespace = namespace
        self._tokens = tokens
        self._metarange_id = metarange_id
        self._end = prefix_end(request.prefix)
        self._end_key = PATHS_END if self._end is None else path_key(self._end)
        self._limit = min(request.limit + 1, _CANDIDATES_MAX)
        self._rows_min = rows_min
        self._pause = 0

    async def answer(self, offer: MayLeap) -> Leap | None:
        """Makes a leap from where the offer says, or returns None if reading on is as good.

        Raises:
            TarnError: as `Kv.scan` and `Committed.page`.
        """
        metarange = await self._committed.metarange(self._namespace, self._metarange_id)
        if offer.hidden:
            await self._learn(metarange, offer)
        if offer.is_over:
            return None
        if offer.hidden < self._rows_min and not self._knows_of(metarange, offer.start):
            return None
        if self._pause:
            self._pause -= 1
            return None
        ahead = await self._look_ahead(metarange, offer.start)
        if ahead.gap >= min(_GAP_ROWS_MIN, self._rows_min) and 2 * ahead.gap >= ahead.skipped:
            return await self._over_gap(ahead, offer.start)
        if ahead.skipped >= max(self._rows_min, 2 * ahead.found):
            return await self._leap(offer.start, ahead.places, ahead.upto)
        base_rows = len(offer.runs[-1]) if offer.runs else 0
        if offer.hidden >= self._rows_min and 4 * base_rows <= offer.hidden:
            return await self._beside(ahead, offer.start)
        return None

    def _knows_of(self, metarange: Metarange, start: str) -> bool:
        """Whether rows of the range at a path are known to be covered. Costs some microseconds."""
        place = metarange.range_of(start)
        if place == len(metarange.ranges):
            return False
        return self._coverage.of(self._tokens, metarange.ranges[place].range_id) is not None

    async def _look_ahead(self, metarange: Metarange, start: str) -> Ahead:
        return await self._committed.look_ahead(
            self._namespace,
            metarange,
            PathSpan(start, self._end),
            self._limit,
            lambda range_id: self._coverage.of(self._tokens, range_id),
        )

    async def _over_gap(self, ahead: Ahead, start: str) -> Leap:
        """Leaps over covered rows up to the first uncovered one."""
        is_end = not ahead.found and ahead.upto is None
        return await self._leap(start, [], None if is_end else ahead.gap_path)

    async def _beside(self, ahead: Ahead, start: str) -> Leap:
        """Leaps over tombstones that hide no committed rows, together with the few committed rows among them."""
        places, left = [], _BESIDE_MAX
        for info, numbers in ahead.places:
            places.append((info, numbers[:left]))
            left -= len(places[-1][1])
            if not left:
                last = [(info, places[-1][1][-1:])]
                ((upto,), _) = await self._committed.rows_at(self._namespace, last)
                return await self._leap(start, places, upto)
        return await self._leap(start, places, ahead.upto)

    async def _leap(self, start: str, places: Places, upto: str | None) -> Leap:
        """Reads the part of the listing from `start` to `upto`, of the committed rows only those at `places`.

        The oldest token is read first. Its rows that one above overwrites are left out, so that one must be read later.
        """
        base = await self._committed.rows_at(self._namespace, places) if places else ([], [])
        found: list[PathRows] = [base]
        probes = 0
        for depth, token in reversed(list(enumerate(self._tokens))):
            end = self._end_key if upto is None else path_key(upto) + b"\0"
            unwanted = RowFilter(_TOMBSTONES, hidden_by=self._tokens[:depth])
            page = await self._kv.scan_without(token, path_key(start), end, self._limit, unwanted)
            probes += page.probes
            if page.upto is not None:
                upto = path_of(page.upto)
            paths = paths_of([key for key, _ in page.rows])
            found.append((paths, [value for _, value in page.rows]))
        newest = found.pop()
        if any(paths for paths, _ in found):
            newest, upto, probed = await self._merged([*found, newest], places, upto)
            probes += probed
        # Rows above hide most of the rows that were found, and the plain merge is cheaper than to ask for each.
        if 2 * len(newest[0]) < probes:
            self._pause = _PAUSE_OFFERS
        return Leap(newest, upto, _COST_ROWS)

    async def _merged(
        self, found: Sequence[PathRows], places: Places, upto: str | None
    ) -> tuple[PathRows, str | None, int]:
        """Merges the rows of all layers, the committed ones first, and asks each token for newer rows of those.

        Returns the rows, the end of the part, and how many rows it asked for.
        """
        layers = [dict(zip(*rows, strict=True)) for rows in found]
        candidates = sorted(set().union(*layers))
        if len(candidates) > self._limit:
            # Each token gave a page of rows, and most of them are behind the page.
            last = candidates[self._limit - 1]
            upto = last if upto is None else min(upto, last)
        visible: dict[str, bytes] = {}
        for rows in layers:
            visible.update(rows)
        if upto is not None:
            visible = {path: row for path, row in visible.items() if path <= upto}
        base, newer = layers[0], set().union(*layers[1:])
        asked = [path for path in base if path in visible and path not in newer]
        for token in reversed(self._tokens if asked else ()):
            above = await self._kv.get_many(token, [path_key(path) for path in asked])
            over = {p: row.value for p, row in zip(asked, above, strict=True) if row}
            visible.update(over)
            self._note(token, places, found[0][0], over)
        paths = sorted(path for path, row in visible.items() if not is_tombstone(row))
        return (paths, [visible[path] for path in paths]), upto, len(asked)

    async def _learn(self, metarange: Metarange, offer: MayLeap) -> None:
        """Notes which of the committed rows that the merge just read the tokens override."""
        base = offer.runs[-1]
        places = await self._committed.places_of(self._namespace, metarange, base)
        for token, paths in zip(self._tokens, offer.runs, strict=False):
            if paths:
                self._note(token, places, base, base if paths == base else set(paths))

    def _note(
        self, token: Partition, places: Places, paths: Sequence[str], held: Collection[str]
    ) -> None:
        """Notes that a token covers those of the rows at `places`, with these `paths`, whose paths it holds."""
        done = 0
        for info, numbers in places:
            here = paths[done : done + len(numbers)]
            done += len(numbers)
            rows = numbers
            if held is not paths:
                rows = numbers[np.fromiter((path in held for path in here), np.bool_, len(here))]
            self._coverage.learn(token, info.range_id, info.count, rows)
