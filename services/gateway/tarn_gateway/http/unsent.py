"""Which connections end when clients leave too many bytes of answers untaken.

Each answer that a client reads slowly holds memory: up to `HttpLimits.write_buffer_bytes`, or a whole document. Clients
on slow networks do that all the time, and they make progress. So only those that have taken nothing for a while give
way, the longest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

from tarn_gateway.http.limits import HttpLimits

__all__ = ["Sending", "Unsent", "give_way"]


class Unsent(NamedTuple):
    """An answer that waits for its client.

    Attributes:
        since: loop time of the last progress.
        size: bytes in memory that the client has not taken.
    """

    since: float
    size: int


class Sending(Protocol):
    """What a connection tells."""

    @property
    def unsent(self) -> Unsent | None:
        """The answer that waits for the client; None if none waits."""
        ...


T = TypeVar("T", bound=Sending)


def give_way(connections: Iterable[T], limits: HttpLimits, now: float) -> tuple[int, list[T]]:
    """Returns the unsent bytes of all connections, and the connections that must end.

    Args:
        connections: of the server.
        limits: of the server.
        now: loop time.
    """
    waiting = [(unsent, each) for each in connections if (unsent := each.unsent) is not None]
    held = sum(unsent.size for unsent, _ in waiting)
    if held <= limits.unsent_bytes_max:
        return held, []
    ended = []
    left = held
    for unsent, connection in sorted(waiting, key=lambda each: each[0].since):
        if left <= limits.unsent_bytes_max or now - unsent.since < limits.unsent_patience_s:
            break
        if unsent.size:
            ended.append(connection)
            left -= unsent.size
    return held, ended
