"""Many deadlines by one timer.

A timer of the event loop per hot operation (what `asyncio.timeout` makes) costs more than the
operation. Deadlines of seconds need no microseconds: whatever waits is entered here, and one timer,
which runs only while something waits, ends what is overdue. (A timer wheel would save the walk over all
entries; with thousands of them that walk is less than one operation per tick of the wheel.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tarn.core.clock import Clock

__all__ = ["RESOLUTION_SECONDS", "DeadlineSweep"]

RESOLUTION_SECONDS = 0.02
"""How late an expiry may come. 4,096 entries looked at 50 times a second are 1 % of a core."""


class DeadlineSweep:
    """Calls back what is overdue. O(1) to enter and leave, O(entries) per sweep. Belongs to one event loop.

    - Each entry is called at most once, never before its deadline, and not any more once it has left; an
      expiry may enter and leave others.
    - An expiry that raises is a bug: the loop's exception handler is told, and the others are called.
    - A sweep that was closed calls nothing; it may be used again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[int, tuple[float, Callable[[], object]]] = {}
        self._next_key = 0
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, deadline: float, expire: Callable[[], object]) -> int:
        """Has `expire` called once, soon after `deadline` on the monotonic clock; gives its key."""
        key = self._next_key = self._next_key + 1
        self._entries[key] = (deadline, expire)
        if self._timer is None:
            self._arm()
        return key

    def leave(self, key: int) -> None:
        """Forgets an entry; one that has expired or left is no error."""
        self._entries.pop(key, None)

    def close(self) -> None:
        """Forgets everything. Idempotent."""
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(RESOLUTION_SECONDS, self._sweep)

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
