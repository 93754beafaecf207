"""A map whose entries end at a time, for what is remembered for seconds only."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from tarn.core.clock import Clock

__all__ = ["Expiring"]

T = TypeVar("T")
K = TypeVar("K")


class Expiring(Generic[K, T]):
    """At most `size_max` entries; the least recently used goes first. O(1) for each call."""

    def __init__(self, clock: Clock, size_max: int) -> None:
        self._clock = clock
        self._size_max = size_max
        # The end is on the monotonic clock, in seconds.
        self._entries: OrderedDict[K, tuple[T, float]] = OrderedDict()

    def get(self, key: K) -> T | None:
        """The value, None when there is none or its time is over."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, end = entry
        if end <= self._clock.monotonic():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: T, end: float) -> None:
        """Keeps a value until `end` of the monotonic clock."""
        self._entries[key] = (value, end)
        self._entries.move_to_end(key)
        if len(self._entries) > self._size_max:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
