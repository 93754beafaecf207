"""Counts the uncommitted rows of a branch, up to a limit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tarn.block.committed import Committed
from tarn.core.branch import Branch
from tarn.core.entry import is_tombstone
from tarn.kv.keys import PATHS_END, PATHS_START
from tarn.kv.port import COMPANION_KEYS, PAST_COMPANIONS, Kv, Partition
from tarn_graveler.branch.layers import Layers
from tarn_graveler.records.branches import Branches, BranchName

__all__ = ["StagedRows", "StagingStatistics"]

_PAGE_ROWS = 1000
"""Rows of one read: about one ms of the event loop."""


@dataclass(slots=True)
class StagedRows:
    """The staged rows of a branch.

    Attributes:
        branch: the record whose tokens were counted.
        rows: rows of all tokens, tombstones included.
        tombstones: tombstones among them.
        size_bytes: bytes of keys and values.
        events: events of the journal in the tokens, at least one for each row that was written with a journal.
        is_truncated: counting ended at the limit, so the counts are lower bounds.
        oldest_write_us: when the oldest token with a row was created: no row is older; 0 without rows.
        compacted_rows: entries of the compacted listing.
    """

    branch: Branch
    rows: int = 0
    tombstones: int = 0
    size_bytes: int = 0
    events: int = 0
    is_truncated: bool = False
    oldest_write_us: int = 0
    compacted_rows: int = 0


class StagingStatistics:
    """Counts staged rows.

    The answer is a hint: nothing is decided by it, so rows that come or leave meanwhile need no second look.
    """

    def __init__(self, kv: Kv, branches: Branches, layers: Layers, committed: Committed) -> None:
        self._kv = kv
        self._branches = branches
        self._layers = layers
        self._committed = committed

    async def count(
        self,
        name: BranchName,
        rows_max: int,
        *,
        with_compacted: bool = True,
        with_events: bool = False,
    ) -> StagedRows:
        """Counts up to `rows_max` rows, oldest token first.

        Args:
            name: the branch.
            rows_max: most rows to count.
            with_compacted: also say how many entries the compacted listing has; reads its metarange.
            with_events: also count events, up to `rows_max`; their bytes are in `size_bytes`.

        Raises:
            TarnError: BRANCH_NOT_FOUND; errors of the stores.
        """
        branch = (await self._branches.fresh(name)).branch
        found = StagedRows(branch)
        for token in reversed(branch.tokens):
            rows_before = found.rows
            partition = self._layers.partition(name, token)
            await self._count(partition, found, rows_max)
            if with_events:
                await self._count_events(partition, found, rows_max)
            if found.rows > rows_before and not found.oldest_write_us:
                found.oldest_write_us = token.create_time_us
        if with_compacted and branch.compacted_metarange_id is not None:
            listing = await self._committed.metarange(
                name.repository.storage_namespace, branch.compacted_metarange_id
            )
            found.compacted_rows = listing.count
        return found

    async def _count(self, partition: Partition, found: StagedRows, rows_max: int) -> None:
        start = PATHS_START
        while not found.is_truncated:
            limit = min(_PAGE_ROWS, rows_max - found.rows + 1)
            rows = await self._kv.scan(partition, start, PATHS_END, limit)
            if found.rows + len(rows) > rows_max:
                found.is_truncated = True
                rows = rows[: rows_max - found.rows]
            found.rows += len(rows)
            found.tombstones += sum(is_tombstone(value) for _, value in rows)
            found.size_bytes += sum(len(key) + len(value) for key, value in rows)
            if len(rows) < limit:
                return
            start = rows[-1][0] + b"\0"
            await asyncio.sleep(0)  # the embedded store never yields to the event loop

    async def _count_events(self, partition: Partition, found: StagedRows, rows_max: int) -> None:
        start = COMPANION_KEYS
        while found.events < rows_max:
            limit = min(_PAGE_ROWS, rows_max - found.events)
            page = await self._kv.scan_companions(partition, start, PAST_COMPANIONS, limit)
            found.events += len(page)
            found.size_bytes += sum(len(each.key) + len(each.value) for each in page)
            if len(page) < limit:
                return
            start = page[-1].key + b"\0"
            await asyncio.sleep(0)
        found.is_truncated = True
