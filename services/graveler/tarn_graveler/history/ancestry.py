"""Walks history backwards from a commit.

Order: by generation, newest first, then by time and id. A commit never precedes one of its descendants,
whatever their clocks said. The walk keeps only the frontier in memory: O(width of the history).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import chain

from tarn.core.commit import Commit
from tarn.core.ids import CommitId
from tarn.kv.records import Repository
from tarn_graveler.history.commits import Commits

__all__ = ["History", "HistoryPage"]

_FRONTIER_MAX = 32
"""Greatest number of frontier commits in a page token, so that the token is short enough for a URL."""

_PAGE_BYTES = 4 << 20
"""Bytes of messages and metadata (at most 128 KiB for each commit) after which a page ends."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of commits, and the ids from which the next page starts (none at the end)."""

    commits: list[tuple[CommitId, Commit]]
    frontier: tuple[CommitId, ...]


class History:
    """Walks commit graphs."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def page(
        self,
        repository: Repository,
        start: tuple[CommitId, ...],
        limit: int,
        *,
        first_parent: bool,
    ) -> HistoryPage:
        """Returns up to `limit` commits reachable from `start`; fewer if their messages and metadata are
        large.

        `start` holds no ancestor of another start, unless an earlier page ended there.
        """
        heap: list[tuple[int, int, CommitId, Commit]] = []
        seen: set[CommitId] = set()

        async def push(commit_id: CommitId) -> None:
            if commit_id not in seen:
                seen.add(commit_id)
                commit = await self._commits.get(repository, commit_id)
                entry = (-commit.generation, -commit.create_time_us, commit_id, commit)
                heapq.heappush(heap, entry)

        for commit_id in start:
            await push(commit_id)
        lines: list[tuple[CommitId, Commit]] = []
        size = 0
        while heap and len(lines) < limit and size < _PAGE_BYTES:
            _, _, commit_id, commit = heapq.heappop(heap)
            lines.append((commit_id, commit))
            size += sum(len(text.encode()) for text in chain((commit.message,), *commit.metadata))
            for parent in commit.parents[:1] if first_parent else commit.parents:
                await push(parent)
        return HistoryPage(lines, tuple(entry[2] for entry in sorted(heap))[:_FRONTIER_MAX])
