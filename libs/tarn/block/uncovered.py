"""The committed rows that staged rows do not override, found without reading those that they do.

A row of a listing is *covered* if a staging token holds a row of its path, an entry or a tombstone. The caller
knows some of the covered rows, by their numbers in a range (`Covered`). Rows that it does not know count as
uncovered, so a caller that knows nothing gets all rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarn.block.rangereader import RangeReader
from tarn.core.ids import RangeId
from tarn.core.listing.changes import match_paths
from tarn.core.listing.metarange import Metarange, RangeInfo
from tarn.core.listing.run import Bools, Ints

__all__ = ["Ahead", "Covered", "Places", "look_ahead", "held_places", "places_of", "rows_at"]

Covered = Callable[[RangeId], Bools | None]
"""Returns for each row of a range whether it is covered; None: no row of it is known to be."""

Places = list[tuple[RangeInfo, Ints]]
"""Rows of a listing in order: the numbers of rows in ranges."""

_OPENED_MAX = 64
_RANGES_MAX = 4096
"""Ranges that one look passes, most of them unopened."""


@dataclass(slots=True)
class Ahead:
    """The rows of a listing from a path on.

    Attributes:
        places: the first uncovered rows.
        found: how many they are.
        gap: covered rows before the first uncovered one.
        gap_path: the last of them; None if there are none.
        skipped: covered rows before the last of the uncovered ones, or before `upto`.
        upto: the path up to and including which rows were looked at; None: to the end.
    """

    places: Places = field(default_factory=list)
    found: int = 0
    gap: int = 0
    gap_path: str | None = None
    skipped: int = 0
    upto: str | None = None


async def look_ahead(
    reader: RangeReader,
    namespace: str,
    metarange: Metarange,
    start: str,
    end: str | None,
    limit: int,
    covered: Covered,
) -> Ahead:
    """Finds up to `limit` uncovered rows with `start <= path < end`. Ends early after 64 opened ranges.

    Ranges whose rows are all covered are not opened. Costs some 30 µs for each range of 100,000 covered rows.

    Raises:
        TarnError: CORRUPT: a range is damaged; `BlockNotFoundError`: the store lacks it.
    """
    ahead = Ahead()
    if end is not None and start >= end:
        return ahead
    first_range, opened = metarange.range_of(start), 0
    for visited, info in enumerate(metarange.ranges[first_range:]):
        if end is not None and info.min_path >= end:
            break
        if visited >= _RANGES_MAX or opened >= _OPENED_MAX:
            ahead.upto = metarange.ranges[first_range + visited - 1].max_path
            break
        known = covered(info.range_id)
        is_whole = info.min_path >= start and (end is None or info.max_path < end)
        if known is not None and is_whole and known.all():
            ahead.skipped += info.count
            if not ahead.found:
                ahead.gap, ahead.gap_path = ahead.skipped, info.max_path
            continue
        opened += 1
        rows = await reader.range(namespace, info.range_id)
        first = rows.find(start) if info.min_path < start else 0
        stop = rows.find(end) if end is not None and info.max_path >= end else len(rows)
        left = limit - ahead.found
        if known is None:
            numbers = np.arange(first, min(stop, first + left), dtype=np.int64)
        else:
            numbers = np.flatnonzero(~known[first:stop])[:left] + first
        is_full = len(numbers) == left
        looked = int(numbers[-1]) + 1 if is_full else stop
        if not ahead.found:
            gap = int(numbers[0] if len(numbers) else stop) - first
            if gap:
                ahead.gap = ahead.skipped + gap
                ahead.gap_path = rows.run.paths[first + gap - 1].as_py()
        ahead.skipped += looked - first - len(numbers)
        ahead.found += len(numbers)
        if len(numbers):
            ahead.places.append((info, numbers))
        if is_full:
            ahead.upto = rows.run.paths[looked - 1].as_py()
            break
    return ahead


async def rows_at(
    reader: RangeReader, namespace: str, places: Places
) -> tuple[list[str], list[bytes]]:
    """Returns the paths and packed entries of rows.

    Raises:
        TarnError: as `look_ahead`.
    """
    paths: list[str] = []
    entries: list[bytes] = []
    for info, numbers in places:
        taken = (await reader.range(namespace, info.range_id)).run.take(numbers)
        paths += taken.paths.to_pylist()
        entries += taken.values.to_pylist()
    return paths, entries


async def places_of(
    reader: RangeReader, namespace: str, metarange: Metarange, paths: Sequence[str]
) -> Places:
    """Returns the places of adjacent rows of a listing, whose paths are given in order.

    Raises:
        TarnError: as `look_ahead`.
    """
    places: Places = []
    done = 0
    while done < len(paths):
        info = metarange.ranges[metarange.range_of(paths[done])]
        rows = await reader.range(namespace, info.range_id)
        first = rows.find(paths[done])
        count = min(len(rows) - first, len(paths) - done)
        places.append((info, np.arange(first, first + count, dtype=np.int64)))
        done += count
    return places


def held_places(reader: RangeReader, metarange: Metarange, paths: Sequence[str]) -> Places:
    """Returns the places of those of some paths, given in order, that a listing has. Never waits.

    Paths in ranges that are not opened are left out. A thousand paths of one range cost less than half a ms.
    """
    places: Places = []
    done = 0
    while done < len(paths):
        number = metarange.range_of(paths[done])
        if number == len(metarange.ranges):
            break
        info = metarange.ranges[number]
        end = bisect_right(paths, info.max_path, done)
        rows = reader.cache.opened(info.range_id)
        if rows is not None:
            matches = match_paths(pa.array(paths[done:end], pa.string()), rows.run.paths)
            if matches.found.any():
                places.append((info, matches.at[matches.found]))
        done = end
    return places
