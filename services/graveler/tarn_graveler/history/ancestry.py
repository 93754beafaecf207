"""The log: pages of history, in the order of a walk (`tarn_graveler.history.walk`), with filters.

A page is short if its commits are large, or if it passed many commits that the filters exclude; the next page continues
there. So the work of one call is bounded, and no commit is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain

from tarn.aio.lru_cache import LruCache
from tarn.core.commit import Commit
from tarn.core.ids import CommitId
from tarn.kv.records import Repository
from tarn_graveler.history.commits import Commits
from tarn_graveler.history.walk import Marked, Span, Walk, order_of

__all__ = ["FRONTIER_MAX", "History", "HistoryPage", "LogFilter", "Position"]

FRONTIER_MAX = 128
"""Most commits of a position, so that a page token has at most 7 KiB."""

_PAGE_BYTES = 4 << 20
"""Bytes of messages and metadata (at most 128 KiB for each commit) after which a page ends."""

_PAGE_STEPS = 20_000
"""Commits that one page passes, listed or not: about 0.2 s if they are cached, 3 s if they are not."""

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
    """

    since_us: int | None = None
    until_us: int | None = None
    committer: str = ""

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

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
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
        walk = await self._walk(repository, span, after)
        lines: list[tuple[CommitId, Commit]] = []
        size, steps = 0, walk.steps
        while not walk.is_over and len(lines) < limit:
            if size >= _PAGE_BYTES or walk.steps - steps >= _PAGE_STEPS:
                break
            found = await walk.step()
            if found is not None and wanted.admits(found[1]):
                lines.append(found)
                size += _text_bytes(found[1])
        return HistoryPage(lines, self._position(repository, span, walk))

    async def _walk(self, repository: Repository, span: Span, after: CommitId | None) -> Walk:
        """Begins a walk behind the commit `after`."""
        walk = Walk(partial(self._commits.get_many, repository), span)
        held = None if after is None else self._wide.get((repository.instance_uid, span, after))
        await walk.add(held or span.starts)
        if held is None and after is not None:
            commit = await self._commits.get(repository, after)
            await walk.skip(order_of(after, commit))
        return walk

    def _position(self, repository: Repository, span: Span, walk: Walk) -> Position | None:
        """Where a walk stands; None if it is over."""
        if walk.is_over:
            return None
        if walk.width <= FRONTIER_MAX or walk.last is None:
            return Position(walk.frontier())
        self._wide.put((repository.instance_uid, span, walk.last), walk.frontier())
        return Position(span.starts, walk.last)


def _text_bytes(commit: Commit) -> int:
    return sum(len(text.encode()) for text in chain((commit.message,), *commit.metadata))
