"""The collection record of a repository: read, and changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable

from tarn.core.collection import NEVER, Collection
from tarn.kv.collection_records import decode_collection, encode_collection
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv, Versioned
from tarn.kv.records import Repository
from tarn_graveler.records.attempts import change_row
from tarn_graveler.records.repositories import Repositories

__all__ = ["CollectionRecords"]

_TRIES = 16


class CollectionRecords:
    """Reads and changes collection records."""

    def __init__(self, kv: Kv, repositories: Repositories) -> None:
        self._kv = kv
        self._repositories = repositories

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
