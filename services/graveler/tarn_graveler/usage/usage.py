"""Counts the usage of a repository: its uncommitted objects, branches and open uploads.

Uncommitted objects are the rows of staging tokens that are no tombstones, and the objects that a compacted listing has
more than its commit. A path that is written again after a seal counts once for each token, until a compaction.
"""

from __future__ import annotations

import asyncio

from tarn.aio.bounded_map import BoundedMap
from tarn.block.committed import Committed
from tarn.core.branch import Branch, Token
from tarn.core.entry import is_tombstone, size_of
from tarn.core.ids import TokenId
from tarn.core.quota import Limits
from tarn.kv.keys import PATHS_END, PATHS_START
from tarn.kv.port import Kv
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.iterators.opening import Iterators
from tarn_graveler.records.branches import BranchName
from tarn_graveler.uploads.daily_partitions import DailyUploads

__all__ = ["UsageCounter"]

_PAGE_ROWS = 1000
"""Rows of one read: about one ms of the event loop."""
_SEALED_MAX = 10_000
"""Sealed tokens whose counts are kept: they take no acknowledged write any more."""

Count = tuple[int, int]
"""Objects, and their bytes."""


class UsageCounter:
    """Counts by reading. Writes that happen meanwhile may be counted or not."""

    def __init__(
        self,
        kv: Kv,
        iterators: Iterators,
        layers: Layers,
        committed: Committed,
        uploads: DailyUploads,
    ) -> None:
        self._kv = kv
        self._iterators = iterators
        self._layers = layers
        self._committed = committed
        self._uploads = uploads
        self._sealed: BoundedMap[TokenId, Count] = BoundedMap(_SEALED_MAX)

    async def staged(self, repository: Repository, limits: Limits) -> Count:
        """Counts uncommitted objects and their bytes, and ends early when either is beyond its limit.

        Raises:
            TarnError: errors of the stores.
        """
        objects = size = 0
        async for branch_id, branch in self._iterators.branches(repository):
            name = BranchName(repository, branch_id)
            for token in branch.tokens:
                more, bytes_more = await self._of_token(name, token, branch)
                objects, size = objects + more, size + bytes_more
            more, bytes_more = await self._of_compacted(repository, branch)
            objects, size = objects + more, size + bytes_more
            if 0 < limits.staged_objects < objects or 0 < limits.staged_bytes < size:
                break
        return objects, size

    async def branches(self, repository: Repository, most: int) -> int:
        """Counts branches, up to `most`; 0: all."""
        count = 0
        async for _ in self._iterators.branches(repository, limit=most or None):
            count += 1
        return count

    async def uploads(self, repository: Repository, most: int) -> int:
        """Counts open uploads and issued addresses that can still be linked, up to `most`; 0: all."""
        return await self._uploads.count_open(repository, most)

    async def _of_token(self, name: BranchName, token: Token, branch: Branch) -> Count:
        is_sealed = token != branch.staging
        kept = self._sealed.get(token.token_id) if is_sealed else None
        if kept is not None:
            return kept
        objects = size = 0
        partition, start = self._layers.partition(name, token), PATHS_START
        while True:
            rows = await self._kv.scan(partition, start, PATHS_END, _PAGE_ROWS)
            sizes = [size_of(value) for _, value in rows if not is_tombstone(value)]
            objects, size = objects + len(sizes), size + sum(sizes)
            if len(rows) < _PAGE_ROWS:
                break
            start = rows[-1][0] + b"\0"
            await asyncio.sleep(0)  # the embedded store never yields to the event loop
        if is_sealed:
            self._sealed.put(token.token_id, (objects, size))
        return objects, size

    async def _of_compacted(self, repository: Repository, branch: Branch) -> Count:
        if branch.compacted_metarange_id is None:
            return 0, 0
        namespace = repository.storage_namespace
        head_id = await self._layers.metarange_of(repository, branch.commit_id)
        after = await self._committed.metarange(namespace, branch.compacted_metarange_id)
        before = await self._committed.metarange(namespace, head_id)
        return (
            max(0, after.count - before.count),
            max(0, after.object_bytes - before.object_bytes),
        )
