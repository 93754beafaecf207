"""Branches in the order of their commits: which branches share a head, and joins with commits by id."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from tarn.core.branch import Branch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn_graveler.cursors.cursor import Chunk, Source, chunks_of

__all__ = ["BranchHead", "HeadSource"]

_HEADS_MAX = 1_000_000
"""Branches that are sorted in memory: some 200 MB."""

_ID_CHARS = 64


@dataclass(frozen=True, slots=True)
class BranchHead:
    """The head of a branch."""

    commit_id: CommitId
    branch_id: BranchId


class HeadSource:
    """The heads of all branches, sorted by commit and then by branch. A key is both ids, one after the other.

    No row is stored in this order: it would cost every commit a second write. So the first read reads all branches once
    and sorts them; later reads and seeks cost two bisections. Each branch is listed exactly once, with the head that it
    had when it was read, although heads move while they are listed. Pages that read the branches anew could miss one.

    Args:
        branches: the branches by id.
        prefix: only heads whose commit id starts with it.
        heads_max: most heads that are sorted.
    """

    def __init__(
        self,
        branches: Source[BranchId, Branch],
        *,
        prefix: str = "",
        heads_max: int = _HEADS_MAX,
    ) -> None:
        self._branches = branches
        self._prefix = prefix
        self._heads_max = heads_max
        self._keys: list[str] | None = None

    async def read(self, start: str, count: int) -> Chunk[str, BranchHead]:
        """See `Source.read`.

        Raises:
            TarnError: EXHAUSTED: there are too many branches to sort.
        """
        if self._keys is None:
            self._keys = await self._sorted()
        first = bisect_left(self._keys, start)
        keys = self._keys[first : first + count]
        items = [(key, _head_of(key)) for key in keys]
        return Chunk(items, keys[-1] if first + count < len(self._keys) else None)

    async def _sorted(self) -> list[str]:
        keys: list[str] = []
        async for branches in chunks_of(self._branches):
            heads = [branch.commit_id + branch_id for branch_id, branch in branches]
            keys += [key for key in heads if key.startswith(self._prefix)]
            if len(keys) > self._heads_max:
                text = (
                    f"more than {self._heads_max:,} branches cannot be sorted by commit; "
                    "read them in the order of their names, or give a longer prefix of the commit ids"
                )
                raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        keys.sort()
        return keys


def _head_of(key: str) -> BranchHead:
    return BranchHead(CommitId(key[:_ID_CHARS]), BranchId(key[_ID_CHARS:]))
