"""The log: pages of history, in the order of a walk (`tarn_graveler.graph.walk`), with filters.

A page is short if its commits are large, or if it passed many commits that the filters exclude; the next page continues
there. So the work of one call is bounded, and no commit is left out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from tarn.aio.lru_cache import LruCache
from tarn.core.commit import Commit
from tarn.core.ids import CommitId
from tarn.core.listing.changed_paths import PathQuery
from tarn.kv.records import Repository
from tarn_graveler.graph.path_changes import PathChanges
from tarn_graveler.graph.walk import Marked, Span, Walk, order_of
from tarn_graveler.records.commits import Commits

__all__ = ["FRONTIER_MAX", "History", "HistoryPage", "LogFilter", "Position"]

FRONTIER_MAX = 128
"""Most commits of a position, so that a page token has at most 7 KiB."""

_PAGE_BYTES = 4 << 20
"""Bytes of messages and metadata (at most 128 KiB for each commit) after which a page ends."""

_PAGE_STEPS = 20_000
"""Commits that one page passes, listed or not: about 0.2 s if they are cached, 3 s if they are not."""

_COMPARED_MAX = 64
"""Comparisons of a commit with its parents that one page makes, because rows do not decide: one for each path and
prefix, some 20 ms."""

_DECIDED_AT_ONCE = 32
"""Commits that are decided by their rows before other tasks get their turn."""

_BATCH_MIN, _BATCH_MAX = 16, 512
"""Commits whose rows are read together. Batches grow: the first matches are often near the start."""

_HELD_COMMITS_MAX = 200_000
"""Commits of wide frontiers held in memory, all walks together: some 30 MiB."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page begins: in a walk from `frontier`, behind the commit `after`.

    A history may be wider than a page token can be long. Then the position is an earlier frontier, with the commit to
    skip to. It is exact either way.
    """

    frontier: tuple[Marked, ...]
    after: CommitId | None = None


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which commits of a span a log shows.

    Attributes:
        since_us: created at this time or later; None: any time. Microseconds since the Unix epoch.
        until_us: created before this time; None: any time.
        committer: id of the user who committed; empty: any user.
        paths: the commit changes one of them; None: any commit.
    """

    since_us: int | None = None
    until_us: int | None = None
    committer: str = ""
    paths: PathQuery | None = None

    def admits(self, commit: Commit) -> bool:
        """Whether the log shows a commit, as far as its own fields decide."""
        time_us = commit.create_time_us
        return (
            (self.since_us is None or time_us >= self.since_us)
            and (self.until_us is None or time_us < self.until_us)
            and (not self.committer or commit.committer == self.committer)
        )


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of commits, and where the next page begins (None at the end)."""

    commits: list[tuple[CommitId, Commit]]
    next: Position | None


class History:
    """Walks commit graphs."""

    def __init__(self, commits: Commits, changes: PathChanges) -> None:
        self._commits = commits
        self._changes = changes
        # Wide frontiers of recent pages. Without its frontier, a page walks from the starts again.
        self._wide: LruCache[tuple[str, Span, CommitId], tuple[Marked, ...]] = LruCache(
            _HELD_COMMITS_MAX, size_of=len
        )

    async def page(
        self,
        repository: Repository,
        span: Span,
        limit: int,
        *,
        after: CommitId | None = None,
        wanted: LogFilter | None = None,
    ) -> HistoryPage:
        """Returns up to `limit` commits of a span; fewer, even none, before the end if they are large or rare.

        Args:
            repository: their repository.
            span: the part of history; its starts are those of the position where the page begins.
            limit: most commits, at least one.
            after: the commit to skip to, of the same position.
            wanted: which commits of the span are shown; None: all.

        Raises:
            TarnError: COMMIT_NOT_FOUND; EXHAUSTED for a history that is too wide; CORRUPT.
        """
        wanted = wanted or LogFilter()
        page = _Page(limit)
        walk = await self._walk(repository, span, after)
        steps_max = walk.steps + _PAGE_STEPS
        batch_max = _BATCH_MIN
        while not walk.is_over and not page.is_full and walk.steps < steps_max:
            if wanted.paths is None:
                page.add(await self._next(walk, wanted, 1, steps_max))
                continue
            before = walk.frontier()
            found = await self._next(walk, wanted, batch_max, steps_max)
            full = await self._add_changing(repository, span, found, wanted.paths, page)
            if full is not None:
                position = self._position(repository, span, before, full, behind=True)
                return HistoryPage(page.commits, position)
            batch_max = min(2 * batch_max, _BATCH_MAX)
        if walk.is_over or walk.last is None:
            return HistoryPage(page.commits, None)
        position = self._position(repository, span, walk.frontier(), walk.last, behind=False)
        return HistoryPage(page.commits, position)

    @staticmethod
    async def _next(
        walk: Walk, wanted: LogFilter, count: int, steps_max: int
    ) -> list[tuple[CommitId, Commit]]:
        """Returns the next commits that the filter admits: up to `count`, fewer at the end or at the last step."""
        found: list[tuple[CommitId, Commit]] = []
        while not walk.is_over and len(found) < count and walk.steps < steps_max:
            passed = await walk.step()
            if passed is not None and wanted.admits(passed[1]):
                found.append(passed)
        return found

    async def _add_changing(
        self,
        repository: Repository,
        span: Span,
        found: list[tuple[CommitId, Commit]],
        paths: PathQuery,
        page: _Page,
    ) -> CommitId | None:
        """Adds those commits to a page that change the paths.

        Returns the commit behind which the page is full; None if all commits were looked at.
        """
        rows = await self._changes.rows(repository, [commit_id for commit_id, _ in found])
        last = None
        for place, ((commit_id, commit), row) in enumerate(zip(found, rows, strict=True)):
            if place % _DECIDED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if page.is_full:
                return last
            decision = await self._changes.decide(
                repository, commit_id, commit, row, paths, first_parent=span.first_parent
            )
            if decision.changes:
                page.add([(commit_id, commit)])
            page.compared += decision.compared
            last = commit_id
        return None

    async def _walk(self, repository: Repository, span: Span, after: CommitId | None) -> Walk:
        """Begins a walk behind the commit `after`."""
        walk = Walk(partial(self._commits.get_many, repository), span)
        held = None if after is None else self._wide.get((repository.instance_uid, span, after))
        await walk.add(held or span.starts)
        if after is not None:
            commit = await self._commits.get(repository, after)
            await walk.skip(order_of(after, commit))
        return walk

    def _position(
        self,
        repository: Repository,
        span: Span,
        frontier: tuple[Marked, ...],
        last: CommitId,
        *,
        behind: bool,
    ) -> Position:
        """The position behind the commit `last`: of its frontier, or of an earlier one (`behind`)."""
        if len(frontier) <= FRONTIER_MAX:
            return Position(frontier, last if behind else None)
        self._wide.put((repository.instance_uid, span, last), frontier)
        return Position(span.starts, last)


@dataclass(slots=True)
class _Page:
    """A page that is being filled."""

    limit: int
    commits: list[tuple[CommitId, Commit]] = field(default_factory=list)
    size_bytes: int = 0
    compared: int = 0

    @property
    def is_full(self) -> bool:
        """Whether the page has its limit of commits, bytes or work."""
        return (
            len(self.commits) >= self.limit
            or self.size_bytes >= _PAGE_BYTES
            or self.compared >= _COMPARED_MAX
        )

    def add(self, found: list[tuple[CommitId, Commit]]) -> None:
        """Adds commits."""
        self.commits += found
        self.size_bytes += sum(_text_bytes(commit) for _, commit in found)


def _text_bytes(commit: Commit) -> int:
    return sum(len(text.encode()) for text in chain((commit.message,), *commit.metadata))
