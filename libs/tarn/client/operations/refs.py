"""Branches and tags: their heads, what a head was before, and branches that were deleted."""

from __future__ import annotations

from datetime import timedelta

from tarn.client.calls import PAGE_SIZE, Calls
from tarn.client.paging import Listing, listing
from tarn.client.values import Branch, DeletedBranch, HeadChange, Tag

__all__ = ["RefOperations"]


class RefOperations(Calls):
    """Creates, moves, lists and deletes branches and tags."""

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
        after: str = "",
        include_hidden: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> Listing[Branch]:
        """Lists the branches in byte order of their names, greater than `after`; by default without those that
        a rule hides."""
        return listing(
            lambda token: self.graveler.list_branches(
                self.call(),
                repository_id,
                prefix=prefix,
                after=after,
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

    def list_reflog(
        self, repository_id: str, branch_id: str, *, page_size: int = PAGE_SIZE
    ) -> Listing[HeadChange]:
        """Lists the changes of a branch's head, newest first; the branch may be deleted.

        The ref `main@{1}` is `old_commit_id` of the first item, `main@{2}` of the second, and so on.
        """
        return listing(
            lambda token: self.graveler.list_reflog(
                self.call(), repository_id, branch_id, page_size=page_size, page_token=token
            ),
            lambda page: map(HeadChange.of, page.entries),
        )

    def list_deleted_branches(
        self, repository_id: str, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[DeletedBranch]:
        """Lists the deleted branches that can be restored, in byte order of their names."""
        return listing(
            lambda token: self.graveler.list_deleted_branches(
                self.call(), repository_id, prefix=prefix, page_size=page_size, page_token=token
            ),
            lambda page: map(DeletedBranch.of, page.branches),
        )

    async def restore_branch(self, repository_id: str, branch_id: str) -> Branch:
        """Creates a deleted branch again, at its last head. Its uncommitted changes are lost.

        A name that is taken raises `BranchExistsError` or `TagExistsError`; a branch whose deletion is not
        recorded, or has expired, `BranchNotFoundError`.
        """
        return Branch.of(await self.graveler.restore_branch(self.call(), repository_id, branch_id))

    async def create_tag(self, repository_id: str, tag_id: str, source_ref: str) -> Tag:
        """Creates a tag on the commit of any ref. A taken name raises `TagExistsError` or `BranchExistsError`."""
        return Tag.of(
            await self.graveler.create_tag(self.call(), repository_id, tag_id, source_ref)
        )

    async def get_tag(self, repository_id: str, tag_id: str) -> Tag:
        """Returns one tag, or raises `TagNotFoundError`."""
        return Tag.of(await self.graveler.get_tag(self.call(), repository_id, tag_id))

    def list_tags(
        self, repository_id: str, *, prefix: str = "", after: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[Tag]:
        """Lists the tags in byte order of their names, which are greater than `after`."""
        return listing(
            lambda token: self.graveler.list_tags(
                self.call(),
                repository_id,
                prefix=prefix,
                after=after,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Tag.of, page.tags),
        )

    async def delete_tag(self, repository_id: str, tag_id: str) -> None:
        """Deletes a tag, or raises `TagNotFoundError`; its commit stays."""
        await self.graveler.delete_tag(self.call(), repository_id, tag_id)


def _seconds(time: timedelta | None) -> int | None:
    return None if time is None else int(time.total_seconds())
