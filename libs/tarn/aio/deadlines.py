"""Many deadlines with one timer.

A timer of the event loop for each hot operation (as `asyncio.timeout` creates it) costs more than the operation.
Deadlines of seconds do not need precision: operations that wait are entered here, and one timer, which runs only
while there are entries, ends the overdue ones. (A timer wheel would save the walk over all entries; with thousands
of entries that walk costs less than one operation per tick of the wheel.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tarn.core.clock import Clock

__all__ = ["RESOLUTION_SECONDS", "DeadlineSweep"]

RESOLUTION_SECONDS = 0.02
"""Greatest delay of an expiry. Checking 4,096 entries 50 times a second takes 1 % of a core."""


class DeadlineSweep:
    """Calls back overdue entries. O(1) to enter and leave, O(entries) per sweep. Belongs to one event loop.

    - Each entry is called at most once, never before its deadline, and not after it has left; an expiry may enter
      and remove others.
    - An expiry that raises is a bug: the loop's exception handler is called, and the other entries are called, too.
    - A closed sweep calls no entry; it may be used again.

    Args:
        clock: measures deadlines.
        resolution_s: greatest delay of an expiry, in seconds; None: `RESOLUTION_SECONDS`, as it is at that time.
    """

    def __init__(self, clock: Clock, resolution_s: float | None = None) -> None:
        self._clock = clock
        self._resolution_s = resolution_s
        self._entries: dict[int, tuple[float, Callable[[], object]]] = {}
        self._next_key = 0
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, deadline: float, expire: Callable[[], object]) -> int:
        """Enters `expire`, which is called once soon after `deadline` on the monotonic clock; returns its key."""
        key = self._next_key = self._next_key + 1
        self._entries[key] = (deadline, expire)
        if self._timer is None:
            self._arm()
        return key

    def leave(self, key: int) -> None:
        """Removes an entry, unless it has expired or left already."""
        self._entries.pop(key, None)

    def close(self) -> None:
        """Removes all entries. Idempotent."""
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._resolution_s or RESOLUTION_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        overdue = [key for key, (deadline, _) in self._entries.items() if deadline <= now]
        for key in overdue:
            # An expiry may end another entry's wait, which then leaves.
            if entry := self._entries.pop(key, None):
                self._call(entry[1])
        if self._entries and self._timer is None:
            self._arm()

    @staticmethod
    def _call(expire: Callable[[], object]) -> None:
        try:
            expire()
        except Exception as error:  # noqa: BLE001 - a bug, which must not cost others their deadlines
            what = {"message": "a deadline's callback failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)
