"""Rows that say which paths each commit changed (`tarn.core.listing.changed_paths`).

A row is an aid: it can be computed again from the listings at any time. So it is written beside the operation that made
the commit, without delaying it, and a row that is missing or damaged is no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarn.aio.lru_cache import LruCache
from tarn.aio.task_set import TaskSet
from tarn.core.errors import TarnError
from tarn.core.ids import CommitId
from tarn.core.listing.changed_paths import ChangedPaths
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group, Kv
from tarn.kv.records import Repository
from tarn_graveler.records.repositories import Repositories

__all__ = ["PathRecords"]

_HELD_BYTES_MAX = 64 << 20
_READ_AT_ONCE = 128
"""Rows of one read: up to 64 KiB each, usually some hundred bytes."""


class PathRecords:
    """Reads and writes the rows of one installation."""

    def __init__(self, kv: Kv, repositories: Repositories, tasks: TaskSet) -> None:
        self._kv = kv
        self._repositories = repositories
        self._tasks = tasks
        self._held: LruCache[tuple[str, CommitId], ChangedPaths] = LruCache(
            _HELD_BYTES_MAX, size_of=lambda changed: changed.size_bytes
        )

    def remember(self, repository: Repository, made: Mapping[CommitId, ChangedPaths]) -> None:
        """Keeps the changed paths of commits: in memory now, in the KV soon, if they can be written."""
        for commit_id, changed in made.items():
            self._held.put((repository.instance_uid, commit_id), changed)
        if made:
            self._tasks.spawn(self._write(repository, dict(made)))

    async def _write(self, repository: Repository, made: Mapping[CommitId, ChangedPaths]) -> None:
        groups = []
        for commit_id, changed in made.items():
            key = RepositoryKeys.changed_paths(commit_id)
            groups.append(Group(key, ((key, changed.encode()),)))
        try:
            await self._kv.set_many(self._repositories.keys_of(repository).changed, groups)
        except TarnError:
            return  # the row is computed again when it is needed

    async def get_many(
        self, repository: Repository, commit_ids: Sequence[CommitId]
    ) -> list[ChangedPaths | None]:
        """Returns the changed paths of commits, in the order of their ids; None for a commit without a usable row.

        Raises:
            TarnError: errors of the store.
        """
        uid = repository.instance_uid
        found = {each: self._held.get((uid, each)) for each in commit_ids}
        missing = [each for each, changed in found.items() if changed is None]
        partition = self._repositories.keys_of(repository).changed
        for at in range(0, len(missing), _READ_AT_ONCE):
            ids = missing[at : at + _READ_AT_ONCE]
            keys = [RepositoryKeys.changed_paths(each) for each in ids]
            rows = await self._kv.get_many(partition, keys)
            for commit_id, row in zip(ids, rows, strict=True):
                if row is None:
                    continue
                try:
                    changed = ChangedPaths.decode(row.value)
                except TarnError:
                    continue  # it is computed and written again
                self._held.put((uid, commit_id), changed)
                found[commit_id] = changed
        return [found[each] for each in commit_ids]
