"""Commit objects: immutable, so a record stays valid in a cache for ever."""

from __future__ import annotations

from collections.abc import Sequence

from tarn.aio.bounded_map import BoundedMap
from tarn.block.port import BlockKey, BlockStore
from tarn.core.commit import Commit, commit_id_of, commit_path, to_json
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.kv.commit_records import checked_commit, encode_commit
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Group, Kv, OutcomeUnknownError
from tarn.kv.records import Repository
from tarn_graveler.cursors.rows import RowSource
from tarn_graveler.records.repositories import Repositories

__all__ = ["Commits", "commit_not_found"]

_CACHED_MAX = 50_000
_READ_AT_ONCE = 500
"""Commits of one read of the KV; their messages and metadata have at most 128 KiB each, and usually some hundred
bytes."""


def commit_not_found(repository: Repository, commit_id: str) -> TarnError:
    """Returns the error for a commit that does not exist."""
    text = f"commit {commit_id} does not exist in repository {repository.repository_id}"
    return TarnError(Kind.NOT_FOUND, Reason.COMMIT_NOT_FOUND, text, commit=commit_id)


class Commits:
    """Stores and finds commits."""

    def __init__(self, kv: Kv, blocks: BlockStore, repositories: Repositories) -> None:
        self._kv = kv
        self._blocks = blocks
        self._repositories = repositories
        self._cached: BoundedMap[tuple[str, str], Commit] = BoundedMap(_CACHED_MAX)

    async def add(self, repository: Repository, commit: Commit) -> CommitId:
        """Stores a commit durably, beside its ranges and in the KV, before any ref names it.

        Raises:
            TarnError: UNAVAILABLE, also if the row may be written, now or later: no ref names it, and its
                content is the same at any time.
        """
        commit_id = commit_id_of(commit)
        key = BlockKey(repository.storage_namespace, commit_path(commit_id))
        await self._blocks.put(key, to_json(commit))
        row = RepositoryKeys.commit(commit_id)
        partition = self._repositories.keys_of(repository).commits
        try:
            (failed,) = await self._kv.set_many(
                partition, [Group(row, ((row, encode_commit(commit)),))]
            )
            if failed is not None:
                raise failed
        except OutcomeUnknownError as error:
            text = (
                f"commit {commit_id} could not be stored, and no branch names it: {error.message}"
            )
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error
        self._remember(repository, commit_id, commit)
        return commit_id

    async def add_rows(self, repository: Repository, commits: Sequence[Commit]) -> None:
        """Stores the rows of commits whose objects are in the bucket, for a restore.

        Raises:
            TarnError: UNAVAILABLE: rows may be missing; repeat the call.
        """
        groups = []
        for commit in commits:
            row = RepositoryKeys.commit(commit_id_of(commit))
            groups.append(Group(row, ((row, encode_commit(commit)),)))
        partition = self._repositories.keys_of(repository).commits
        for error in filter(None, await self._kv.set_many(partition, groups)):
            text = f"some of {len(commits)} commits could not be stored: {error.message}"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error

    def _remember(self, repository: Repository, commit_id: str, commit: Commit) -> None:
        self._cached.put((repository.instance_uid, commit_id), commit)

    async def get(self, repository: Repository, commit_id: CommitId) -> Commit:
        """Returns one commit.

        Raises:
            TarnError: COMMIT_NOT_FOUND.
        """
        cached = self._cached.get((repository.instance_uid, commit_id))
        if cached is not None:
            return cached
        (commit,) = await self._read(repository, [commit_id])
        return commit

    async def get_many(
        self, repository: Repository, commit_ids: Sequence[CommitId]
    ) -> list[Commit]:
        """Returns commits in the order of their ids. Those that are not cached are read in batches.

        Raises:
            TarnError: COMMIT_NOT_FOUND, for the first one that does not exist.
        """
        uid = repository.instance_uid
        found = {each: self._cached.get((uid, each)) for each in commit_ids}
        missing = [each for each, commit in found.items() if commit is None]
        for at in range(0, len(missing), _READ_AT_ONCE):
            ids = missing[at : at + _READ_AT_ONCE]
            found.update(zip(ids, await self._read(repository, ids), strict=True))
        return [commit for each in commit_ids if (commit := found[each]) is not None]

    async def _read(self, repository: Repository, commit_ids: Sequence[CommitId]) -> list[Commit]:
        partition = self._repositories.keys_of(repository).commits
        keys = [RepositoryKeys.commit(commit_id) for commit_id in commit_ids]
        commits = []
        rows = await self._kv.get_many(partition, keys)
        for commit_id, row in zip(commit_ids, rows, strict=True):
            if row is None:
                raise commit_not_found(repository, commit_id)
            commit = checked_commit(commit_id, row.value)
            self._remember(repository, commit_id, commit)
            commits.append(commit)
        return commits

    def unknown(self, repository: Repository, commit_ids: Sequence[CommitId]) -> list[CommitId]:
        """Returns those of the commits that are not cached: `get_many` would read them."""
        uid = repository.instance_uid
        return [each for each in commit_ids if self._cached.get((uid, each)) is None]

    async def page(
        self, repository: Repository, after: str, limit: int
    ) -> list[tuple[CommitId, bytes]]:
        """Returns the ids and rows of the first `limit` commits whose ids are greater than `after`, in order; fewer at
        the end. The rows are neither decoded nor checked; `keep` does that."""
        partition = self._repositories.keys_of(repository).commits
        root = RepositoryKeys.commit("")
        start = RepositoryKeys.commit(after) + b"\0" if after else root
        rows = await self._kv.scan(partition, start, after_prefix(root), limit)
        return [(CommitId(key[len(root) :].decode()), row) for key, row in rows]

    def keep(self, repository: Repository, commit_id: CommitId, row: bytes) -> None:
        """Caches a commit that `page` returned, so that it is not read.

        Raises:
            TarnError: CORRUPT: the row is not that of the commit with this id.
        """
        self._remember(repository, commit_id, checked_commit(commit_id, row))

    async def by_prefix(self, repository: Repository, prefix: str) -> CommitId | None:
        """Returns the only commit whose id starts with `prefix`; None if there is none.

        Raises:
            TarnError: REF_AMBIGUOUS when there are several.
        """
        found = await self.with_prefix(repository, prefix, 2)
        if len(found) > 1:
            text = f"several commits start with {prefix}"
            raise TarnError(Kind.INVALID, Reason.REF_AMBIGUOUS, text, ref=prefix)
        return found[0] if found else None

    async def with_prefix(self, repository: Repository, prefix: str, limit: int) -> list[CommitId]:
        """Returns the first `limit` commits whose ids start with `prefix`, in order."""
        partition = self._repositories.keys_of(repository).commits
        root = RepositoryKeys.commit("")
        rows = RowSource(self._kv, partition, root, lambda name, _: (name, None), prefix=prefix)
        return [CommitId(name) for name, _ in (await rows.read("", limit)).items]
