"""Entries of a commit in builds over a compacted listing.

A compacted listing lies between a branch's commit and its staged rows (docs/design/protocol.md, rule 6). Each of its
entries is the commit's entry, byte for byte, or has another identity. So the listing in which all changes are
undone is the commit's listing, with the same id.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.comparing import compared
from tarn.block.rangereader import RangeReader
from tarn.block.replacements import beside_head
from tarn.core.entry import TOMBSTONE
from tarn.core.listing.changes import as_committed
from tarn.core.listing.metarange import Metarange
from tarn.core.listing.run import Run, concat_runs
from tarn.core.listing.spans import PathSpan

__all__ = ["head_rows", "with_head_entries"]

_WINDOW_ROWS = 1 << 20
"""Windows of a comparison that is read to its end: as large as the ranges."""


async def head_rows(
    reader: RangeReader, namespace: str, base: Metarange, head: Metarange, span: PathSpan
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yields the rows that give the paths of a span in `base` the content of `head`, as a layer of a build.

    Ranges that both share are not opened.
    """
    windows = compared(
        reader, namespace, base, head, start=span.start, end=span.end, rows_first=_WINDOW_ROWS
    )
    async with aclosing(windows):
        async for window in windows:
            found = window.changes
            values = pc.fill_null(found.column("right"), TOMBSTONE)
            yield pa.record_batch([found.column("path"), values], names=["path", "value"])


async def with_head_entries(
    changes: AsyncGenerator[Run, None],
    reader: RangeReader,
    namespace: str,
    head: Metarange,
) -> AsyncGenerator[Run, None]:
    """Yields `changes`, in which each row with the identity of the head's entry of its path is that entry.

    Otherwise a path that was changed and changed back, with a compaction between, would differ from the commit by its
    address.
    """
    async for run in changes:
        pieces: list[Run] = []
        async for here, committed in beside_head(run, reader, namespace, head):
            rows = here
            if committed is not None:
                rows = await reader.compute(as_committed, here, committed)
            pieces.append(rows)
        yield await reader.compute(concat_runs, pieces)
