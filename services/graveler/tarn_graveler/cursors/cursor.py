"""Cursors: iterators over ordered items that can seek (docs/design/iterators.md).

A `Source` knows one order of one kind of item and reads a few items from any place in it. A `Cursor` iterates over a
source. Each read is a read of its own time, so a cursor beside writers is not a snapshot:

- An item that exists throughout, under the same key, is returned exactly once.
- An item that is created, removed or moved to another key meanwhile may be returned or not.

Sources that promise more say so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["Chunk", "Cursor", "CursorPage", "Source", "behind", "chunks_of"]

KeyT = TypeVar("KeyT", bound=str)
ValueT = TypeVar("ValueT")

_READ_MIN, _READ_MAX = 16, 1000
"""Rows that one read asks for. Reads grow: after a seek, often only the next item is needed."""


def behind(key: str) -> str:
    """Returns the place of the first item behind a key."""
    return key + "\0"


@dataclass(frozen=True, slots=True)
class Chunk(Generic[KeyT, ValueT]):
    """The items of one read, in the order of their source.

    Attributes:
        items: keys and values; may be empty before the end, because rows were passed over.
        last: the last key that the read passed, whether or not it is an item; None if nothing is left behind it.
    """

    items: list[tuple[KeyT, ValueT]]
    last: str | None


class Source(Protocol[KeyT, ValueT]):
    """Items in one order. A source may remember where its last read ended, so one cursor uses it at a time."""

    async def read(self, start: str, count: int) -> Chunk[KeyT, ValueT]:
        """Returns the first items at a place or behind it.

        Args:
            start: empty for the beginning; a key; or `behind` a key.
            count: most items, and about as many rows are read for them; at least one.
        """
        ...


@dataclass(frozen=True, slots=True)
class CursorPage(Generic[KeyT, ValueT]):
    """A page of items, and the key behind which the next page begins; None at the end."""

    items: list[tuple[KeyT, ValueT]]
    next_after: str | None


class Cursor(AsyncIterator[tuple[KeyT, ValueT]], Generic[KeyT, ValueT]):
    """The items of a source, one by one or page by page. After an error, the next call repeats the read.

    Args:
        source: the items.
        limit: most items that the cursor returns in all, also after a seek; None: no limit.
    """

    def __init__(self, source: Source[KeyT, ValueT], *, limit: int | None = None) -> None:
        self._source = source
        self._left = limit
        self._items: deque[tuple[KeyT, ValueT]] = deque()
        self._start: str | None = ""  # Invariant: where the next read begins; None at the end.
        self._count = _READ_MIN

    def seek(self, key: str) -> None:
        """Continues with the item of a key, or with the first item behind it. Seeks forward and backward."""
        self._items.clear()
        self._start = key
        self._count = _READ_MIN

    def seek_behind(self, key: str) -> None:
        """Continues with the first item behind a key, such as `CursorPage.next_after`; empty: from the beginning."""
        self.seek(behind(key) if key else "")

    async def __anext__(self) -> tuple[KeyT, ValueT]:
        """Returns the next item."""
        if self._left == 0:
            raise StopAsyncIteration
        while not self._items:
            if self._start is None:
                raise StopAsyncIteration
            count = self._count if self._left is None else min(self._count, self._left)
            self._items.extend(await self._read(self._start, count))
            self._count = min(2 * self._count, _READ_MAX)
        if self._left is not None:
            self._left -= 1
        return self._items.popleft()

    async def _read(self, start: str, count: int) -> list[tuple[KeyT, ValueT]]:
        chunk = await self._source.read(start, count)
        self._start = None if chunk.last is None else behind(chunk.last)
        return chunk.items

    async def page(self, count: int) -> CursorPage[KeyT, ValueT]:
        """Returns up to `count` items by one read of about as many rows; fewer, even none, before the end.

        Items that were read and not returned yet are read again: a page belongs to one moment.
        """
        if self._items:
            self.seek(self._items[0][0])
        if self._left is not None:
            count = min(count, self._left)
        if not count or self._start is None:
            return CursorPage([], None)
        items = await self._read(self._start, count)
        if self._left is not None:
            self._left -= len(items)
        is_over = self._start is None or self._left == 0
        return CursorPage(items, None if is_over else self._start.removesuffix("\0"))


async def chunks_of(source: Source[KeyT, ValueT]) -> AsyncIterator[list[tuple[KeyT, ValueT]]]:
    """Yields all items of a source in chunks, in order."""
    start: str | None = ""
    while start is not None:
        chunk = await source.read(start, _READ_MAX)
        yield chunk.items
        start = None if chunk.last is None else behind(chunk.last)
