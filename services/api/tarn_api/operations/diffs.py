"""Differences: of two refs, and the uncommitted changes of a branch; rolled up by a delimiter if one is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from tarn.client.commits import ChangesPage
from tarn.core.entry import identity_of, unpack
from tarn_api.context import Context
from tarn_api.operations import shapes
from tarn_api.operations.paging import AMOUNT_MAX, amount_of, pagination
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = ["diff_branch", "diff_refs"]

_LAST: Final = "\U0010ffff"
"""Follows every other character."""

Fetch = Callable[[int, str, str], Awaitable[ChangesPage]]
"""Reads changes: takes the most paths, the path after which they begin, and a page token."""


async def diff_refs(context: Context, at: op.DiffRefs) -> schemas.DiffList:
    """Returns the changes from the left ref, or from its merge base with the right one, to the right one.

    From the merge base, they are those that a merge would make: a path that the left ref has changed to another object
    is a conflict, and one that it has changed to the same object is no difference.
    """
    call = context.read()

    def between(left: str, right: str) -> Fetch:
        async def fetch(size: int, after: str, token: str) -> ChangesPage:
            return await context.graveler.diff_refs(
                call,
                at.repository,
                left,
                right,
                prefix=at.prefix or "",
                after=after,
                page_size=size,
                page_token=token,
                from_merge_base=at.type == "three_dot",
            )

        return fetch

    ours, theirs = between(at.left_ref, at.right_ref), between(at.right_ref, at.left_ref)
    conflicts: set[str] = set()

    async def merged(size: int, after: str, token: str) -> ChangesPage:
        return await _merged(await ours(size, after, token), theirs, conflicts)

    fetch = merged if at.type == "three_dot" else ours
    shown = await _listed(fetch, at, with_right=at.include_right_stats)
    for each in shown.results:
        if each.path_type == "object" and each.path in conflicts:
            each.type = "conflict"
    return shown


async def diff_branch(context: Context, at: op.DiffBranch) -> schemas.DiffList:
    """Returns the uncommitted changes of a branch."""
    call = context.read()

    async def fetch(size: int, after: str, token: str) -> ChangesPage:
        return await context.graveler.diff_uncommitted(
            call,
            at.repository,
            at.branch,
            prefix=at.prefix or "",
            after=after,
            page_size=size,
            page_token=token,
        )

    return await _listed(fetch, at, with_right=False)


async def _merged(page: ChangesPage, fetch: Fetch, conflicts: set[str]) -> ChangesPage:
    """Returns a page without the changes that the other side made, too.

    Reads the changes of the other side only near paths of the page: at most one call for each of them.

    Args:
        page: changes from the merge base to the right side.
        fetch: reads those to the left side.
        conflicts: gets the paths that both sides changed, to different objects.
    """
    kept: list[int] = []
    place = 0
    while place < len(page.paths):
        after = _before(page.paths[place])
        theirs = await fetch(AMOUNT_MAX, after, "")
        while theirs.next_page_token and not theirs.paths:
            theirs = await fetch(AMOUNT_MAX, after, theirs.next_page_token)
        entries = dict(zip(theirs.paths, theirs.right_entries, strict=True))
        has_more = bool(theirs.next_page_token)
        while place < len(page.paths):
            path = page.paths[place]
            if has_more and path > theirs.paths[-1]:
                break
            entry = entries.get(path)
            if entry is None:
                kept.append(place)
            elif _identity(entry) != _identity(page.right_entries[place]):
                kept.append(place)
                conflicts.add(path)
            place += 1
    if len(kept) == len(page.paths):
        return page
    return replace(
        page,
        paths=[page.paths[each] for each in kept],
        left_entries=[page.left_entries[each] for each in kept],
        right_entries=[page.right_entries[each] for each in kept],
    )


def _before(path: str) -> str:
    """Returns a text that precedes a path, and that nearly no other text is between."""
    return path[:-1] + (_previous(path[-1]) + _LAST if path[-1] > "\0" else "")


def _previous(character: str) -> str:
    number = ord(character) - 1
    return chr(0xD7FF if 0xD800 <= number <= 0xDFFF else number)  # no text has surrogates


def _identity(entry: bytes) -> bytes:
    return identity_of(entry) if entry else b""


async def _listed(
    fetch: Fetch, at: op.DiffRefs | op.DiffBranch, *, with_right: bool
) -> schemas.DiffList:
    amount, prefix, delimiter = amount_of(at.amount), at.prefix or "", at.delimiter or ""
    after = _behind(at.after or "", prefix, delimiter)
    found: list[schemas.Diff] = []
    token = ""
    has_more = False
    while not has_more:
        page = await fetch(AMOUNT_MAX if delimiter else amount - len(found) + 1, after, token)
        for path, left, right in zip(
            page.paths, page.left_entries, page.right_entries, strict=True
        ):
            end = path.find(delimiter, len(prefix)) if delimiter else -1
            common = path[: end + len(delimiter)] if end >= 0 else ""
            if common and found and found[-1].path == common:
                continue
            if len(found) == amount:
                has_more = True
                break
            found.append(
                schemas.Diff(type="prefix_changed", path=common, path_type="common_prefix")
                if common
                else _diff(path, left, right, with_right=with_right)
            )
        token = page.next_page_token
        if not token:
            break
        if found and found[-1].path_type == "common_prefix":
            # The rest of the prefix needs no look.
            after, token = found[-1].path + _LAST, ""
    return schemas.DiffList(
        pagination=pagination([each.path for each in found], has_more=has_more), results=found
    )


def _behind(after: str, prefix: str, delimiter: str) -> str:
    """Returns the path after which a page begins: behind all of a common prefix that the last page ended with."""
    is_common = delimiter and after.startswith(prefix) and after.endswith(delimiter)
    return after + _LAST if is_common else after


def _diff(path: str, left: bytes, right: bytes, *, with_right: bool) -> schemas.Diff:
    entry = unpack(right or left)
    return schemas.Diff(
        type="added" if not left else "changed" if right else "removed",
        path=path,
        path_type="object",
        size_bytes=entry.size,
        right=schemas.DiffObjectStat(
            checksum=entry.etag,
            mtime=shapes.seconds(entry.mtime_us),
            content_type=entry.content_type or shapes.DEFAULT_CONTENT_TYPE,
            metadata=dict(entry.metadata),
        )
        if with_right and right
        else None,
    )
