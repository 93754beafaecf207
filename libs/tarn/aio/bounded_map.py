"""A map that drops its oldest entries, for values that can be fetched again; a look-up costs as much as in a dict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedMap"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """A map of at most `size_max` entries, which drops the oldest first (FIFO). O(1) for each call.

    It is for small values that rarely exceed the limit and are looked up several times per request: a look-up is the
    dict's own C function, while `LruCache` records each use (some 0.1 µs). Belongs to one thread.

    Attributes:
        get: returns the value of a key, None if there is none.
    """

    __slots__ = ("_entries", "_size_max", "get")

    def __init__(self, size_max: int) -> None:
        assert size_max > 0
        self._size_max = size_max
        # Not a dict: after deletions at the front, finding its first entry walks over the deleted entries.
        self._entries: OrderedDict[K, V] = OrderedDict()
        self.get: Callable[[K], V | None] = self._entries.get

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V) -> None:
        """Sets an entry, which becomes the newest."""
        entries = self._entries
        entries[key] = value
        entries.move_to_end(key)
        if len(entries) > self._size_max:
            entries.popitem(last=False)

    def pop(self, key: K) -> None:
        """Removes an entry, if there is one."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Removes all entries."""
        self._entries.clear()
