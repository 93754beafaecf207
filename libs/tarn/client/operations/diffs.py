"""Differences of refs, and the uncommitted changes of branches."""

from __future__ import annotations

from tarn.client.calls import PAGE_SIZE, Calls
from tarn.client.commits import ChangesPage
from tarn.client.diffs import summary_of
from tarn.client.paging import Listing, listing
from tarn.client.values import Change, ChangeSummary, ObjectVersion, PathChange

__all__ = ["DiffOperations"]


class DiffOperations(Calls):
    """Lists and counts changes."""

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


def _changes(page: ChangesPage) -> list[Change]:
    version = ObjectVersion.of_optional
    rows = zip(page.paths, page.left_entries, page.right_entries, strict=True)
    return [Change(path, version(path, left), version(path, right)) for path, left, right in rows]


def _names(page: ChangesPage) -> list[PathChange]:
    return [PathChange.of(path, kind) for path, kind in zip(page.paths, page.kinds, strict=True)]
