"""Compares the uncommitted layers of a branch, staged rows and compacted listing, with its commit, page by page.

The difference between the compacted listing and the commit can be the larger part, and callers ask for it again and
again: a merge looks for uncommitted changes two or three times, and each page of staged rows needs the part of it
that lies between them. So the last page of each is remembered (`CompactedChanges`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tarn.aio.lru_cache import LruCache
from tarn.block.committed import Committed
from tarn.core.branch import Branch, Token
from tarn.core.entry import TOMBSTONE
from tarn.core.ids import MetarangeId
from tarn.core.listing.diff import DiffPage
from tarn.core.listing.pages import PageRequest
from tarn_graveler.branch.layers import Layers
from tarn_graveler.records.branches import BranchName

__all__ = ["CompactedChanges", "UncommittedChanges"]

_PAGE_ROWS = 1000
_REMEMBERED_BYTES_MAX = 16 << 20
"""Bytes of all remembered pages: four of the largest ones, or some 40 of 1,000 rows."""
_ROW_OVERHEAD_BYTES = 200
_PAGE_OVERHEAD_BYTES = 3000
"""The objects of a page, and a prefix of up to 1,024 characters."""

_Rows = tuple[list[str], list[bytes], str | None]
"""Sorted paths, the row of each, and where the next page begins."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A page that was read.

    Attributes:
        after: the page has the changes of greater paths.
        limit: the number of changes that were asked for. The page does not serve a caller that asks for more.
        page: the changes. Invariant: its lists are never changed.
        size: bytes of memory.
    """

    after: str
    limit: int
    page: DiffPage
    size: int

    def part(self, after: str, limit: int) -> DiffPage | None:
        """Returns the changes from `after` on, up to the end of this page; None if that is elsewhere."""
        end = self.page.next_after
        if after < self.after or (end is not None and after >= end) or limit > self.limit:
            return None
        first = bisect_right(self.page.paths, after)
        last = first + limit
        if last < len(self.page.paths):
            end = self.page.paths[last - 1]
        rows = slice(first, last)
        return DiffPage(self.page.paths[rows], self.page.lefts[rows], self.page.rights[rows], end)


class CompactedChanges:
    """The difference between commits and the compacted listings over them. Remembers the last page of each.

    Both listings are named by their content, so a remembered page is never wrong.
    """

    def __init__(self, committed: Committed, bytes_max: int = _REMEMBERED_BYTES_MAX) -> None:
        self._committed = committed
        self._known: LruCache[tuple[str, MetarangeId, MetarangeId, str], _Known] = LruCache(
            bytes_max, size_of=lambda known: known.size
        )

    async def page(
        self,
        namespace: str,
        head: MetarangeId,
        compacted: MetarangeId,
        *,
        prefix: str,
        after: str,
        limit: int,
    ) -> DiffPage:
        """Returns up to `limit` changes after a path, as `Differences.page`; a page may be short before the end.

        Raises:
            TarnError: as `Differences.page`.
        """
        key = (namespace, head, compacted, prefix)
        known = self._known.get(key)
        part = None if known is None else known.part(after, limit)
        if part is not None:
            return part
        page = await self._committed.differences.page(
            namespace, head, compacted, prefix=prefix, after=after, limit=limit
        )
        self._known.put(key, _Known(after, limit, page, _size_of(page)))
        return page


def _size_of(page: DiffPage) -> int:
    columns = (page.paths, page.lefts, page.rights)
    rows = sum(len(value) for column in columns for value in column)
    return rows + len(page.paths) * _ROW_OVERHEAD_BYTES + _PAGE_OVERHEAD_BYTES


class UncommittedChanges:
    """Finds what changes a branch's commit."""

    def __init__(self, layers: Layers, committed: Committed) -> None:
        self._layers = layers
        self._committed = committed
        self._compacted = CompactedChanges(committed)

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
        """Returns up to `limit` changes that some tokens of a record, over its base, make to its commit.

        Staged rows that change nothing are skipped, so a page may be short, even empty, although more
        follow.
        """
        namespace = name.repository.storage_namespace
        head = await self._layers.metarange_of(name.repository, branch.commit_id)
        request = PageRequest(prefix=prefix, after=after, limit=limit, with_tombstones=True)
        paths, entries, next_after = await self._staged(name, tokens, request)
        if branch.compacted_metarange_id is not None:
            beneath = await self._compacted.page(
                namespace,
                head,
                branch.compacted_metarange_id,
                prefix=prefix,
                after=after,
                limit=limit,
            )
            staged = dict(zip(paths, entries, strict=True))
            paths, entries, next_after = _joined(staged, next_after, beneath, limit)
        columns = [pa.array(paths, pa.string()), pa.array(entries, pa.binary())]
        rows = pa.record_batch(columns, names=["path", "value"])
        erased = self._layers.erased(name.repository)
        found = await self._committed.differences.staged_page(namespace, head, rows, erased)
        return found if found.next_after is not None else replace(found, next_after=next_after)

    async def _staged(
        self, name: BranchName, tokens: Sequence[Token], request: PageRequest
    ) -> _Rows:
        """Returns a page of the rows of tokens."""
        if not tokens:
            return [], [], None
        page = await self._layers.page(name, tokens, None, request)
        return page.paths, page.entries, page.next_after

    async def first(self, name: BranchName, branch: Branch, limit: int) -> list[str]:
        """Returns the first paths that the sealed tokens over the compacted listing change; empty if the branch is
        clean (rule 7).

        Only sealed tokens are read: they take no more acknowledged writes, so the answer stays true for
        the record.
        """
        paths: list[str] = []
        is_behind = branch.sealed or branch.compacted_metarange_id is not None
        after: str | None = "" if is_behind else None
        while after is not None and len(paths) < limit:
            page = await self.page(name, branch, branch.sealed, after=after)
            paths += page.paths
            after = page.next_after
        return paths[:limit]


def _joined(
    staged: dict[str, bytes], next_staged: str | None, beneath: DiffPage, limit: int
) -> _Rows:
    """Lays a page of staged rows over a page of the differences beneath, up to where both are known."""
    rows = {
        path: right or TOMBSTONE for path, right in zip(beneath.paths, beneath.rights, strict=True)
    }
    rows |= staged
    ends = [end for end in (next_staged, beneath.next_after) if end is not None]
    next_after = min(ends, default=None)
    paths = sorted(path for path in rows if next_after is None or path <= next_after)
    if len(paths) > limit:
        paths = paths[:limit]
        next_after = paths[-1]
    return paths, [rows[path] for path in paths], next_after
