"""Reads commits for a search that goes far back: with pages of all commits, instead of one request for each.

Only a commit knows its parents, so a search along a line of commits waits for one read after the other: 100,000 for a
branch that is as many commits behind. Their rows lie in one partition, by ids that are hashes, hundreds to a page. So a
search that had `_READS_ALONE` reads scans one page of that partition before each further read. It keeps the rows
without decoding them, and needs no read for a commit that it holds.

- The search costs at most one scan more for each read; a line of n commits in a repository of as many takes some
  n / 500 requests instead of n.
- Commits never change, and a row is checked against its id when it is used, so it does not matter that the pages are
  no snapshot. A commit that is on none of them is read by its id, as before.
- All searches of a process hold `HELD_BYTES_MAX` together, and one of them scans at a time. Beyond that a search reads
  as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tarn.core.commit import Commit
from tarn.core.ids import CommitId
from tarn.kv.records import Repository
from tarn_graveler.graph.merge_base import ReadCommits
from tarn_graveler.records.commits import Commits

__all__ = ["HELD_BYTES_MAX", "ReadAhead"]

HELD_BYTES_MAX: Final = 64 << 20
_READS_ALONE: Final = 64
"""Reads of a search before its first scan: most searches end earlier."""
_ROW_BYTES: Final = 200
"""What an empty row takes in memory, with its id and its place."""
_PAGE_ROWS_FIRST: Final = 100
"""A commit has at most 128 KiB, so the first page holds at most 13 MB."""
_PAGE_ROWS_MAX: Final = 500
_PAGE_BYTES: Final = 1 << 20
"""Later pages have as many rows as took about this much before."""


class ReadAhead:
    """The searches of one process. Belongs to one event loop.

    Attributes:
        held_bytes: memory of the rows that all searches hold.
        is_scanning: whether one of them waits for a page.
    """

    def __init__(self, commits: Commits) -> None:
        self.held_bytes = 0
        self.is_scanning = False
        self._commits = commits

    @property
    def has_room(self) -> bool:
        """Whether a search may scan now."""
        return not self.is_scanning and self.held_bytes < HELD_BYTES_MAX

    @contextmanager
    def search(self, repository: Repository) -> Iterator[ReadCommits]:
        """Yields what reads the commits of one search; at the end of the block it lets go of all rows.

        Raises:
            TarnError: from the reads: as `Commits.get_many`.
        """
        search = _Search(self, self._commits, repository)
        try:
            yield search.read
        finally:
            search.let_go()


class _Search:
    """One search, by one task."""

    def __init__(self, ahead: ReadAhead, commits: Commits, repository: Repository) -> None:
        self._ahead = ahead
        self._commits = commits
        self._repository = repository
        self._rows: dict[CommitId, bytes] = {}
        self._held_bytes = 0
        self._reads = 0
        # The id after which the next page begins; None: there are no more.
        self._after: str | None = ""
        self._page_rows = _PAGE_ROWS_FIRST

    async def read(self, commit_ids: Sequence[CommitId]) -> list[Commit]:
        """Returns commits in the order of their ids."""
        if self._needs_request(commit_ids):
            self._reads += 1
            is_far = self._reads > _READS_ALONE
            if is_far and self._after is not None and self._ahead.has_room:
                await self._scan(self._after)
        for each in commit_ids:
            row = self._rows.pop(each, None)
            if row is not None:
                self._hold(-len(row) - _ROW_BYTES)
                self._commits.keep(self._repository, each, row)
        return await self._commits.get_many(self._repository, commit_ids)

    def _needs_request(self, commit_ids: Sequence[CommitId]) -> bool:
        unknown = self._commits.unknown(self._repository, commit_ids)
        return any(each not in self._rows for each in unknown)

    async def _scan(self, after: str) -> None:
        count = self._page_rows
        self._ahead.is_scanning = True
        try:
            page = await self._commits.page(self._repository, after, count)
        finally:
            self._ahead.is_scanning = False
        self._after = page[-1][0] if len(page) == count else None
        size = 0
        for commit_id, row in page:
            self._rows[commit_id] = row
            size += len(row) + _ROW_BYTES
        self._hold(size)
        if page:
            self._page_rows = max(1, min(_PAGE_ROWS_MAX, _PAGE_BYTES * len(page) // size))

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        self._ahead.held_bytes += size

    def let_go(self) -> None:
        """Lets go of all rows."""
        self._rows.clear()
        self._hold(-self._held_bytes)
