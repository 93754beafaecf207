"""Which connections a server accepts when many are open.

A connection costs its client nothing. So those whose clients the handler has not identified yet share a part of all
connections, and when that is used up, the oldest of them that serves no request gives way to the new one: a client with
credentials is identified by its first request, within milliseconds, and keeps its connection. Whoever only holds
connections loses them first.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

from tarn_gateway.http.limits import HttpLimits

__all__ = ["Admission", "Admitted"]

_LOOKS: Final = 16
"""Connections that are looked at for one that gives way: a constant time for each new connection."""


class Admitted(Protocol):
    """What a connection tells."""

    @property
    def is_identified(self) -> bool:
        """Whether a handler has identified its client."""
        ...

    @property
    def is_serving(self) -> bool:
        """Whether a handler works for it now."""
        ...


T = TypeVar("T", bound=Admitted)


class Admission(Generic[T]):
    """Decides for each new connection of a server.

    Args:
        limits: of the server.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._connections_max = limits.connections_max
        self._unidentified_max = limits.unidentified_max
        # The oldest first. Connections stay here after they were identified, until they are looked at or end.
        self._unidentified: dict[T, None] = {}

    def admit(self, connection: T, open_count: int) -> tuple[bool, T | None]:
        """Returns whether the server accepts a new connection, and the connection that it must end for it.

        Args:
            connection: the new one.
            open_count: connections that are open.
        """
        loser = None
        if len(self._unidentified) >= self._unidentified_max:
            loser = self._oldest()
        if open_count >= self._connections_max and loser is None:
            return False, None
        self._unidentified[connection] = None
        return True, loser

    def leave(self, connection: T) -> None:
        """Called when a connection ends."""
        self._unidentified.pop(connection, None)

    def _oldest(self) -> T | None:
        """Returns the oldest connection that may give way, if there are still too many."""
        for _ in range(_LOOKS):
            if len(self._unidentified) < self._unidentified_max:
                return None
            oldest = next(iter(self._unidentified))
            del self._unidentified[oldest]
            if oldest.is_identified:
                continue
            if not oldest.is_serving:
                return oldest
            self._unidentified[oldest] = None  # looked at again after all others
        return None
