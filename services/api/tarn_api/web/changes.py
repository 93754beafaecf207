"""Pages of changes: what is uncommitted, what a commit did, what differs between two refs, and counts by folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tarn.client.commits import ChangesPage
from tarn.client.diffs import DiffSummary
from tarn.core.entry import size_of
from tarn_api.context import Context
from tarn_api.operations.paging import filled
from tarn_api.web.place import PAGE_SIZE

__all__ = [
    "Change",
    "Comparison",
    "Folders",
    "changes_of",
    "comparison_of",
    "counts_of",
    "folders_of",
]

_CALLS_MAX: Final = 10
"""Calls for one page: a folder may have many changes."""
_SECONDS_MAX: Final = 3.0
"""No further call after these: a call opens many ranges, and people wait for the page."""


@dataclass(frozen=True, slots=True)
class Change:
    """A path that differs.

    Attributes:
        path: of the object.
        kind: `added`, `changed` or `deleted`.
        before, after: bytes of the object on both sides; None: there is none.
    """

    path: str
    kind: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A page of what differs between two refs.

    Attributes:
        changes: by path.
        more: the last path if more follow, otherwise empty.
        counts: by folder; of the first page only.
    """

    changes: list[Change]
    more: str
    counts: DiffSummary

    @property
    def has_folders(self) -> bool:
        """Whether a folder has changes, so that its line tells more than those of the paths."""
        return any(each.is_prefix for each in self.counts.folders)


async def changes_of(
    fetch: Callable[[int, str], Awaitable[ChangesPage]], after: str
) -> tuple[list[Change], str]:
    """Returns a page of changes, and its last path if more follow, otherwise an empty text.

    Args:
        fetch: reads changes behind `after`; takes the most paths and a page token.
        after: the last path of the page before.
    """

    async def read(size: int, token: str) -> tuple[list[Change], str]:
        page = await fetch(size, token)
        found = [
            _change(path, left, right)
            for path, left, right in zip(
                page.paths, page.left_entries, page.right_entries, strict=True
            )
        ]
        return found, page.next_page_token

    found, has_more = await filled(read, PAGE_SIZE, lambda each: each.path, after)
    return found, found[-1].path if has_more else ""


def _change(path: str, left: bytes, right: bytes) -> Change:
    kind = "added" if not left else "changed" if right else "deleted"
    return Change(path, kind, size_of(left) if left else None, size_of(right) if right else None)


async def comparison_of(
    context: Context, repository: str, left: str, right: str, prefix: str, after: str
) -> Comparison:
    """Returns a page of what differs from the left ref to the right one, below a prefix.

    Args:
        context: of the request.
        repository: the repository.
        left: the ref before the changes.
        right: the ref after them.
        prefix: begins the paths.
        after: the last path of the page before; empty: this is the first page, which has counts.
    """
    call = context.read()

    async def fetch(size: int, token: str) -> ChangesPage:
        return await context.graveler.diff_refs(
            call,
            repository,
            left,
            right,
            prefix=prefix,
            after=after,
            page_size=size,
            page_token=token,
        )

    changes, more = await changes_of(fetch, after)
    counts = DiffSummary()
    if not after:
        counts = await counts_of(context, repository, left, right, prefix)
    return Comparison(changes, more, counts)


async def counts_of(
    context: Context, repository: str, left: str, right: str, prefix: str = ""
) -> DiffSummary:
    """Returns the counts of the first page by folder; `has_more` if there are more pages. Arguments as `folders_of`."""
    page = await folders_of(context, repository, left, right, prefix=prefix)
    page.found.has_more = bool(page.more)
    return page.found


@dataclass(frozen=True, slots=True)
class Folders:
    """A page of changes, counted by folder.

    Attributes:
        found: the lines, and the counts of all changes of this page. The last folder may go on on the next page.
        left, right: the commits before and after the changes.
        more: the token of the next page; empty: this is the last one.
    """

    found: DiffSummary
    left: str
    right: str
    more: str


async def folders_of(
    context: Context,
    repository: str,
    left: str,
    right: str,
    *,
    from_merge_base: bool = False,
    prefix: str = "",
    token: str = "",
) -> Folders:
    """Returns what differs between two refs, folder by folder. A page ends after some folders, calls or seconds,
    however many changes there are.

    Args:
        context: of the request.
        repository: the repository.
        left: the ref before the changes.
        right: the ref after them.
        from_merge_base: compare the merge base of both with the right one: what a merge of right into left brings.
        prefix: only paths below it; ends with a slash.
        token: of the page; empty for the first one.
    """
    call, found, before, after = context.read(), DiffSummary(), left, right
    clock = context.backend.clock
    end = clock.monotonic() + _SECONDS_MAX
    for _ in range(_CALLS_MAX):
        page = await context.graveler.summarize_diff(
            call,
            repository,
            left,
            right,
            from_merge_base=from_merge_base,
            prefix=prefix,
            delimiter="/",
            page_size=PAGE_SIZE,
            page_token=token,
        )
        found.add(page)
        before, after = page.left_commit_id or left, page.right_commit_id
        token = page.next_page_token
        if not token or len(found.folders) >= PAGE_SIZE or clock.monotonic() >= end:
            break
    return Folders(found, before, after, token)
