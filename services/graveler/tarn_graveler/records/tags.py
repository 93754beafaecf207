"""Tags: names of commits that never move."""

from __future__ import annotations

from dataclasses import replace

import structlog

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, TagId, parse_new_tag_id, parse_tag_id
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv, PredicateFailedError, Versioned
from tarn.kv.records import RefKind, Repository, Tag, decode_tag, encode_tag
from tarn_graveler.records.expired import ExpiredCommits
from tarn_graveler.records.ref_names import RefNames
from tarn_graveler.records.repositories import Repositories

__all__ = ["Tags", "tag_not_found"]

_log = structlog.get_logger()


def tag_not_found(repository: Repository, tag_id: str) -> TarnError:
    """Returns the error for a tag that does not exist."""
    text = f"tag {tag_id} does not exist in repository {repository.repository_id}"
    return TarnError(Kind.NOT_FOUND, Reason.TAG_NOT_FOUND, text, tag=tag_id)


class Tags:
    """Creates, finds and removes tags."""

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        clock: Clock,
        names: RefNames,
        expired: ExpiredCommits,
    ) -> None:
        self._expired = expired
        self._kv = kv
        self._repositories = repositories
        self._clock = clock
        self._names = names

    async def create(
        self,
        repository: Repository,
        tag_id: TagId,
        commit_id: CommitId,
        *,
        create_time_us: int = 0,
    ) -> Tag:
        """Creates a tag of a commit.

        Args:
            repository: the repository.
            tag_id: the name.
            commit_id: the commit.
            create_time_us: the time to record; 0 for now. With another time the tag comes from a dump, where it had
                this commit, so the commit may be expired.

        Raises:
            TarnError: TAG_EXISTS, BRANCH_EXISTS; EXPIRED_COMMIT; OUTCOME_UNKNOWN.
        """
        tag = Tag(commit_id, create_time_us or self._clock.now_us())

        def encode(nonce: bytes, is_pending: bool) -> bytes:
            return encode_tag(replace(tag, nonce=nonce, is_pending=is_pending))

        async def before_live() -> None:
            if not create_time_us:
                # Under the pending record, which is a root (rule 14).
                await self._expired.refuse(repository, [commit_id])

        # A dump may hold names of older releases.
        name = parse_tag_id(tag_id) if create_time_us else parse_new_tag_id(tag_id)
        nonce = await self._names.create(repository, RefKind.TAG, name, encode, before_live)
        return replace(tag, nonce=nonce)

    async def _read(self, repository: Repository, tag_id: str) -> tuple[Tag, Versioned]:
        partition = self._repositories.keys_of(repository).refs
        keys = [RepositoryKeys.tag(tag_id), RepositoryKeys.CLOSED]
        found, closed = await self._kv.get_many(partition, keys)
        self._repositories.refuse_closed(repository, closed)
        tag = None if found is None else decode_tag(found.value)
        if found is None or tag is None or tag.is_pending:
            raise tag_not_found(repository, tag_id)
        return tag, found

    async def get(self, repository: Repository, tag_id: str) -> Tag:
        """Returns one tag.

        Raises:
            TarnError: TAG_NOT_FOUND.
        """
        tag, _ = await self._read(repository, tag_id)
        return tag

    async def expire(self, repository: Repository, tag_id: TagId, nonce: bytes, rule: str) -> bool:
        """Removes one life of a tag, because a retention rule lets it go; returns whether this call removed it.

        The commit keeps its objects at least until the next plan of an expiry (docs/design/retention.md).

        Args:
            repository: the repository.
            tag_id: the tag.
            nonce: of the life that is over. Another life stays.
            rule: for the log.

        Raises:
            TarnError: OUTCOME_UNKNOWN; UNAVAILABLE.
        """
        partition = self._repositories.keys_of(repository).refs
        try:
            tag, found = await self._read(repository, tag_id)
            if tag.nonce != nonce:
                return False
            await self._kv.delete_if(partition, RepositoryKeys.tag(tag_id), found.predicate)
        except PredicateFailedError:
            return False
        except TarnError as error:
            if error.reason is Reason.TAG_NOT_FOUND:
                return False
            raise
        _log.info(
            "a retention rule deleted a tag",
            repository=repository.repository_id,
            tag=tag_id,
            commit_id=tag.commit_id,
            rule=rule,
        )
        await self._names.release(repository, tag_id)
        return True

    async def delete(self, repository: Repository, tag_id: str) -> None:
        """Removes a tag; its commit stays.

        Raises:
            TarnError: TAG_NOT_FOUND.
        """
        partition = self._repositories.keys_of(repository).refs
        _, found = await self._read(repository, tag_id)
        try:
            await self._kv.delete_if(partition, RepositoryKeys.tag(tag_id), found.predicate)
        except PredicateFailedError as error:
            raise tag_not_found(repository, tag_id) from error
        await self._names.release(repository, tag_id)
