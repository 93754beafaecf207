"""Counts the usage of a repository: its uncommitted objects, branches and open uploads.

Uncommitted objects are the rows of staging tokens that are no tombstones, and the objects that a compacted listing has
more than its commit. A path that is written again after a seal counts once for each token, until a compaction. With a
journal it counts once for each write, until then: each has left an event, and a client that only overwrites must not
fill the store.
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
from tarn.kv.port import COMPANION_KEYS, PAST_COMPANIONS, Kv, Partition
from tarn.kv.records import Repository, parse_record
from tarn_graveler.branch.layers import Layers
from tarn_graveler.iterators.opening import Iterators
from tarn_graveler.records.branches import BranchName
from tarn_graveler.uploads.daily_partitions import DailyUploads
from tarn_proto.store.v1 import journal_pb2 as pb

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
        *,
        has_journal: bool = False,
    ) -> None:
        self._has_journal = has_journal
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
        if self._has_journal:
            written, bytes_written = await self._of_events(partition)
            objects, size = max(objects, written), max(size, bytes_written)
        if is_sealed:
            self._sealed.put(token.token_id, (objects, size))
        return objects, size

    async def _of_events(self, partition: Partition) -> Count:
        """Counts the objects that the events of a token say were written; deletes are none."""
        objects, size, start = 0, 0, COMPANION_KEYS
        while page := await self._kv.scan_companions(partition, start, PAST_COMPANIONS, _PAGE_ROWS):
            payloads = [parse_record(pb.JournalEvent(), each.value).payload for each in page]
            sizes = [size_of(payload) for payload in payloads if not is_tombstone(payload)]
            objects, size = objects + len(sizes), size + sum(sizes)
            start = page[-1].key + b"\0"
            await asyncio.sleep(0)
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
