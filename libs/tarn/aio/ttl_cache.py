"""A map whose entries expire, each at its own time, for values that are cached for seconds.

`cachetools.TLRUCache` (8.0) does the same with a timer that is passed in. It is not used because it is slower: 1.8 µs
for a look-up and 7.5 µs for a new entry, compared with 0.2 and 0.3 here, and each request makes several look-ups.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

from tarn.core.clock import Clock

__all__ = ["TtlCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """A map of at most `size_max` entries, which drops the least recently used first. O(1) for each call.

    An expired entry is never returned; it is removed when it is looked up, or as the least recently used one. Values
    must not be None. Belongs to one thread.

    Attributes:
        hits: how often `get` returned a value.
    """

    __slots__ = ("_entries", "_now", "_size_max", "hits")

    def __init__(self, clock: Clock, size_max: int) -> None:
        assert size_max > 0
        self._now = clock.monotonic
        self.hits = 0
        self._size_max = size_max
        # The end is a time of the monotonic clock, in seconds.
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Returns the value; None if there is none or it has expired."""
        entries = self._entries
        if key not in entries:
            return None
        value, end = entries[key]
        if end <= self._now():
            del entries[key]
            return None
        entries.move_to_end(key)
        self.hits += 1
        return value

    def has(self, key: K) -> bool:
        """Whether there is a value; it counts neither as a hit nor as a use."""
        entry = self._entries.get(key)
        return entry is not None and entry[1] > self._now()

    def end_of(self, key: K) -> float:
        """Returns until when a value is kept, on the monotonic clock; a time of the past for none. Not a use."""
        entry = self._entries.get(key)
        return -inf if entry is None else entry[1]

    def put(self, key: K, value: V, end: float) -> None:
        """Keeps a value until `end` of the monotonic clock.

        A value that was read is as old as the moment *before* the request: count its time from there.
        """
        self._entries[key] = (value, end)
        self._entries.move_to_end(key)
        if len(self._entries) > self._size_max:
            self._entries.popitem(last=False)

    def pop(self, key: K) -> None:
        """Removes an entry, if there is one."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Removes all entries."""
        self._entries.clear()
