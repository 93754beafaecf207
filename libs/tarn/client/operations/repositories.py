"""Repositories, and the settings of one: its rules and metadata have one ETag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tarn.client.calls import PAGE_SIZE, Calls, several
from tarn.client.paging import Listing, listing
from tarn.client.raising import call_error
from tarn.client.values import Protection, Repository, RepositorySettings
from tarn.core.errors import TarnError
from tarn.rpc.wire.subject import REPOSITORY

__all__ = ["RepositoryOperations"]


class RepositoryOperations(Calls):
    """Creates, lists and deletes repositories, and changes their settings."""

    async def create_repository(
        self, repository_id: str, *, storage_namespace: str = "", default_branch_id: str = ""
    ) -> Repository:
        """Creates a repository with an empty first commit and a default branch.

        Args:
            repository_id: 3 to 63 characters of `a-z 0-9 -`.
            storage_namespace: place of its blocks; empty: Tarn chooses one.
            default_branch_id: empty: `main`.

        Raises:
            RepositoryExistsError: the name or the storage namespace is taken.
        """
        return Repository.of(
            await self.graveler.create_repository(
                self.call(),
                repository_id,
                storage_namespace=storage_namespace,
                default_branch_id=default_branch_id,
            )
        )

    async def get_repository(self, repository_id: str) -> Repository:
        """Returns one repository."""
        return Repository.of(await self.graveler.get_repository(self.call(), repository_id))

    def list_repositories(
        self, *, prefix: str = "", after: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[Repository]:
        """Lists the repositories that the caller may read, in byte order of their names, greater than `after`."""
        return listing(
            lambda token: self.graveler.list_repositories(
                self.call(), prefix=prefix, after=after, page_size=page_size, page_token=token
            ),
            lambda page: map(Repository.of, page.repositories),
        )

    async def delete_repository(self, repository_id: str) -> None:
        """Deletes a repository's metadata: all its branches, tags and uncommitted changes."""
        await self.graveler.delete_repository(self.call(), repository_id)

    async def get_settings(self, repository_id: str) -> RepositorySettings:
        """Returns the rules, the metadata and the default branch of a repository."""
        sent = await self.graveler.get_settings(self.call(), repository_id)
        try:
            return RepositorySettings.of(sent)
        except TarnError as error:
            raise call_error(error, {REPOSITORY: repository_id}) from error

    async def set_rules(
        self,
        repository_id: str,
        *,
        protections: Iterable[Protection],
        hidden_patterns: Iterable[str],
        if_match: str,
    ) -> str:
        """Replaces all protections and all hidden patterns; returns the new ETag.

        Other replicas apply the rules to writes at most five seconds later; to all other changes, at once.

        Args:
            repository_id: the repository.
            protections: at most 100, each with another pattern.
            hidden_patterns: of the branches that listings omit, at most 100.
            if_match: ETag of the settings that this change replaces.
        """
        return await self.graveler.set_rules(
            self.call(),
            repository_id,
            protections=[each.message() for each in protections],
            hidden_patterns=several(hidden_patterns, "hidden_patterns"),
            if_match=if_match,
        )

    async def set_read_only(
        self, repository_id: str, read_only: bool, *, if_match: str | None = None
    ) -> str:
        """Makes a repository read-only, or writable again; returns the new ETag.

        Args:
            repository_id: the repository.
            read_only: True: nothing but the rules can be changed.
            if_match: ETag of the settings that this change replaces; None: whatever they are.
        """
        return await self.graveler.set_read_only(
            self.call(), repository_id, read_only, if_match=_optional(if_match, "if_match")
        )

    async def set_metadata(
        self, repository_id: str, metadata: Mapping[str, str], *, if_match: str
    ) -> str:
        """Replaces all metadata of a repository; returns the new ETag.

        Args:
            repository_id: the repository.
            metadata: at most 100 names, of at most 256 bytes; all together at most 16 KiB.
            if_match: ETag of the settings that this change replaces.
        """
        return await self.graveler.set_metadata(
            self.call(), repository_id, metadata, if_match=if_match
        )

    async def set_default_branch(
        self, repository_id: str, branch_id: str, *, expected_branch_id: str | None = None
    ) -> str:
        """Makes an existing branch the default branch; returns the former one.

        Args:
            repository_id: the repository.
            branch_id: the new default branch.
            expected_branch_id: the present one, else `SettingsChangedError`; None: whichever it is.
        """
        expected = _optional(expected_branch_id, "expected_branch_id")
        return await self.graveler.set_default_branch(
            self.call(), repository_id, branch_id, expected_branch_id=expected
        )


def _optional(condition: str | None, name: str) -> str:
    """Returns a condition as the rpc takes it.

    An empty text would mean "no condition" there; a program that computes an empty one means something else.
    """
    if condition == "":
        raise ValueError(f"{name} is empty; leave it out for no condition")
    return condition or ""
