"""Commits: the heads of all lines of history."""

from __future__ import annotations

import numpy as np

from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn_graveler.iterators.cursor import Chunk, Source, chunks_of

__all__ = ["COMMITS_AT_ONCE", "LineHeadSource"]

COMMITS_AT_ONCE = 100
"""Commits of one read. Messages and metadata have at most 128 KiB each, so a read holds at most 25 MB."""

_FIRST_PARENTS_MAX = 5_000_000
"""First parents held in memory, 32 bytes each."""

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
