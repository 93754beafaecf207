"""Operations of `tarn.client` on history: reflogs, deleted branches, annotations, and short forms of differences."""

from __future__ import annotations

from tarn.client.calls import PAGE_SIZE, Calls
from tarn.client.commits import ChangesPage
from tarn.client.diffs import summary_of
from tarn.client.history_values import (
    Annotation,
    ChangeSummary,
    DeletedBranch,
    HeadChange,
    PathChange,
)
from tarn.client.paging import Listing, listing
from tarn.client.values import Branch

__all__ = ["HistoryOperations"]


class HistoryOperations(Calls):
    """Shows how branches and paths came to be, and restores branches."""

    # ---- reflog

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

    # ---- paths

    def annotate(
        self,
        repository_id: str,
        ref: str,
        *,
        prefix: str = "",
        after: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[Annotation]:
        """Lists the paths of a ref's commit, in byte order, each with the commit that gave it its content.

        Args:
            repository_id: the repository.
            ref: the ref; uncommitted changes of a branch have no part.
            prefix: only paths that begin with it.
            after: only paths after this one.
            page_size: paths of a page, at most 1,000.
        """
        return listing(
            lambda token: self.graveler.annotate_paths(
                self.call(),
                repository_id,
                ref,
                prefix=prefix,
                after=after,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Annotation.of, page.lines),
        )

    # ---- differences without versions

    def diff_names(
        self,
        repository_id: str,
        left_ref: str,
        right_ref: str,
        *,
        from_merge_base: bool = False,
        prefix: str = "",
        page_size: int = PAGE_SIZE,
    ) -> Listing[PathChange]:
        """As `diff_refs`, without the versions of the objects: shorter answers."""
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
                names_only=True,
            ),
            _names,
        )

    def diff_uncommitted_names(
        self, repository_id: str, branch_id: str, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[PathChange]:
        """As `diff_uncommitted`, without the versions of the objects."""
        return listing(
            lambda token: self.graveler.diff_uncommitted(
                self.call(),
                repository_id,
                branch_id,
                prefix=prefix,
                page_size=page_size,
                page_token=token,
                names_only=True,
            ),
            _names,
        )

    async def summarize_diff(
        self,
        repository_id: str,
        left_ref: str,
        right_ref: str,
        *,
        from_merge_base: bool = False,
        prefix: str = "",
        delimiter: str = "",
        page_size: int = PAGE_SIZE,
    ) -> ChangeSummary:
        """Counts the changes from the left ref to the right one, by folder if there is a delimiter.

        It reads all pages, each with a time limit of its own, and holds one line for each folder. All pages compare
        the commits that the first one read.

        Args:
            repository_id: the repository.
            left_ref: the ref before the changes.
            right_ref: the ref after the changes.
            from_merge_base: count from the merge base of both: the changes that a merge of right into left would bring.
            prefix: only paths that begin with it.
            delimiter: paths that are equal up to the first one after the prefix are one folder; empty: no folders.
            page_size: folders of a page, at most 1,000.
        """
        found = await summary_of(
            lambda token: self.graveler.summarize_diff(
                self.call(),
                repository_id,
                left_ref,
                right_ref,
                from_merge_base=from_merge_base,
                prefix=prefix,
                delimiter=delimiter,
                page_size=page_size,
                page_token=token,
            )
        )
        return ChangeSummary.of(found)

    async def summarize_uncommitted(
        self,
        repository_id: str,
        branch_id: str,
        *,
        prefix: str = "",
        delimiter: str = "",
        page_size: int = PAGE_SIZE,
    ) -> ChangeSummary:
        """Counts the uncommitted changes of a branch; the arguments are those of `summarize_diff`.

        If the branch gets another head meanwhile, raises `RefMovedError`.
        """
        found = await summary_of(
            lambda token: self.graveler.summarize_uncommitted(
                self.call(),
                repository_id,
                branch_id,
                prefix=prefix,
                delimiter=delimiter,
                page_size=page_size,
                page_token=token,
            )
        )
        return ChangeSummary.of(found)


def _names(page: ChangesPage) -> list[PathChange]:
    return [PathChange.of(path, kind) for path, kind in zip(page.paths, page.kinds, strict=True)]
