"""Repositories: records in the installation's register partition.

A repository's record may be cached although others delete it: deletion first marks the record, then
marks every branch by compare-and-set, then drops. A writer's re-check reads its branch record afresh
and sees the mark, whatever its cached repository record says (design §3).
"""

from __future__ import annotations

from dataclasses import replace

from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, RepositoryId, parse_repository_id
from tarn.kv.keys import InstallationKeys, RepositoryKeys, after_prefix
from tarn.kv.port import Kv, PredicateFailedError, Versioned
from tarn.kv.records import Repository, decode_repository, encode_repository

__all__ = ["Repositories", "repository_not_found"]

_CACHE_SECONDS = 5.0
_CACHED_MAX = 10_000
_NAMESPACE_BYTES_MAX = 512


def repository_not_found(repository_id: str) -> TarnError:
    """The error for a repository that is not there."""
    text = f"repository {repository_id} does not exist"
    return TarnError(Kind.NOT_FOUND, Reason.REPOSITORY_NOT_FOUND, text, repository=repository_id)


class Repositories:
    """Finds, creates and marks repositories."""

    def __init__(
        self,
        kv: Kv,
        keys: InstallationKeys,
        clock: Clock,
        ids: IdSource,
        namespace_prefix: str = "local://",
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._clock = clock
        self._ids = ids
        self._namespace_prefix = namespace_prefix
        self._cached: dict[str, tuple[float, Repository]] = {}
        self._keys_of: dict[str, RepositoryKeys] = {}

    def keys_of(self, repository: Repository) -> RepositoryKeys:
        """The partitions of a repository."""
        uid = repository.instance_uid
        keys = self._keys_of.get(uid)
        if keys is None:
            if len(self._keys_of) >= _CACHED_MAX:
                self._keys_of.clear()
            keys = self._keys_of[uid] = self._keys.of_repository(repository.repository_id, uid)
        return keys

    async def get(self, repository_id: str) -> Repository:
        """A repository, at most five seconds old.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND; INVALID_ARGUMENT for an impossible name.
        """
        found = self._cached.get(repository_id)
        now = self._clock.monotonic()
        if found is not None and now - found[0] < _CACHE_SECONDS:
            return found[1]
        repository, _ = await self.read(parse_repository_id(repository_id))
        if repository.is_deleted:
            raise repository_not_found(repository_id)
        if len(self._cached) >= _CACHED_MAX:
            self._cached.clear()
        self._cached[repository_id] = (now, repository)
        return repository

    def forget(self, repository_id: str) -> None:
        """Drops a cached record: somebody met a sign that it is out of date."""
        self._cached.pop(repository_id, None)

    async def read(self, repository_id: RepositoryId) -> tuple[Repository, Versioned]:
        """The record as it is now, marked or not."""
        key = self._keys.repository(repository_id)
        (found,) = await self._kv.get_many(self._keys.graveler, [key])
        if found is None:
            self.forget(repository_id)
            raise repository_not_found(repository_id)
        return decode_repository(found.value), found

    async def reserve(
        self, repository_id: RepositoryId, storage_namespace: str, default_branch: BranchId
    ) -> Repository:
        """A new record with its namespace reserved for it; not visible before `publish`.

        A namespace serves one repository for good: two would collect each other's blocks as garbage.
        """
        uid = self._ids.uuid7().hex()
        namespace = storage_namespace or f"{self._namespace_prefix}{repository_id}-{uid[-8:]}"
        if len(namespace.encode()) > _NAMESPACE_BYTES_MAX or "://" not in namespace:
            text = f"storage namespace {namespace[:80]!r} is not <scheme>://<name>"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        namespace = namespace.rstrip("/")
        try:
            await self._kv.set_if(
                self._keys.graveler, self._keys.namespace(namespace), uid.encode(), None
            )
        except PredicateFailedError as error:
            text = f"storage namespace {namespace} belongs to another repository"
            raise TarnError(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text) from error
        return Repository(repository_id, uid, namespace, default_branch, self._clock.now_us())

    async def publish(self, repository: Repository) -> None:
        """Makes a reserved repository visible.

        Raises:
            TarnError: REPOSITORY_EXISTS; the reservation is given back.
        """
        key = self._keys.repository(repository.repository_id)
        try:
            await self._kv.set_if(self._keys.graveler, key, encode_repository(repository), None)
        except PredicateFailedError as error:
            await self._release(repository)
            text = f"repository {repository.repository_id} exists already"
            raise TarnError(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text) from error

    async def _release(self, repository: Repository) -> None:
        key = self._keys.namespace(repository.storage_namespace)
        (found,) = await self._kv.get_many(self._keys.graveler, [key])
        if found is not None and found.value == repository.instance_uid.encode():
            await self._kv.delete_if(self._keys.graveler, key, found.predicate)

    async def exists(self, repository_id: RepositoryId) -> bool:
        """Whether the name is taken, also by a repository that is being deleted."""
        key = self._keys.repository(repository_id)
        return (await self._kv.get_many(self._keys.graveler, [key]))[0] is not None

    async def mark_deleted(self, repository_id: RepositoryId) -> Repository:
        """First step of a deletion; repeating it is no error."""
        while True:
            repository, found = await self.read(repository_id)
            self.forget(repository_id)
            if repository.is_deleted:
                return repository
            marked = replace(repository, is_deleted=True)
            key = self._keys.repository(repository_id)
            try:
                await self._kv.set_if(
                    self._keys.graveler, key, encode_repository(marked), found.predicate
                )
            except PredicateFailedError:
                continue
            return marked

    async def remove(self, repository: Repository) -> None:
        """Last step of a deletion: frees the name. The namespace stays reserved: it holds blocks."""
        current, found = await self.read(repository.repository_id)
        if current.instance_uid == repository.instance_uid:
            key = self._keys.repository(repository.repository_id)
            await self._kv.delete_if(self._keys.graveler, key, found.predicate)

    async def page(self, prefix: str, after: str, limit: int) -> list[Repository]:
        """Up to `limit` records in byte order of their names, marked ones too (paging counts them)."""
        start = self._keys.repository(after + "\0" if after >= prefix and after else prefix)
        end = after_prefix(self._keys.repository(prefix))
        rows = await self._kv.scan(self._keys.graveler, start, end, limit)
        return [decode_repository(value) for _, value in rows]
