"""Compares staged rows with the commit beneath them, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tarn.block.committed import Committed
from tarn.core.branch import Branch, Token
from tarn.core.listing.diff import DiffPage
from tarn.core.listing.pages import PageRequest
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.records import BranchName

__all__ = ["UncommittedChanges"]

_PAGE_ROWS = 1000


class UncommittedChanges:
    """Finds the staged rows that change a branch's commit."""

    def __init__(self, layers: Layers, committed: Committed) -> None:
        self._layers = layers
        self._committed = committed

    async def page(
        self,
        name: BranchName,
        branch: Branch,
        tokens: Sequence[Token],
        *,
        prefix: str = "",
        after: str = "",
        limit: int = _PAGE_ROWS,
    ) -> DiffPage:
        """Returns up to `limit` changes that some tokens of a record make to its commit.

        Staged rows that change nothing are skipped, so a page may be short, even empty, although more
        follow.
        """
        namespace = name.repository.storage_namespace
        head = await self._layers.metarange_of(name.repository, branch.commit_id)
        request = PageRequest(prefix=prefix, after=after, limit=limit, with_tombstones=True)
        page = await self._layers.page(name, tokens, None, request)
        paths = pa.array(page.paths, pa.string())
        values = pa.array(page.entries, pa.binary())
        staged = pa.record_batch([paths, values], names=["path", "value"])
        found = await self._committed.diff_staged(namespace, head, staged)
        return found if found.next_after is not None else replace(found, next_after=page.next_after)

    async def first(self, name: BranchName, branch: Branch, limit: int) -> list[str]:
        """Returns the first paths that the sealed tokens, or a compacted listing, change; empty if the
        branch is clean (rule 7).

        Only sealed tokens are read: they take no more acknowledged writes, so the answer stays true for
        the record.
        """
        compacted = branch.compacted_metarange_id
        if compacted is not None:
            namespace = name.repository.storage_namespace
            head = await self._layers.metarange_of(name.repository, branch.commit_id)
            changes = await self._committed.diff(
                namespace, head, compacted, prefix="", after="", limit=limit
            )
            if changes.paths:
                return changes.paths
        paths: list[str] = []
        after: str | None = "" if branch.sealed else None
        while after is not None and len(paths) < limit:
            page = await self.page(name, branch, branch.sealed, after=after)
            paths += page.paths
            after = page.next_after
        return paths[:limit]
