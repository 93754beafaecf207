"""Tags: names of commits that never move."""

from __future__ import annotations

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, TagId
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Kv, PredicateFailedError
from tarn.kv.records import Repository, Tag, decode_tag, encode_tag
from tarn_graveler.repositories import Repositories

__all__ = ["Tags", "tag_not_found"]


def tag_not_found(repository: Repository, tag_id: str) -> TarnError:
    """The error for a tag that is not there."""
    text = f"tag {tag_id} does not exist in repository {repository.repository_id}"
    return TarnError(Kind.NOT_FOUND, Reason.TAG_NOT_FOUND, text, tag=tag_id)


class Tags:
    """Creates, finds and removes tags."""

    def __init__(self, kv: Kv, repositories: Repositories, clock: Clock) -> None:
        self._kv = kv
        self._repositories = repositories
        self._clock = clock

    async def create(self, repository: Repository, tag_id: TagId, commit_id: CommitId) -> Tag:
        """Names a commit.

        Raises:
            TarnError: TAG_EXISTS.
        """
        tag = Tag(commit_id, self._clock.now_us())
        partition = self._repositories.keys_of(repository).refs
        try:
            await self._kv.set_if(partition, RepositoryKeys.tag(tag_id), encode_tag(tag), None)
        except PredicateFailedError as error:
            text = f"tag {tag_id} exists already in {repository.repository_id}"
            raise TarnError(Kind.ALREADY_EXISTS, Reason.TAG_EXISTS, text) from error
        return tag

    async def get(self, repository: Repository, tag_id: str) -> Tag:
        """One tag.

        Raises:
            TarnError: TAG_NOT_FOUND.
        """
        partition = self._repositories.keys_of(repository).refs
        (found,) = await self._kv.get_many(partition, [RepositoryKeys.tag(tag_id)])
        if found is None:
            raise tag_not_found(repository, tag_id)
        return decode_tag(found.value)

    async def exists(self, repository: Repository, tag_id: str) -> bool:
        """Whether there is a tag of this name."""
        partition = self._repositories.keys_of(repository).refs
        return (await self._kv.get_many(partition, [RepositoryKeys.tag(tag_id)]))[0] is not None

    async def page(
        self, repository: Repository, prefix: str, after: str, limit: int
    ) -> list[tuple[TagId, Tag]]:
        """Up to `limit` tags in byte order of their names."""
        start = RepositoryKeys.tag(after + "\0" if after >= prefix and after else prefix)
        end = after_prefix(RepositoryKeys.tag(prefix))
        rows = await self._kv.scan(self._repositories.keys_of(repository).refs, start, end, limit)
        skip = len(RepositoryKeys.tag(""))
        return [(TagId(key[skip:].decode()), decode_tag(value)) for key, value in rows]

    async def delete(self, repository: Repository, tag_id: str) -> None:
        """Removes a tag; its commit stays.

        Raises:
            TarnError: TAG_NOT_FOUND.
        """
        partition = self._repositories.keys_of(repository).refs
        key = RepositoryKeys.tag(tag_id)
        (found,) = await self._kv.get_many(partition, [key])
        if found is None:
            raise tag_not_found(repository, tag_id)
        try:
            await self._kv.delete_if(partition, key, found.predicate)
        except PredicateFailedError as error:
            raise tag_not_found(repository, tag_id) from error
