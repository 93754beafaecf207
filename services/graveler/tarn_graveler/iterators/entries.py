"""Entries: the rows that are staged on a branch, and the listing of a ref."""

from __future__ import annotations

from dataclasses import dataclass

from tarn.core.branch import Branch
from tarn.core.listing.pages import PageRequest
from tarn.kv.keys import PATHS_END, after_prefix, path_key, paths_of
from tarn.kv.port import Kv
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.reading import Reading
from tarn_graveler.cursors.cursor import Chunk
from tarn_graveler.records.branches import BranchName

__all__ = ["EntrySource", "StagedRow", "StagedSource"]

_ROWS_AT_ONCE = 1000
"""Rows of each token that one read takes; entries have at most 12 KiB each, and usually some 100 bytes."""


@dataclass(frozen=True, slots=True)
class StagedRow:
    """A row of a token.

    Attributes:
        depth: 0 for the staging token, n for the nth sealed token.
        packed: an entry, which names its block (`tarn.core.entry.unpack`), or a tombstone.
    """

    depth: int
    packed: bytes


class StagedSource:
    """The rows of all tokens of a branch, by path: for each path its rows, newest first.

    A path has a row in each token that it was written to. Readers see the newest one. The older ones matter as well: a
    commit that is under way takes those of the tokens that it sealed. The listings beneath the tokens, compacted and
    committed, are not included.

    Each read obeys rule 2. A row that a commit takes before its path is read is not listed, and is in the branch's head
    by then.

    Args:
        kv: the store.
        reading: reads by a record that is in force.
        layers: finds the partitions of tokens.
        name: the branch.
        prefix: only paths that start with it.
    """

    def __init__(
        self, kv: Kv, reading: Reading, layers: Layers, name: BranchName, *, prefix: str = ""
    ) -> None:
        self._kv = kv
        self._reading = reading
        self._layers = layers
        self._name = name
        self._prefix = prefix
        self._end = after_prefix(path_key(prefix)) if prefix else PATHS_END

    async def read(self, start: str, count: int) -> Chunk[str, tuple[StagedRow, ...]]:
        """See `Source.read`. Reads up to `count` rows of each token.

        Raises:
            TarnError: BRANCH_NOT_FOUND; UNAVAILABLE.
        """
        first, count = path_key(max(start, self._prefix)), min(count, _ROWS_AT_ONCE)

        async def read(branch: Branch) -> Chunk[str, tuple[StagedRow, ...]]:
            return await self._rows(branch, first, count)

        return await self._reading.by_record(self._name, read)

    async def _rows(
        self, branch: Branch, first: bytes, count: int
    ) -> Chunk[str, tuple[StagedRow, ...]]:
        found: dict[str, list[StagedRow]] = {}
        may_follow = False
        for depth, token in enumerate(branch.tokens):
            partition = self._layers.partition(self._name, token)
            rows = await self._kv.scan(partition, first, self._end, count)
            paths = paths_of([key for key, _ in rows])
            for path, (_, packed) in zip(paths, rows, strict=True):
                found.setdefault(path, []).append(StagedRow(depth, packed))
            may_follow = may_follow or len(rows) == count
        # All rows of these paths were read: in each token, the first `count` paths of all are among its own first ones.
        listed = sorted(found)[:count]
        may_follow = may_follow or len(listed) < len(found)
        items = [(path, tuple(found[path])) for path in listed]
        return Chunk(items, listed[-1] if may_follow else None)


class EntrySource:
    """The listing of a ref: the newest entry of each path, staged or committed. Each read obeys rule 2.

    Args:
        reading: reads listings.
        repository: the repository.
        ref: a branch, or any expression that names a commit; each read resolves it.
        prefix: only paths that start with it.
    """

    def __init__(
        self, reading: Reading, repository: Repository, ref: str, *, prefix: str = ""
    ) -> None:
        self._reading = reading
        self._repository = repository
        self._ref = ref
        self._prefix = prefix

    async def read(self, start: str, count: int) -> Chunk[str, bytes]:
        """See `Source.read`. Values are packed entries.

        Raises:
            TarnError: REF_NOT_FOUND, BRANCH_NOT_FOUND; UNAVAILABLE.
        """
        request = PageRequest(prefix=self._prefix, from_path=start, limit=count)
        page = await self._reading.page(self._repository, self._ref, request)
        return Chunk(list(zip(page.paths, page.entries, strict=True)), page.next_after)
