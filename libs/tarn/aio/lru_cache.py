"""A map that drops the least recently used entries, by number or by size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A map with a limit of the total size; it drops the least recently used entries first. O(1) for each call.

    The last entry that was set stays, however large it is. Values must not be None. Belongs to one thread. For the
    results of a pure function that stay valid for ever, use `functools.lru_cache`.

    Args:
        size_max: greatest size of all entries together.
        size_of: returns the size of a value, which must not change while it is stored; None: each counts as 1.
    """

    __slots__ = ("_entries", "_size", "_size_max", "_size_of")

    def __init__(self, size_max: int, size_of: Callable[[V], int] | None = None) -> None:
        assert size_max > 0
        self._size_max = size_max
        self._size_of = size_of or (lambda _value: 1)
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Size of all entries together."""
        return self._size

    def get(self, key: K) -> V | None:
        """Returns the value, which counts as a use; None if there is none."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Sets an entry, which becomes the most recently used one, and makes room for it."""
        self.pop(key)
        self._entries[key] = value
        self._size += self._size_of(value)
        while self._size > self._size_max and len(self._entries) > 1:
            _, old = self._entries.popitem(last=False)
            self._size -= self._size_of(old)

    def pop(self, key: K) -> None:
        """Removes an entry, if there is one."""
        old = self._entries.pop(key, None)
        if old is not None:
            self._size -= self._size_of(old)

    def clear(self) -> None:
        """Removes all entries."""
        self._entries.clear()
        self._size = 0
