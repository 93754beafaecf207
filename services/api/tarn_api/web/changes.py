"""Pages of changes: what is uncommitted, what a commit did, what differs between two refs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tarn.client.commits import ChangesPage
from tarn.core.entry import size_of
from tarn_api.operations.paging import filled
from tarn_api.web.place import PAGE_SIZE

__all__ = ["Change", "changes_of"]


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
