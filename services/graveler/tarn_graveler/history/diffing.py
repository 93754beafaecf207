"""Differences between two commits, and between a branch and its head commit."""

from __future__ import annotations

from tarn.block.committed import Committed
from tarn.core.branch import Branch
from tarn.core.ids import CommitId
from tarn.core.listing.diff import DiffPage
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.reading import Reading
from tarn_graveler.branch.records import BranchName
from tarn_graveler.branch.uncommitted import UncommittedChanges

__all__ = ["Diffing"]


class Diffing:
    """Compares listings page by page, in byte order of the paths."""

    def __init__(
        self, layers: Layers, reading: Reading, committed: Committed, changes: UncommittedChanges
    ) -> None:
        self._layers = layers
        self._reading = reading
        self._committed = committed
        self._changes = changes

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
            return await self._changes.page(
                name, branch, branch.tokens, prefix=prefix, after=after, limit=limit
            )

        return await self._reading.by_record(name, read)
