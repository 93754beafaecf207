"""Pages as lakeFS has them: `after` is a name, and a page is full unless it is the last one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn_rest.schemas import Pagination

__all__ = ["AMOUNT_MAX", "Fetch", "amount_of", "filled", "pagination"]

AMOUNT_MAX: Final = 1000
_AMOUNT: Final = 100

T = TypeVar("T")

Fetch = Callable[[int, str], Awaitable[tuple[list[T], str]]]
"""Reads a page of a rpc: takes size and token, returns items and the next token, empty after the last page."""


def amount_of(asked: int) -> int:
    """Returns the size of a page; 0 and -1 ask for the default."""
    return asked if asked > 0 else _AMOUNT


async def filled(
    fetch: Fetch[T], amount: int, key: Callable[[T], str], after: str | None
) -> tuple[list[T], bool]:
    """Returns a page of a listing, and whether more follow. Pages of rpcs may be short, even empty, before the end.

    Args:
        fetch: reads a page that begins after `after`.
        amount: most items.
        key: the name of an item.
        after: where the page begins.

    Raises:
        TarnError: UNAVAILABLE: a graveler of an earlier release begins at the first item, whatever it is asked.
    """
    found, token = await fetch(amount, "")
    if after and found and key(found[0]) <= after:
        text = "graveler is of an earlier release and knows no `after`; finish the upgrade"
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
    while token and len(found) < amount:
        more, token = await fetch(amount - len(found), token)
        found += more
    return found, bool(token)


def pagination(
    names: Sequence[str], *, has_more: bool, next_offset: str | None = None
) -> Pagination:
    """Returns the part of an answer about its page.

    Args:
        names: of the items.
        has_more: whether more follow.
        next_offset: `after` of the next page; None: the last name.
    """
    offset = ""
    if has_more:
        offset = next_offset if next_offset is not None else names[-1]
    return Pagination(
        has_more=has_more, next_offset=offset, results=len(names), max_per_page=AMOUNT_MAX
    )
