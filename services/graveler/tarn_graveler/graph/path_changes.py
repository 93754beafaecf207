"""Decides whether a commit changes some paths: by its row (`path_records`), else by comparing listings.

A commit changes a path if the identity of its entry there differs from that of *each* parent. So a merge, which takes
every path from one of its parents, changes none; the commits that it merges are listed themselves. Along first parents,
a merge is compared with its first parent only, because there the commits that it merges are not listed.

Comparing skips ranges that both listings share (`tarn.block.comparing`). A commit without a row is compared as a whole
once, and the row is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarn.aio.lru_cache import LruCache
from tarn.block.committed import Committed
from tarn.core.commit import Commit
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.changed_paths import (
    NO_PATHS,
    UNKNOWN_PATHS,
    Answer,
    ChangedPaths,
    PathCollector,
    PathQuery,
)
from tarn.core.listing.metarange import EMPTY_METARANGE
from tarn.kv.records import Repository
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.path_records import PathRecords

__all__ = ["Decision", "PathChanges"]

_PAGE = 1_000
_PAGES_MAX = 16
"""Pages of differences, of up to 64 ranges each, that are read to make the row of one commit. A commit with more
changes has a row that excludes nothing."""

_VERDICTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a commit changes one of some paths.

    Attributes:
        changes: whether it does.
        compared: number of comparisons of listings that were needed to know: one for each path and prefix.
    """

    changes: bool
    compared: int = 0


class PathChanges:
    """Answers for one installation."""

    def __init__(self, records: PathRecords, commits: Commits, committed: Committed) -> None:
        self._records = records
        self._commits = commits
        self._committed = committed
        self._verdicts: LruCache[tuple[object, ...], Decision] = LruCache(_VERDICTS_MAX)

    async def rows(
        self, repository: Repository, commit_ids: Sequence[CommitId]
    ) -> list[ChangedPaths | None]:
        """Returns the rows of commits, as `PathRecords.get_many`."""
        return await self._records.get_many(repository, commit_ids)

    async def decide(
        self,
        repository: Repository,
        commit_id: CommitId,
        commit: Commit,
        row: ChangedPaths | None,
        query: PathQuery,
        *,
        first_parent: bool,
    ) -> Decision:
        """Returns whether a commit changes one of the paths of a query.

        Args:
            repository: its repository.
            commit_id: its id.
            commit: the commit.
            row: its row, if there is one.
            query: the paths.
            first_parent: compare a merge with its first parent only.

        Raises:
            TarnError: as `Differences.page`.
        """
        is_line = first_parent and len(commit.parents) > 1  # the row compares with all parents
        compared = 0
        if not is_line:
            if row is None:
                row, compared = await self.row_of(repository, commit_id, commit), 1
            answer = row.answer(query)
            if answer is not Answer.MAYBE:
                return Decision(answer is Answer.YES, compared)
        key = (repository.instance_uid, commit_id, is_line, query.digest)
        held = self._verdicts.get(key)
        if held is not None:
            return held
        parents = await self._parents(repository, commit)
        changes = await self._differs(
            repository, commit, parents[:1] if is_line else parents, query
        )
        self._verdicts.put(key, Decision(changes))
        return Decision(changes, compared + len(query.paths) + len(query.prefixes))

    async def row_of(
        self, repository: Repository, commit_id: CommitId, commit: Commit
    ) -> ChangedPaths:
        """Compares a commit with its parents, and remembers the paths that it changes.

        Raises:
            TarnError: as `Differences.page`.
        """
        first, *others = await self._parents(repository, commit)
        namespace, listing = repository.storage_namespace, commit.metarange_id
        collector, after = PathCollector(), ""
        row = UNKNOWN_PATHS
        if listing in (first, *others):
            row = NO_PATHS
            self._records.remember(repository, {commit_id: row})
            return row
        for _ in range(_PAGES_MAX):
            page = await self._committed.differences.page(
                namespace, first, listing, after=after, limit=_PAGE
            )
            collector.add(await self._differing(repository, commit, others, page.paths))
            if page.next_after is None:
                row = collector.result()
                break
            after = page.next_after
        self._records.remember(repository, {commit_id: row})
        return row

    async def _parents(self, repository: Repository, commit: Commit) -> list[MetarangeId]:
        """The listings of the parents; the empty one for a commit without parents."""
        parents = await self._commits.get_many(repository, commit.parents)
        return [each.metarange_id for each in parents] or [EMPTY_METARANGE.metarange_id]

    async def _differs(
        self, repository: Repository, commit: Commit, parents: list[MetarangeId], query: PathQuery
    ) -> bool:
        """Whether a listing differs from those of all parents at a path that the query asks for."""
        if await self._differing(repository, commit, parents, sorted(query.paths)):
            return True
        limit = _PAGE if parents[1:] else 1
        for prefix in query.prefixes:
            after: str | None = ""
            while after is not None:
                page = await self._committed.differences.page(
                    repository.storage_namespace,
                    parents[0],
                    commit.metarange_id,
                    prefix=prefix,
                    after=after,
                    limit=limit,
                )
                if await self._differing(repository, commit, parents[1:], page.paths):
                    return True
                after = page.next_after
        return False

    async def _differing(
        self,
        repository: Repository,
        commit: Commit,
        parents: Sequence[MetarangeId],
        paths: Sequence[str],
    ) -> list[str]:
        """Those of the paths at which a commit differs from each of the parents."""
        left = list(paths)
        for parent in parents:
            if not left:
                break
            same, _ = await self._committed.same_at(
                repository.storage_namespace, parent, commit.metarange_id, left
            )
            left = [path for path, is_same in zip(left, same, strict=True) if not is_same]
        return left
