"""The collection record of a repository: read, and changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable

from tarn.core.collection import Collection
from tarn.kv.collection_records import collection_register
from tarn.kv.port import Kv
from tarn.kv.records import Repository
from tarn.kv.register import Register
from tarn_graveler.records.repositories import Repositories

__all__ = ["CollectionRecords"]


class CollectionRecords:
    """Reads and changes collection records."""

    def __init__(self, kv: Kv, repositories: Repositories) -> None:
        self._kv = kv
        self._repositories = repositories

    async def read(self, repository: Repository) -> Collection:
        """Returns the record, by a read that is sent now."""
        return await self._register(repository).read()

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
        return await self._register(repository).change(decide)

    def _register(self, repository: Repository) -> Register[Collection]:
        keys = self._repositories.keys_of(repository)
        return collection_register(self._kv, keys, repository.repository_id)
