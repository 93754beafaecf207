"""Differences between two commits, and between a branch and its head commit."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tarn.block.committed import Committed
from tarn.core.branch import Branch
from tarn.core.ids import CommitId
from tarn.core.listing.diff import DiffPage
from tarn.core.listing.pages import PageRequest
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.reading import Reading
from tarn_graveler.branch.records import BranchName

__all__ = ["Diffing"]


class Diffing:
    """Compares listings page by page, in byte order of the paths."""

    def __init__(self, layers: Layers, reading: Reading, committed: Committed) -> None:
        self._layers = layers
        self._reading = reading
        self._committed = committed

    async def commits(
        self,
        repository: Repository,
        left: CommitId,
        right: CommitId,
        *,
        prefix: str,
        after: str,
        limit: int,
    ) -> DiffPage:
        """Returns up to `limit` differences of two commits; ranges that both share are not opened."""
        return await self._committed.diff(
            repository.storage_namespace,
            await self._layers.metarange_of(repository, left),
            await self._layers.metarange_of(repository, right),
            prefix=prefix,
            after=after,
            limit=limit,
        )

    async def uncommitted(
        self, name: BranchName, *, prefix: str, after: str, limit: int
    ) -> DiffPage:
        """Returns up to `limit` uncommitted changes of a branch.

        Staged rows that change nothing are skipped, so a page may be short although more follow.
        """

        async def read(branch: Branch) -> DiffPage:
            return await self._uncommitted_page(
                name, branch, prefix=prefix, after=after, limit=limit
            )

        return await self._reading.by_record(name, read)

    async def _uncommitted_page(
        self, name: BranchName, branch: Branch, *, prefix: str, after: str, limit: int
    ) -> DiffPage:
        namespace = name.repository.storage_namespace
        head = await self._layers.metarange_of(name.repository, branch.commit_id)
        request = PageRequest(prefix=prefix, after=after, limit=limit, with_tombstones=True)
        page = await self._layers.page(name, branch.tokens, None, request)
        paths = pa.array(page.paths, pa.string())
        values = pa.array(page.entries, pa.binary())
        staged = pa.record_batch([paths, values], names=["path", "value"])
        found = await self._committed.diff_staged(namespace, head, staged)
        return found if found.next_after is not None else replace(found, next_after=page.next_after)
