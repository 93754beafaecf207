"""Expired commits of a repository: their rows, and the looks that keep them from coming back (rule 14).

An expired commit keeps its row, its metarange and its ranges, but its entries are no roots of a collection any more.
A collection writes the rows of commits that expire *before* it reads the roots. An operation that makes entries of an
old commit live again makes them a root first: by a pending ref, a pin, or the row of a new commit. *Then* it looks for
the expired row of the old one (`refuse`). So one of the two sees the other (docs/design/retention.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tarn.aio.ttl_cache import TtlCache
from tarn.core.clock import Clock
from tarn.core.expiry import Expiry, expired_commit
from tarn.core.ids import CommitId
from tarn.kv.collection_records import decode_expiry, encode_expiry
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group, Kv
from tarn.kv.records import Repository
from tarn.kv.register import require_written
from tarn_graveler.records.repositories import Repositories

__all__ = ["READ_CACHE_SECONDS", "ExpiredCommits"]

READ_CACHE_SECONDS: Final = 30.0
"""How long a replica may still read a commit that has expired. Its blocks stay for the grace time of a sweep."""
_EXPIRED_SECONDS: Final = 86_400.0
_CACHED_MAX: Final = 50_000
_LIVE: Final = Expiry("", 0)


class ExpiredCommits:
    """Reads and writes the rows of expired commits."""

    def __init__(self, kv: Kv, repositories: Repositories, clock: Clock) -> None:
        self._kv = kv
        self._repositories = repositories
        self._clock = clock
        # By repository instance and commit.
        self._known: TtlCache[tuple[str, str], Expiry] = TtlCache(clock, _CACHED_MAX)

    async def find(
        self, repository: Repository, commit_ids: Sequence[CommitId]
    ) -> dict[CommitId, Expiry]:
        """Returns those of some commits that are expired, by a read that is sent now."""
        if not commit_ids:
            return {}
        partition = self._repositories.keys_of(repository).commits
        begin = self._clock.monotonic()
        rows = await self._kv.get_many(partition, list(map(RepositoryKeys.expired, commit_ids)))
        found: dict[CommitId, Expiry] = {}
        for commit_id, row in zip(commit_ids, rows, strict=True):
            if row is not None:
                found[commit_id] = decode_expiry(row.value)
                place = (repository.instance_uid, commit_id)
                self._known.put(place, found[commit_id], begin + _EXPIRED_SECONDS)
        return found

    async def refuse(self, repository: Repository, commit_ids: Iterable[CommitId]) -> None:
        """Refuses an operation that takes entries from these commits, by a read that is sent now.

        Call it only after the operation has made the entries that it takes a root (rule 14).

        Raises:
            TarnError: EXPIRED_COMMIT.
        """
        for commit_id, expiry in (await self.find(repository, sorted(set(commit_ids)))).items():
            raise expired_commit(commit_id, expiry)

    async def refuse_read(self, repository: Repository, commit_id: CommitId) -> None:
        """Refuses to read objects of an expired commit. Its knowledge may be `READ_CACHE_SECONDS` old.

        Only reads of objects are remembered: a commit that was merely shown is looked up again.

        Raises:
            TarnError: EXPIRED_COMMIT.
        """
        known = self._known.get((repository.instance_uid, commit_id))
        if known is None:
            begin = self._clock.monotonic()
            await self.refuse(repository, [commit_id])
            place = (repository.instance_uid, commit_id)
            self._known.put(place, _LIVE, begin + READ_CACHE_SECONDS)
        elif known is not _LIVE:
            raise expired_commit(commit_id, known)

    async def expire(
        self, repository: Repository, expiries: Sequence[tuple[CommitId, Expiry]]
    ) -> int:
        """Writes the rows of commits that expire; returns their number. One that is expired keeps its row.

        Raises:
            TarnError: UNAVAILABLE: some rows may be missing, or may be written later; repeat the call.
        """
        known = await self.find(repository, [commit_id for commit_id, _ in expiries])
        groups = []
        for commit_id, expiry in expiries:
            if commit_id not in known:
                row = RepositoryKeys.expired(commit_id)
                groups.append(Group(row, ((row, encode_expiry(expiry)),)))
                self._known.pop((repository.instance_uid, commit_id))
        if groups:
            partition = self._repositories.keys_of(repository).commits
            require_written(await self._kv.set_many(partition, groups))
        return len(groups)
