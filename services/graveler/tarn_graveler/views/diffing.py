"""Differences between two commits, and between a branch and its head commit: as lists, and counted by folder."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tarn.block.committed import Committed
from tarn.block.differences import DiffLeft
from tarn.core.branch import Branch
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId
from tarn.core.listing.diff import DIFF_SCHEMA, DiffPage
from tarn.core.listing.folders import FolderPage, FolderTally
from tarn.core.listing.virtual import VirtualBase, VirtualLeft
from tarn.kv.records import Repository
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.reading import Reading
from tarn_graveler.branch.uncommitted import UncommittedChanges
from tarn_graveler.graph.virtual_bases import MergeBases
from tarn_graveler.records.branches import BranchName

__all__ = ["DiffSides", "Diffing", "UncommittedPage"]

_COUNTED_MAX = 100_000
"""Differences of two commits that one page of counts goes through: about 0.1 s of a processor."""
_COUNTING_SECONDS = 2.0
"""No further window after these: ranges that no cache has may come slowly."""
_STAGED_ROWS = 2000
"""Staged rows of one read of a branch, of up to 12 KiB each."""
_STAGED_READS_MAX = 16
"""Reads of one page of counts of uncommitted changes: each reads the branch record afresh."""


@dataclass(frozen=True, slots=True)
class DiffSides:
    """The commits that are compared.

    Attributes:
        left: None is the empty listing.
        right: the newer side.
        bases: none, or several merge bases, whose fold is compared instead of `left`; at the paths that are undecided
            in it, `left` is.
    """

    left: CommitId | None
    right: CommitId
    bases: tuple[CommitId, ...] = ()

    @property
    def shown_left(self) -> CommitId | None:
        """The commit that answers name as the left side: of several merge bases the first."""
        return self.bases[0] if self.bases else self.left


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
        bases: MergeBases,
        layers: Layers,
        reading: Reading,
        committed: Committed,
        changes: UncommittedChanges,
        clock: Clock,
    ) -> None:
        self._bases = bases
        self._layers = layers
        self._reading = reading
        self._committed = committed
        self._changes = changes
        self._clock = clock

    async def from_merge_base(self, repository: Repository, sides: DiffSides) -> DiffSides:
        """Replaces the left side by the merge base of both; by None if the histories are unrelated.

        Raises:
            TarnError: TOO_MANY_MERGE_BASES.
        """
        if sides.left is None:
            return sides
        bases = await self._bases.of(repository, sides.left, sides.right)
        if len(bases) > 1:
            return DiffSides(sides.left, sides.right, bases)
        return DiffSides(bases[0] if bases else None, sides.right)

    async def commits(
        self, repository: Repository, sides: DiffSides, *, prefix: str, after: str, limit: int
    ) -> DiffPage:
        """Returns up to `limit` differences of two commits; ranges that both share are not opened."""
        left, right = await self._listings(repository, sides)
        return await self._committed.differences.page(
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
        """Counts the differences of two commits, by folder; ranges that both share are not opened.

        A page goes through about 100,000 differences, and begins no further step after two seconds.
        """
        end = self._clock.monotonic() + _COUNTING_SECONDS
        left, right = await self._listings(repository, sides)
        return await self._committed.differences.folders(
            repository.storage_namespace,
            left,
            right,
            prefix=prefix,
            delimiter=delimiter,
            after=after,
            limit=limit,
            changes_max=_COUNTED_MAX,
            is_late=lambda: self._clock.monotonic() >= end,
        )

    async def _listings(
        self, repository: Repository, sides: DiffSides
    ) -> tuple[DiffLeft, MetarangeId]:
        right = await self._layers.metarange_of(repository, sides.right)
        if sides.left is None:
            return None, right
        left = await self._layers.metarange_of(repository, sides.left)
        if not sides.bases:
            return left, right
        base = await self._bases.listing(repository, sides.bases)
        assert isinstance(base, VirtualBase), "several merge bases are folded"
        return VirtualLeft(base, left), right

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
