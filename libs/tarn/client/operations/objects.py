"""Entries of objects; their bytes travel over S3."""

from __future__ import annotations

from collections.abc import Sequence

from tarn.client.calls import PAGE_SIZE, Calls
from tarn.client.entries import ListingPage
from tarn.client.errors import TarnCallError
from tarn.client.paging import Listing, listing
from tarn.client.raising import call_error
from tarn.client.values import CommonPrefix, ObjectVersion
from tarn.rpc.wire.subject import PATH, REF, REPOSITORY

__all__ = ["ObjectOperations"]

_DELETE_MAX = 1000


class ObjectOperations(Calls):
    """Looks objects up, lists and deletes them."""

    async def get_object(self, repository_id: str, ref: str, path: str) -> ObjectVersion:
        """Returns size, time, ETag and metadata of an object; without one, raises `EntryNotFoundError`."""
        found = await self.graveler.lookup(self.call(), repository_id, ref, path)
        return ObjectVersion.of(path, found.entry)

    def list_objects(
        self,
        repository_id: str,
        ref: str,
        *,
        prefix: str = "",
        delimiter: str = "",
        after: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[ObjectVersion | CommonPrefix]:
        """Lists the objects of a ref in byte order of their paths, uncommitted ones of a branch included.

        Args:
            repository_id: the repository.
            ref: the ref.
            prefix: list only paths that start with it.
            delimiter: roll up paths that are equal up to the first delimiter after the prefix, as S3 does.
            after: list only paths and common prefixes greater than this.
            page_size: items of a page, at most 1,000.
        """
        return listing(
            lambda token: self.graveler.list_entries(
                self.call(),
                repository_id,
                ref,
                prefix=prefix,
                delimiter=delimiter,
                after=after,
                page_size=page_size,
                page_token=token,
            ),
            _objects,
        )

    async def delete_object(self, repository_id: str, branch_id: str, path: str) -> None:
        """Deletes an object of a branch. A path that holds nothing is no error."""
        await self.graveler.unstage(self.call(), repository_id, branch_id, path)

    async def delete_objects(
        self, repository_id: str, branch_id: str, paths: Sequence[str]
    ) -> dict[str, TarnCallError]:
        """Deletes objects of a branch, 1,000 in a call; returns the errors of those that could not be deleted.

        An error of a whole call, such as a branch that does not exist, is raised; earlier calls keep their effect.
        """
        failed = {}
        for start in range(0, len(paths), _DELETE_MAX):
            part = paths[start : start + _DELETE_MAX]
            outcomes = await self.graveler.unstage_many(self.call(), repository_id, branch_id, part)
            for path, error in zip(part, outcomes, strict=True):
                if error is not None:
                    about = {REPOSITORY: repository_id, REF: branch_id, PATH: path}
                    failed[path] = call_error(error, about)
        return failed


def _objects(page: ListingPage) -> list[ObjectVersion | CommonPrefix]:
    rows = zip(page.paths, page.entries, strict=True)
    return [
        ObjectVersion.of(path, packed) if packed else CommonPrefix(path) for path, packed in rows
    ]
