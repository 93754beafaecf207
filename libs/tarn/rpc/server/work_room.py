"""The room for operations that are being worked on: a bound in sum over all streams of a process."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["WorkRoom"]


class WorkRoom:
    """A number of operations, and of bytes of the messages that brought them. Belongs to one event loop.

    A stream takes room for a whole message before it begins the first operation, and does not read on while it waits.
    Streams get room in the order in which they asked. Room is given back when the work has ended, whatever became of
    the stream.

    Attributes:
        operations: operations that have room.
        size_bytes: bytes of the messages that have room.
    """

    def __init__(self, operations_max: int, bytes_max: int) -> None:
        self.operations = 0
        self.size_bytes = 0
        self._operations_max = operations_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[asyncio.Future[None], int, int]] = deque()

    async def take(self, operations: int, size_bytes: int) -> None:
        """Waits for room. A message that is larger than all the room gets it when there is no other."""
        if self.take_now(operations, size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (turn, operations, size_bytes)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._admit()  # those behind it may fit
            else:
                self.give(operations, size_bytes)
            raise

    def take_now(self, operations: int, size_bytes: int) -> bool:
        """Takes room if some is free and no other caller waits for it; returns whether it did."""
        takes = not self._waiting and self._fits(operations, size_bytes)
        if takes:
            self._add(operations, size_bytes)
        return takes

    def give(self, operations: int, size_bytes: int) -> None:
        """Gives room back."""
        self.operations -= operations
        self.size_bytes -= size_bytes
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(*self._waiting[0][1:]):
            turn, operations, size_bytes = self._waiting.popleft()
            self._add(operations, size_bytes)
            if not turn.done():
                turn.set_result(None)

    def _fits(self, operations: int, size_bytes: int) -> bool:
        if not self.operations:
            return True
        fits = self.operations + operations <= self._operations_max
        return fits and self.size_bytes + size_bytes <= self._bytes_max

    def _add(self, operations: int, size_bytes: int) -> None:
        self.operations += operations
        self.size_bytes += size_bytes


class WorkRooms:
    """The rooms of a process: callers without a valid token have one of their own, an eighth of the other.

    Args:
        operations_max: operations of authenticated callers.
        bytes_max: bytes of the messages that brought them.
    """

    def __init__(self, operations_max: int, bytes_max: int) -> None:
        self.authenticated = WorkRoom(operations_max, bytes_max)
        self.unauthenticated = WorkRoom(operations_max // 8, bytes_max // 8)
