"""The collection record of a repository: read, and changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable

from tarn.core.clock import Clock
from tarn.core.collection import NEVER, Collection, CollectionLimits
from tarn.kv.collection_records import decode_collection, encode_collection
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv, Versioned
from tarn.kv.records import Repository
from tarn_graveler.branch.attempts import change_row
from tarn_graveler.collection.erased import ErasedAddresses
from tarn_graveler.collection.expired import ExpiredCommits
from tarn_graveler.collection.history_pages import HistoryPages
from tarn_graveler.collection.listings_in_use import ListingsInUse
from tarn_graveler.collection.roots import Roots
from tarn_graveler.collection.staged_rows import StagedRows
from tarn_graveler.history.commits import Commits
from tarn_graveler.reads.coverage import ReadObjects
from tarn_graveler.repository.records import Repositories

__all__ = ["Collections"]

_TRIES = 16


class Collections:
    """Reads and changes collection records.

    Attributes:
        limits: the times of collections.
        reads: the journal of reads.
        roots: reads the roots.
        history: reads the commits and refs to which retention rules apply.
        in_use: looks for listings that are needed.
        erased: the rows of erased addresses.
        staged: reads staged rows with their paths.
    """

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        commits: Commits,
        expired: ExpiredCommits,
        reads: ReadObjects,
        clock: Clock,
        limits: CollectionLimits,
    ) -> None:
        self._kv = kv
        self._repositories = repositories
        self.limits = limits
        self.reads = reads
        self.roots = Roots(kv, repositories, expired, reads, clock)
        self.history = HistoryPages(kv, repositories, expired)
        self.in_use = ListingsInUse(kv, repositories, commits)
        self.erased = ErasedAddresses(kv, repositories, clock, limits)
        self.staged = StagedRows(kv, repositories)

    async def read(self, repository: Repository) -> Collection:
        """Returns the record, by a read that is sent now."""
        partition = self._repositories.keys_of(repository).refs
        (found,) = await self._kv.get_many(partition, [RepositoryKeys.COLLECTION])
        return _decoded(found)

    async def change(
        self, repository: Repository, decide: Callable[[Collection], Collection]
    ) -> Collection:
        """Changes the record; returns it as it was written.

        Args:
            repository: the repository.
            decide: returns the next record; called again on a newer record, and on its own result after a lost answer.

        Raises:
            TarnError: as `decide`; TOO_MANY_RETRIES; OUTCOME_UNKNOWN.
        """

        def changed(found: Versioned | None) -> tuple[Collection, bytes | None]:
            current = _decoded(found)
            after = decide(current)
            return after, None if after == current else encode_collection(after)

        return await change_row(
            self._kv,
            self._repositories.keys_of(repository).refs,
            RepositoryKeys.COLLECTION,
            changed,
            tries=_TRIES,
            text=f"the collection record of repository {repository.repository_id} changed {_TRIES} times; try again",
        )


def _decoded(found: Versioned | None) -> Collection:
    return NEVER if found is None else decode_collection(found.value)
