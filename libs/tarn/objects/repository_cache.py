"""Caches the instance and namespace of repositories for a few seconds.

Only facts that cannot change in a repository's life are cached: its instance and its namespace. Refs are
never cached here (docs/design/hot-path.md, "What may be cached"). A cached record is wrong if the repository
was deleted and re-created. Then graveler refuses to stage an entry, because its instance is a different
one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.aio.ttl_cache import TtlCache
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock
from tarn.core.errors import Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn.telemetry.meters import Meters

__all__ = ["CachedRepository", "RepositoryCache"]

_TTL_S = 5.0
_REPOSITORIES_MAX = 1024


@dataclass(frozen=True, slots=True)
class CachedRepository:
    """One incarnation of a repository and the namespace of its blocks."""

    repository_id: str
    instance_uid: str
    namespace: str


class RepositoryCache:
    """A small cache over `GravelerClient.get_repository`.

    Absence is not cached: a repository can be used as soon as it is created.

    Attributes:
        kept: returns a repository that is in the cache, without the context of a call; None for any other.
    """

    def __init__(self, graveler: GravelerClient, clock: Clock, *, ttl_s: float = _TTL_S) -> None:
        self._graveler = graveler
        self._clock = clock
        self._ttl_s = ttl_s
        self._repositories: TtlCache[str, CachedRepository] = TtlCache(clock, _REPOSITORIES_MAX)
        self._misses = 0
        self.kept = self._repositories.get

    def register(self, meters: Meters) -> None:
        """Registers the counts of look-ups."""
        meters.sample(
            "cache.lookups", lambda: self._repositories.hits, cache="repository", outcome="hit"
        )
        meters.sample("cache.lookups", lambda: self._misses, cache="repository", outcome="miss")

    async def get(self, call: Call, repository_id: str) -> CachedRepository:
        """Returns a repository, possibly from the cache.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND; DENIED if the caller may not read the repository.
        """
        kept = self.kept(repository_id)
        if kept is not None:
            return kept
        self._misses += 1
        return await self.fresh(call, repository_id)

    async def refuse_unknown(self, call: Call, repository_id: str) -> None:
        """Raises TarnError REPOSITORY_NOT_FOUND if there is no such repository. Whoever may not read it is not told,
        and a failure of the look-up says nothing."""
        try:
            await self.get(call, repository_id)
        except TarnError as error:
            if error.reason is Reason.REPOSITORY_NOT_FOUND:
                raise

    async def fresh(self, call: Call, repository_id: str) -> CachedRepository:
        """Returns the repository without using the cache. Raises as `get`."""
        self._repositories.pop(repository_id)
        begin = self._clock.monotonic()
        found = await self._graveler.get_repository(call, repository_id)
        repository = CachedRepository(repository_id, found.instance_uid, found.storage_namespace)
        self._repositories.put(repository_id, repository, begin + self._ttl_s)
        return repository
