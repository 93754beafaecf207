"""Finds the branches of all repositories that have staged rows or sealed tokens, page by page."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from tarn.core.branch import Branch
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.cursors.cursor import CursorPage
from tarn_graveler.iterators.opening import Iterators
from tarn_graveler.records.branches import BranchName

__all__ = ["StagedBranches", "StagedPage"]

_REPOSITORIES_MAX = 16
"""Most repositories that one page enters, however few branches they have."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StagedPage:
    """Staged branches with the number of their sealed tokens, and where the next page begins.

    Attributes:
        branches: repository, branch and number of sealed tokens.
        next_repository: empty at the end.
        next_branch: the last branch that was looked at in `next_repository`; empty: none yet.
    """

    branches: list[tuple[str, BranchId, int]]
    next_repository: str
    next_branch: str


class StagedBranches:
    """Looks at branch records, and at the first row of their staging tokens."""

    def __init__(self, iterators: Iterators, layers: Layers) -> None:
        self._iterators = iterators
        self._layers = layers

    async def page(self, after_repository: str, after_branch: str, limit: int) -> StagedPage:
        """Looks at up to `limit` branches, from the one that follows `after_branch` in `after_repository`.

        Args:
            after_repository: the repository to begin in, or behind if it is gone; empty: the first one.
            after_branch: the last branch that was looked at; empty: none.
            limit: most branches to look at; at least one.
        """
        found: list[tuple[str, BranchId, int]] = []
        repositories = self._iterators.repositories()
        repositories.seek(after_repository)
        served = await repositories.page(_REPOSITORIES_MAX)
        last = ""
        for repository_id, repository in served.items:
            last = after_branch if repository_id == after_repository else ""
            page = await self._branches_behind(repository, last, limit)
            for branch_id, branch in page.items:
                if await self._has_rows(BranchName(repository, branch_id), branch):
                    found.append((repository_id, branch_id, len(branch.sealed)))
                last = branch_id
            limit -= len(page.items)
            if page.next_after is not None:
                return StagedPage(found, repository_id, page.next_after)
            if not limit:
                return StagedPage(found, repository_id, last)
        if served.next_after is None:
            return StagedPage(found, "", "")
        is_entered = bool(served.items) and served.items[-1][0] == served.next_after
        return StagedPage(found, served.next_after, last if is_entered else "")

    async def _branches_behind(
        self, repository: Repository, after: str, limit: int
    ) -> CursorPage[BranchId, Branch]:
        """Returns branches of a repository; none if it has been deleted meanwhile.

        Also none if a record among them is damaged: the compactor must still learn of all other repositories. Every
        listing of these branches fails, and `tarn fsck` names the record.
        """
        branches = self._iterators.branches(repository)
        branches.seek_behind(after)
        try:
            return await branches.page(limit)
        except TarnError as error:
            if error.kind is Kind.CORRUPT:
                _log.error(
                    "staged branches behind a damaged record are not listed",
                    repository=repository.repository_id,
                    after=after,
                    error=error.message,
                )
            elif error.kind is not Kind.NOT_FOUND:
                raise
            return CursorPage([], None)

    async def _has_rows(self, name: BranchName, branch: Branch) -> bool:
        return bool(branch.sealed) or not await self._layers.is_empty(name, branch.staging)
