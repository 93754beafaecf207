"""Differences between two commits, and between a branch and its head commit: as lists, and counted by folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tarn.block.committed import Committed
from tarn.core.branch import Branch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.diff import DIFF_SCHEMA, DiffPage
from tarn.core.listing.folders import FolderPage, FolderTally
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.reading import Reading
from tarn_graveler.branch.records import BranchName
from tarn_graveler.branch.uncommitted import UncommittedChanges
from tarn_graveler.history.commits import Commits
from tarn_graveler.history.merge_base import merge_base

__all__ = ["DiffSides", "Diffing", "UncommittedPage"]

_STAGED_ROWS = 2000
"""Staged rows of one read of a branch, of up to 12 KiB each."""
_STAGED_READS_MAX = 16
"""Reads of one page of counts of uncommitted changes: each reads the branch record afresh."""


@dataclass(frozen=True, slots=True)
class DiffSides:
    """The commits that are compared; a left side of None is the empty listing."""

    left: CommitId | None
    right: CommitId


@dataclass(frozen=True, slots=True)
class UncommittedPage(DiffPage):
    """A page of uncommitted changes.

    Attributes:
        head: the commit that they change.
    """

    head: CommitId


class Diffing:
    """Compares listings page by page, in byte order of the paths."""

    def __init__(
        self,
        commits: Commits,
        layers: Layers,
        reading: Reading,
        committed: Committed,
        changes: UncommittedChanges,
    ) -> None:
        self._commits = commits
        self._layers = layers
        self._reading = reading
        self._committed = committed
        self._changes = changes

    async def from_merge_base(self, repository: Repository, sides: DiffSides) -> DiffSides:
        """Replaces the left side by the merge base of both; by None if the histories are unrelated."""
        if sides.left is None:
            return sides
        read = partial(self._commits.get_many, repository)
        return DiffSides(await merge_base(read, sides.left, sides.right), sides.right)

    async def commits(
        self, repository: Repository, sides: DiffSides, *, prefix: str, after: str, limit: int
    ) -> DiffPage:
        """Returns up to `limit` differences of two commits; ranges that both share are not opened."""
        left, right = await self._listings(repository, sides)
        return await self._committed.diff(
            repository.storage_namespace, left, right, prefix=prefix, after=after, limit=limit
        )

    async def folders(
        self,
        repository: Repository,
        sides: DiffSides,
        *,
        prefix: str,
        delimiter: str,
        after: str,
        limit: int,
    ) -> FolderPage:
        """Counts the differences of two commits, by folder; ranges that both share are not opened."""
        left, right = await self._listings(repository, sides)
        return await self._committed.diff_folders(
            repository.storage_namespace,
            left,
            right,
            prefix=prefix,
            delimiter=delimiter,
            after=after,
            limit=limit,
        )

    async def _listings(
        self, repository: Repository, sides: DiffSides
    ) -> tuple[MetarangeId | None, MetarangeId]:
        left = None
        if sides.left is not None:
            left = await self._layers.metarange_of(repository, sides.left)
        return left, await self._layers.metarange_of(repository, sides.right)

    async def uncommitted(
        self,
        name: BranchName,
        *,
        prefix: str,
        after: str,
        limit: int,
        head: CommitId | None = None,
    ) -> UncommittedPage:
        """Returns up to `limit` uncommitted changes of a branch.

        Staged rows that change nothing are skipped, so a page may be short although more follow.

        Args:
            name: the branch.
            prefix: only paths that start with it.
            after: only greater paths.
            limit: most changes.
            head: the head that earlier pages compared with; None for the first page.

        Raises:
            TarnError: REF_MOVED if the branch has another head; as `Reading.by_record`.
        """

        async def read(branch: Branch) -> UncommittedPage:
            if head not in (None, branch.commit_id):
                raise _moved(name, branch.commit_id)
            page = await self._changes.page(
                name, branch, branch.tokens, prefix=prefix, after=after, limit=limit
            )
            return UncommittedPage(
                page.paths, page.lefts, page.rights, page.next_after, branch.commit_id
            )

        return await self._reading.by_record(name, read)

    async def uncommitted_folders(
        self,
        name: BranchName,
        *,
        prefix: str,
        delimiter: str,
        after: str,
        limit: int,
        head: CommitId | None = None,
    ) -> tuple[CommitId, FolderPage]:
        """Returns the head of a branch, and its uncommitted changes counted by folder.

        A page reads up to 32,000 staged rows. Arguments and errors as `uncommitted`.
        """
        tally = FolderTally(prefix, delimiter, limit)
        upto: str | None = after
        for _ in range(_STAGED_READS_MAX):
            assert upto is not None
            page = await self.uncommitted(
                name, prefix=prefix, after=upto, limit=_STAGED_ROWS, head=head
            )
            head = page.head
            if tally.add(_batch(page)):
                return head, tally.page(tally.last)
            upto = page.next_after
            if upto is None:
                break
        assert head is not None, "at least one page was read"
        return head, tally.page(upto)


def _batch(page: DiffPage) -> pa.RecordBatch:
    """The changes of a page as a batch of `DIFF_SCHEMA`."""
    sides = [[packed or None for packed in side] for side in (page.lefts, page.rights)]
    columns = [pa.array(page.paths, pa.string()), *(pa.array(side, pa.binary()) for side in sides)]
    return pa.RecordBatch.from_arrays(columns, schema=DIFF_SCHEMA)


def _moved(name: BranchName, head: CommitId) -> TarnError:
    text = (
        f"branch {name.branch_id} moved to commit {head} between two pages of its uncommitted changes; "
        "list them again from the first page"
    )
    return TarnError(Kind.CONFLICT, Reason.REF_MOVED, text, ref=name.branch_id, commit_id=head)
