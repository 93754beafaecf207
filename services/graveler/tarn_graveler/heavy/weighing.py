"""Decides which builds are small enough for the process that serves requests.

The work of a build is the rows that it reads plus the ranges that it rewrites. Both are counted only up
to the bound. So weighing costs a large build a few ms and a small one nothing: the build uses the rows
that were read to count them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

import pyarrow as pa

from tarn.core.listing.metarange import Metarange
from tarn.core.listing.spans import PathSpan
from tarn.kv.port import Kv, Partition
from tarn_graveler.branch.building import batch_of, keys_without

__all__ = ["Batches", "few_rows", "rows_apart", "rows_touched"]

Batches = list[pa.RecordBatch]

_PAGE_ROWS = 1001
"""Rows per read: about one ms of the event loop. One read tells that a token has more than 1,000 rows."""
_PAGE_BYTES_MAX = 1 << 20
"""Rows may have a MiB each; a token with a page larger than this is not read any further."""


async def few_rows(
    kv: Kv, tokens: Sequence[Partition], rows_max: int, without: PathSpan | None = None
) -> list[Batches] | None:
    """Returns all rows of tokens, as batches of each; None if there are more than `rows_max`, or large ones.

    Rows of paths in `without` are neither read nor counted.

    Raises:
        TarnError: errors of the store.
    """
    left = rows_max
    layers: list[Batches] = []
    for token in tokens:
        batches: Batches = []
        for start, end in keys_without(without):
            found = await _few_of(kv, token, start, end, left)
            if found is None:
                return None
            batches += found
            left -= sum(batch.num_rows for batch in found)
        layers.append(batches)
    return layers


async def _few_of(
    kv: Kv, token: Partition, start: bytes, end: bytes, rows_max: int
) -> Batches | None:
    batches: Batches = []
    left = rows_max
    while True:
        limit = min(_PAGE_ROWS, left + 1)
        rows = await kv.scan(token, start, end, limit)
        left -= len(rows)
        if left < 0:
            return None
        if rows:
            keys, values = zip(*rows, strict=True)
            batches.append(batch_of(pa.array(keys, pa.binary()), pa.array(values, pa.binary())))
        if len(rows) < limit:
            return batches
        if batches[-1].nbytes > _PAGE_BYTES_MAX:
            return None
        start = rows[-1][0] + b"\0"
        await asyncio.sleep(0)  # the embedded store never yields to the event loop


def rows_touched(base: Metarange, layers: Sequence[Batches], rows_max: int) -> int:
    """Counts the rows of the ranges that changes touch; these are rewritten. At least `rows_max` + 1 if
    there are more than `rows_max`.
    """
    touched: set[int] = set()
    rows = 0
    for batch in (batch for batches in layers for batch in batches):
        paths = batch.column("path")
        at = 0
        while at < len(paths) and rows <= rows_max:
            place = min(base.range_of(paths[at].as_py()), len(base.ranges) - 1)
            if place < 0:
                return 0
            if place not in touched:
                touched.add(place)
                rows += base.ranges[place].count
            if place == len(base.ranges) - 1:
                break
            at = _first_after(paths, base.max_paths[place], at)
    return rows


def rows_apart(base: Metarange, head: Metarange, span: PathSpan | None) -> int:
    """Counts the rows of the ranges that two listings do not share, in a span of paths or (None) everywhere: a build
    over a compacted listing reads them.
    """
    ids = {info.range_id for info in base.ranges} ^ {info.range_id for info in head.ranges}
    return sum(
        info.count
        for info in (*base.ranges, *head.ranges)
        if info.range_id in ids
        and (
            span is None
            or (info.max_path >= span.start and (span.end is None or info.min_path < span.end))
        )
    )


def _first_after(paths: pa.StringArray, path: str, start: int) -> int:
    return bisect_right(range(len(paths)), path, start, key=lambda row: str(paths[row].as_py()))
