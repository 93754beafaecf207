"""Commits: the heads of all lines of history, and the ancestors of a commit."""

from __future__ import annotations

from functools import partial

import numpy as np

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.kv.records import Repository
from tarn_graveler.cursors.cursor import Chunk, Source, behind, chunks_of
from tarn_graveler.graph.walk import Order, Span, Walk, order_of
from tarn_graveler.records.commits import Commits

__all__ = ["COMMITS_AT_ONCE", "AncestorSource", "LineHeadSource"]

COMMITS_AT_ONCE = 100
"""Commits of one read. Messages and metadata have at most 128 KiB each, so a read holds at most 25 MB."""

_FIRST_PARENTS_MAX = 5_000_000
"""First parents held in memory, 32 bytes each."""

_STEPS_MAX = 20_000
"""Commits that one read of ancestors passes: about 0.2 s if they are cached."""

_ID = "S32"


class LineHeadSource:
    """The commits that are the first parent of no commit, in the order of their ids: the heads of all lines of history,
    also of those that no ref leads to.

    The first read gathers the first parents of all commits; only then are commits listed. So every commit that existed
    before is listed, or first parents lead to it from a listed one, although commits are made meanwhile. In the other
    order, a commit whose child is made between the two reads could be missed together with its child.

    Args:
        every: all commits by id.
        listed: the commits by id that may be listed, such as those with a prefix.
        first_parents_max: most first parents that are held.
    """

    def __init__(
        self,
        every: Source[CommitId, Commit],
        listed: Source[CommitId, Commit],
        *,
        first_parents_max: int = _FIRST_PARENTS_MAX,
    ) -> None:
        self._every = every
        self._listed = listed
        self._first_parents_max = first_parents_max
        self._first_parents: np.ndarray | None = None  # Invariant: sorted.

    async def read(self, start: str, count: int) -> Chunk[CommitId, Commit]:
        """See `Source.read`.

        Raises:
            TarnError: EXHAUSTED: there are more commits than can be compared.
        """
        if self._first_parents is None:
            self._first_parents = await self._gather()
        chunk = await self._listed.read(start, count)
        ids = np.frombuffer(b"".join(bytes.fromhex(each) for each, _ in chunk.items), _ID)
        at = np.searchsorted(self._first_parents, ids)
        known = np.append(self._first_parents, np.zeros(1, _ID))
        is_parent = (known[at] == ids).tolist()
        items = [item for item, parent in zip(chunk.items, is_parent, strict=True) if not parent]
        return Chunk(items, chunk.last)

    async def _gather(self) -> np.ndarray:
        found = bytearray()
        async for commits in chunks_of(self._every):
            for _, commit in commits:
                found += bytes.fromhex(commit.parents[0]) if commit.parents else b""
            if len(found) > 32 * self._first_parents_max:
                text = (
                    f"the heads of more than {self._first_parents_max:,} commits cannot be found at once; "
                    "read all commits by id instead"
                )
                raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        ids = np.frombuffer(found, _ID)
        ids.sort()
        return ids


class AncestorSource:
    """The commits of a part of history in the order of a walk (`tarn_graveler.graph.walk`).

    History can only be walked from its starts. So a read continues the walk of the last one; a seek forward walks to
    the commit; a seek backward begins again. The key to seek is the id of a commit of the repository: if it is not
    listed, the first commit behind its place in the order is next.

    Args:
        commits: reads commits.
        repository: their repository.
        span: the part of history.
        prefix: only commits whose id starts with it.
    """

    def __init__(
        self, commits: Commits, repository: Repository, span: Span, *, prefix: str = ""
    ) -> None:
        self._commits = commits
        self._repository = repository
        self._span = span
        self._prefix = prefix
        self._walk: Walk | None = None

    async def read(self, start: str, count: int) -> Chunk[CommitId, Commit]:
        """See `Source.read`.

        Raises:
            TarnError: COMMIT_NOT_FOUND, also for a `start` that is no commit; EXHAUSTED for a history that is too
                wide; CORRUPT.
        """
        walk, self._walk = self._walk, None  # a walk that failed is not continued
        if walk is None or walk.last is None or start != behind(walk.last):
            walk = await self._at(walk, start)
        items: list[tuple[CommitId, Commit]] = []
        count, steps_max = min(count, COMMITS_AT_ONCE), walk.steps + _STEPS_MAX
        while not walk.is_over and len(items) < count and walk.steps < steps_max:
            passed = await walk.step()
            if passed is not None and passed[0].startswith(self._prefix):
                items.append(passed)
        self._walk = walk
        return Chunk(items, None if walk.is_over else walk.last)

    async def _at(self, walk: Walk | None, start: str) -> Walk:
        """Returns a walk whose next commit is the first one at a place or behind it."""
        target = await self._order(start.removesuffix("\0")) if start else None
        if walk is not None and walk.last is not None:
            passed = await self._order(walk.last)
            if target is None or target <= passed:
                walk = None
        if walk is None:
            walk = Walk(partial(self._commits.get_many, self._repository), self._span)
            await walk.add(self._span.starts)
        if target is not None:
            await walk.skip(target, inclusive=start.endswith("\0"))
        return walk

    async def _order(self, commit_id: str) -> Order:
        commit = await self._commits.get(self._repository, CommitId(commit_id))
        return order_of(CommitId(commit_id), commit)
