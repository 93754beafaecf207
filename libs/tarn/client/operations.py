"""The methods that users of `tarn.client` call. They take and return plain values, without messages of the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from tarn.client.calls import PAGE_SIZE, several
from tarn.client.commits import ChangesPage
from tarn.client.compaction_operations import CompactionOperations
from tarn.client.history_operations import HistoryOperations
from tarn.client.history_values import timestamp_of
from tarn.client.merge_operations import MergeOperations
from tarn.client.object_operations import ObjectOperations
from tarn.client.paging import Listing, listing
from tarn.client.settings_operations import SettingsOperations
from tarn.client.task_operations import TaskOperations
from tarn.client.values import (
    Branch,
    Change,
    Commit,
    NewCommit,
    ObjectVersion,
    Repository,
    Tag,
    User,
)

__all__ = ["Operations"]


def _seconds(time: timedelta | None) -> int | None:
    return None if time is None else int(time.total_seconds())


class Operations(
    SettingsOperations,
    HistoryOperations,
    MergeOperations,
    TaskOperations,
    CompactionOperations,
    ObjectOperations,
):
    """The calls of a client. Every method raises a class of `tarn.client.errors`.

    A method about a repository raises `RepositoryNotFoundError` if it does not exist, and one with a ref raises
    `RefNotFoundError` or `RefAmbiguousError` if the ref names no single commit.

    A *ref* is a branch, a tag, a commit id or a unique prefix of one, or a branch with a moment, such as `main@{2}`;
    optionally with `~N` or `^N`. Listings are read page by page, `page_size` items at a time.
    """

    async def get_caller(self) -> User:
        """Returns the user that this client is logged in as."""
        return User.of((await self.auth.get_caller(self.call())).user)

    # ---- repositories

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
        self, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[Repository]:
        """Lists the repositories that the caller may read, in byte order of their names."""
        return listing(
            lambda token: self.graveler.list_repositories(
                self.call(), prefix=prefix, page_size=page_size, page_token=token
            ),
            lambda page: map(Repository.of, page.repositories),
        )

    async def delete_repository(self, repository_id: str) -> None:
        """Deletes a repository's metadata: all its branches, tags and uncommitted changes."""
        await self.graveler.delete_repository(self.call(), repository_id)

    # ---- branches

    async def create_branch(
        self,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        time_to_live: timedelta | None = None,
    ) -> Branch:
        """Creates a branch at the commit of any ref. Uncommitted changes of that ref are not copied.

        It expires `time_to_live` after now, in whole seconds, and is deleted a day later; None: never.

        Raises:
            BranchExistsError, TagExistsError: the name is taken.
            InvalidArgumentError: `time_to_live` is not one minute to ten years.
        """
        return Branch.of(
            await self.graveler.create_branch(
                self.call(),
                repository_id,
                branch_id,
                source_ref,
                time_to_live_s=_seconds(time_to_live),
            )
        )

    async def set_branch_expiry(
        self, repository_id: str, branch_id: str, time_to_live: timedelta | None
    ) -> Branch:
        """Lets a branch expire `time_to_live` after now, in whole seconds, or never (None); returns the branch.

        Raises:
            BranchNotFoundError: the branch does not exist.
            BranchProtectedError: the caller may not delete the branch.
            InvalidArgumentError: it is the default branch, or `time_to_live` is not one minute to ten years.
        """
        return Branch.of(
            await self.graveler.set_branch_expiry(
                self.call(), repository_id, branch_id, _seconds(time_to_live)
            )
        )

    async def get_branch(self, repository_id: str, branch_id: str) -> Branch:
        """Returns one branch, or raises `BranchNotFoundError`."""
        return Branch.of(await self.graveler.get_branch(self.call(), repository_id, branch_id))

    def list_branches(
        self,
        repository_id: str,
        *,
        prefix: str = "",
        include_hidden: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> Listing[Branch]:
        """Lists the branches in byte order of their names; by default without those that a rule hides."""
        return listing(
            lambda token: self.graveler.list_branches(
                self.call(),
                repository_id,
                prefix=prefix,
                page_size=page_size,
                page_token=token,
                include_hidden=include_hidden,
            ),
            lambda page: map(Branch.of, page.branches),
        )

    async def delete_branch(self, repository_id: str, branch_id: str) -> None:
        """Deletes a branch and its uncommitted changes; its commits stay.

        Raises:
            BranchNotFoundError: the branch does not exist.
            InvalidArgumentError: it is the default branch.
        """
        await self.graveler.delete_branch(self.call(), repository_id, branch_id)

    async def reset_branch(
        self,
        repository_id: str,
        branch_id: str,
        *,
        prefix: str | None = None,
        path: str | None = None,
    ) -> None:
        """Discards uncommitted changes of a branch: all, or those of a prefix or of one path; of a part all or none.

        It discards the changes that were acknowledged before the call, and perhaps some that are under way. After
        `UnknownOutcomeError`, look before you reset again: a late repetition discards newer changes.

        Args:
            repository_id: the repository.
            branch_id: the branch.
            prefix: only changes of paths that begin with it; not empty.
            path: only the change of this path; not together with `prefix`.
        """
        await self.graveler.reset_branch(
            self.call(), repository_id, branch_id, prefix=prefix, path=path
        )

    async def move_branch(
        self,
        repository_id: str,
        branch_id: str,
        target_ref: str,
        *,
        expected_commit_id: str,
        force: bool = False,
    ) -> Branch:
        """Moves the head of a branch to the commit of a ref (a hard reset); returns the branch.

        Args:
            repository_id: the repository.
            branch_id: the branch.
            target_ref: the ref whose commit becomes the head.
            expected_commit_id: the head that the caller knows; another head raises `RefMovedError`.
            force: discard uncommitted changes; otherwise they raise `BranchDirtyError`.
        """
        return Branch.of(
            await self.graveler.move_branch(
                self.call(),
                repository_id,
                branch_id,
                target_ref,
                expected_commit_id=expected_commit_id,
                force=force,
            )
        )

    # ---- tags

    async def create_tag(self, repository_id: str, tag_id: str, source_ref: str) -> Tag:
        """Creates a tag on the commit of any ref. A taken name raises `TagExistsError` or `BranchExistsError`."""
        return Tag.of(
            await self.graveler.create_tag(self.call(), repository_id, tag_id, source_ref)
        )

    async def get_tag(self, repository_id: str, tag_id: str) -> Tag:
        """Returns one tag, or raises `TagNotFoundError`."""
        return Tag.of(await self.graveler.get_tag(self.call(), repository_id, tag_id))

    def list_tags(
        self, repository_id: str, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[Tag]:
        """Lists the tags in byte order of their names."""
        return listing(
            lambda token: self.graveler.list_tags(
                self.call(), repository_id, prefix=prefix, page_size=page_size, page_token=token
            ),
            lambda page: map(Tag.of, page.tags),
        )

    async def delete_tag(self, repository_id: str, tag_id: str) -> None:
        """Deletes a tag, or raises `TagNotFoundError`; its commit stays."""
        await self.graveler.delete_tag(self.call(), repository_id, tag_id)

    # ---- commits

    async def create_commit(
        self,
        repository_id: str,
        branch_id: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        allow_empty: bool = False,
    ) -> NewCommit:
        """Commits the uncommitted changes of a branch.

        Raises:
            NothingToCommitError: there are no changes, and `allow_empty` is False.
            BranchResetError: a reset ran at the same time, and left none of the changes; no commit was made.
            BranchNotFoundError: the branch does not exist.
        """
        made = await self.graveler.create_commit(
            self.call(),
            repository_id,
            branch_id,
            message,
            metadata=metadata,
            allow_empty=allow_empty,
        )
        return NewCommit(
            Commit.of(made.commit), made.added_count, made.changed_count, made.removed_count
        )

    async def get_commit(self, repository_id: str, ref: str) -> Commit:
        """Returns the commit that a ref names."""
        return Commit.of(await self.graveler.get_commit(self.call(), repository_id, ref))

    def list_commits(
        self,
        repository_id: str,
        ref: str,
        *,
        first_parent: bool = False,
        exclude_ref: str = "",
        symmetric: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        committer: str = "",
        paths: Sequence[str] = (),
        prefixes: Sequence[str] = (),
        page_size: int = PAGE_SIZE,
    ) -> Listing[Commit]:
        """Lists the history of a ref: no commit before one of its descendants, otherwise newest first.

        All pages are about the commits that the first one found. A page may be empty before the end.

        Args:
            repository_id: the repository.
            ref: the ref.
            first_parent: follow first parents only, without merged commits.
            exclude_ref: leave out this ref's history, as `tarn log EXCLUDE..REF` does; empty: nothing.
            symmetric: with `exclude_ref`, the commits that only one of both has, as `tarn log A...B` does.
            since: only commits of this time or later. The time needs a zone.
            until: only commits before this time. The time needs a zone.
            committer: only commits of this user.
            paths: only commits that changed one of these paths, or of `prefixes`.
            prefixes: only commits that changed a path that begins with one of these, or one of `paths`.
            page_size: commits of a page.
        """
        begin, end = timestamp_of(since), timestamp_of(until)
        paths, prefixes = several(paths, "paths"), several(prefixes, "prefixes")
        return listing(
            lambda token: self.graveler.list_commits(
                self.call(),
                repository_id,
                ref,
                first_parent=first_parent,
                exclude_ref=exclude_ref,
                symmetric=symmetric,
                since=begin,
                until=end,
                committer=committer,
                paths=paths,
                prefixes=prefixes,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Commit.of, page.commits),
        )

    def diff_refs(
        self,
        repository_id: str,
        left_ref: str,
        right_ref: str,
        *,
        from_merge_base: bool = False,
        prefix: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[Change]:
        """Lists the changes from the left ref to the right one, in byte order of the paths.

        With `from_merge_base`, from the merge base of both to the right one: the changes that a merge of right into
        left would bring. All pages compare the commits that the first one read.
        """
        return listing(
            lambda token: self.graveler.diff_refs(
                self.call(),
                repository_id,
                left_ref,
                right_ref,
                from_merge_base=from_merge_base,
                prefix=prefix,
                page_size=page_size,
                page_token=token,
            ),
            _changes,
        )

    def diff_uncommitted(
        self, repository_id: str, branch_id: str, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[Change]:
        """Lists the uncommitted changes of a branch, in byte order of the paths."""
        return listing(
            lambda token: self.graveler.diff_uncommitted(
                self.call(),
                repository_id,
                branch_id,
                prefix=prefix,
                page_size=page_size,
                page_token=token,
            ),
            _changes,
        )


def _changes(page: ChangesPage) -> list[Change]:
    version = ObjectVersion.of_optional
    rows = zip(page.paths, page.left_entries, page.right_entries, strict=True)
    return [Change(path, version(path, left), version(path, right)) for path, left, right in rows]
