"""Finds the branches of all repositories that have staged rows or sealed tokens, page by page."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.branch import Branch
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.records import Branches, BranchName
from tarn_graveler.repository.records import Repositories

__all__ = ["StagedBranches", "StagedPage"]

_REPOSITORIES_MAX = 16
"""Most repositories that one page enters, however few branches they have."""


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

    def __init__(self, repositories: Repositories, branches: Branches, layers: Layers) -> None:
        self._repositories = repositories
        self._branches = branches
        self._layers = layers

    async def page(self, after_repository: str, after_branch: str, limit: int) -> StagedPage:
        """Looks at up to `limit` branches, from the one that follows `after_branch` in `after_repository`.

        Args:
            after_repository: the repository to begin in; empty: the first one.
            after_branch: the last branch that was looked at; empty: none.
            limit: most branches to look at.
        """
        found: list[tuple[str, BranchId, int]] = []
        repositories, next_repository = await self._from(after_repository)
        last = ""
        for repository in repositories:
            last = after_branch if repository.repository_id == after_repository else ""
            page = await self._branches.page(repository, "", last, limit)
            for branch_id, branch in page:
                name = BranchName(repository, branch_id)
                if not branch.is_deleted and await self._has_rows(name, branch):
                    found.append((repository.repository_id, branch_id, len(branch.sealed)))
            last = page[-1][0] if page else last
            if len(page) == limit:
                return StagedPage(found, repository.repository_id, last)
            limit -= len(page)
        is_last_known = repositories and repositories[-1].repository_id == next_repository
        return StagedPage(found, next_repository, last if is_last_known else "")

    async def _has_rows(self, name: BranchName, branch: Branch) -> bool:
        return bool(branch.sealed) or not await self._layers.is_empty(name, branch.staging)

    async def _from(self, repository_id: str) -> tuple[list[Repository], str]:
        """Returns repositories in order, from the named one if it still exists, and where the next page begins: in
        the last repository of this one; empty at the end.
        """
        page = await self._repositories.page("", repository_id, _REPOSITORIES_MAX)
        found = [each for each in page if each.is_served]
        if repository_id:
            try:
                found.insert(0, await self._repositories.get(repository_id))
            except TarnError as error:
                if error.kind is not Kind.NOT_FOUND:
                    raise
        return found, page[-1].repository_id if len(page) == _REPOSITORIES_MAX else ""
