"""Bytes that a client sends although no handler reads them: received into shared memory, and dropped.

A connection that ends must still read for a moment, and one that is kept must read the rest of a refused body. Neither
may cost memory: whoever has no credentials gets no further than this.
"""

from __future__ import annotations

import asyncio

from tarn_gateway.http.body import Channel
from tarn_gateway.http.body_error import BodyError

__all__ = ["Discard"]


class Discard:
    """Takes the place of a body at its connection.

    Args:
        count: bytes to drop.
        memory: shared by all connections; they are written there one over the other.
        channel: the connection.
    """

    __slots__ = ("_channel", "_ended", "_left", "_memory")

    def __init__(self, count: int, memory: memoryview, channel: Channel) -> None:
        self._left = count
        self._memory = memory
        self._channel = channel
        self._ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float) -> bool:
        """Returns whether all bytes arrived in that time."""
        self._channel.resume_body()
        try:
            async with asyncio.timeout(seconds):
                return await self._ended
        except TimeoutError:
            return False

    def get_buffer(self) -> memoryview:
        """Returns the memory for the socket to write to."""
        return self._memory[: self._left]

    def commit(self, count: int) -> None:
        """Called after `count` bytes were written into it."""
        self._left -= count
        if self._left == 0:
            self._channel.end_body(b"")
            self._end(all_arrived=True)

    def fail(self, _: BodyError) -> None:
        """Called when no more bytes will be received."""
        self._end(all_arrived=False)

    def sweep(self, now: float, last_received: float, stall_s: float) -> None:
        """Does nothing: `wait` has its own time limit."""

    def excuse(self, seconds: float) -> None:
        """Does nothing."""

    def _end(self, *, all_arrived: bool) -> None:
        if not self._ended.done():
            self._ended.set_result(all_arrived)
