"""How long callers wait for a connection: all together some seconds, not each of them anew.

A service that restarts answers within this time. One that is down, or whose address is wrong, does not: then callers
should learn it at once, and not each after its own deadline.
"""

from __future__ import annotations

__all__ = ["Patience"]


class Patience:
    """The wait of all callers for one service.

    Args:
        whole_s: seconds from the first call that found no connection.
        brief_s: least seconds for each call.
    """

    def __init__(self, whole_s: float, brief_s: float) -> None:
        self._whole_s = whole_s
        self._brief_s = brief_s
        self._since: float | None = None

    def left_s(self, now: float) -> float:
        """Returns how many seconds a call that finds no connection now may wait for one."""
        if self._since is None:
            self._since = now
        return max(self._brief_s, self._since + self._whole_s - now)

    def end(self) -> None:
        """There is a connection."""
        self._since = None
