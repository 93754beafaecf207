"""Listings: the items of all pages of a list rpc, read page by page as they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

__all__ = ["PAGE_SIZE_MAX", "Listing", "Page", "collect", "listing"]

T = TypeVar("T")

PAGE_SIZE_MAX = 5000
"""The greatest page size of any rpc; rpcs with a lower maximum return that many items."""


class Page(Protocol):
    """Any answer that may have a next page."""

    @property
    def next_page_token(self) -> str:
        """Token of the next page; empty after the last page."""
        ...


PageT = TypeVar("PageT", bound=Page)


class Listing(AsyncIterator[T], Generic[T]):
    """The items of a listing in its order; an iterator, so it can be read once.

    Each page is a call of its own: with its own deadline and retries, and of the state at its own time, unless
    the rpc says otherwise. A page may be empty before the end. After an error, the next item reads that page
    again.

    Args:
        fetch: reads the page of a token (empty for the first); returns its items and the next token, empty
            after the last page.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[tuple[Iterable[T], str]]]) -> None:
        self._fetch = fetch
        self._token: str | None = ""
        self._items: deque[T] = deque()

    async def next_page(self) -> list[T] | None:
        """Returns the items that were read and not returned yet, otherwise the next page; None at the end."""
        if not self._items:
            if self._token is None:
                return None
            items, token = await self._fetch(self._token)
            self._token = token or None
            return list(items)
        found, self._items = list(self._items), deque()
        return found

    async def __anext__(self) -> T:
        """Returns the next item."""
        while not self._items:
            page = await self.next_page()
            if page is None:
                raise StopAsyncIteration
            self._items.extend(page)
        return self._items.popleft()


def listing(
    fetch: Callable[[str], Awaitable[PageT]], items: Callable[[PageT], Iterable[T]]
) -> Listing[T]:
    """Returns the listing of an rpc.

    Args:
        fetch: reads the page of a token.
        items: extracts the items of a page.
    """

    async def read(token: str) -> tuple[Iterable[T], str]:
        page = await fetch(token)
        return items(page), page.next_page_token

    return Listing(read)


async def collect(
    fetch: Callable[[int, str], Awaitable[PageT]],
    items: Callable[[PageT], Iterable[T]],
    limit: int = 0,
) -> list[T]:
    """Reads as many pages as needed and returns their items, in order.

    Args:
        fetch: reads a page; takes page size and page token.
        items: extracts the items of a page.
        limit: most items to return; 0 for no limit.
    """
    found: list[T] = []

    def next_page(token: str) -> Awaitable[PageT]:
        size = min(PAGE_SIZE_MAX, limit - len(found)) if limit else PAGE_SIZE_MAX
        return fetch(size, token)

    pages = listing(next_page, items)
    while (page := await pages.next_page()) is not None:
        found.extend(page)
        if limit and len(found) >= limit:
            break
    return found
