"""A map that forgets its oldest entries, for what can be found again: look-ups at the price of a dict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedMap"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """At most `size_max` entries; the one that was put longest ago goes first (FIFO). O(1) for each call.

    For small things of which there are rarely too many, looked up several times per request: a look-up is the
    dict's own C function, while `LruCache` notes each use (some 0.1 µs). Belongs to one thread.

    Attributes:
        get: the value of a key, None for none.
    """

    __slots__ = ("_entries", "_size_max", "get")

    def __init__(self, size_max: int) -> None:
        assert size_max > 0
        self._size_max = size_max
        # Not a dict: finding its first entry after deletions at the front costs a walk over what was deleted.
        self._entries: OrderedDict[K, V] = OrderedDict()
        self.get: Callable[[K], V | None] = self._entries.get

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: K, value: V) -> None:
        """Sets an entry, which is the youngest now."""
        entries = self._entries
        entries[key] = value
        entries.move_to_end(key)
        if len(entries) > self._size_max:
            entries.popitem(last=False)

    def pop(self, key: K) -> None:
        """Forgets an entry; none is no error."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
