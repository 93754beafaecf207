"""A map that forgets what was not used for longest, by number or by size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["LruCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Entries of `size_max` in all; the least recently used go first. O(1) for each call. Belongs to one thread.

    The entry that was put last stays, however large it is. Values are not None. `functools.lru_cache` serves where
    a pure function is remembered for good.

    Args:
        size_max: of all entries together.
        size_of: the size of a value, which must not change while it is here; None: each counts as 1.
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
        """Of all entries together."""
        return self._size

    def get(self, key: K) -> V | None:
        """The value, which counts as a use; None for none."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Sets an entry, the most recently used one now, and makes room for it."""
        self.pop(key)
        self._entries[key] = value
        self._size += self._size_of(value)
        while self._size > self._size_max and len(self._entries) > 1:
            _, old = self._entries.popitem(last=False)
            self._size -= self._size_of(old)

    def pop(self, key: K) -> None:
        """Forgets an entry; none is no error."""
        old = self._entries.pop(key, None)
        if old is not None:
            self._size -= self._size_of(old)

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
        self._size = 0
