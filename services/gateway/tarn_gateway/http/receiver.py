"""A large body is received by the thread that hashes and writes it.

The event loop receives some 100 KiB at a time, and hands each buffer to threads and back: for a part of 5 MiB that took
5 of 21 ms. A thread receives, hashes and writes while the bytes are in the processor's cache. It does not wait for a
slow client: when the socket is empty, it has a moment of `Patience`, and then the event loop receives again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from tarn_gateway.http.patience import Patience

__all__ = ["Receiver", "WAITS_MAX"]

WAITS_MAX: Final = 16
"""Waits of one turn: with `Patience.wait_ms` they bound its time."""


class Receiver:
    """Receives bytes of one body from a socket that the event loop does not read meanwhile.

    Args:
        descriptor: of the non-blocking socket, a duplicate; whoever made it closes it.
        buffer: all bytes are received into it.
        filled: bytes at its beginning that were received before.
        left: bytes of the body that the socket has yet to give.
        patience: of the server's threads with clients.

    Attributes:
        descriptor: as above.
        received: bytes received by this object. It is right also if the work on a piece has failed.
    """

    __slots__ = ("_buffer", "_filled", "_left", "_patience", "descriptor", "received")

    def __init__(
        self, descriptor: int, buffer: memoryview, filled: int, left: int, patience: Patience
    ) -> None:
        self.descriptor = descriptor
        self.received = 0
        self._buffer = buffer
        self._filled = filled
        self._left = left
        self._patience = patience

    def pieces(self, most: int) -> Iterator[memoryview]:
        """Yields the bytes in pieces, each valid until the next one; a thread calls it.

        It ends after `most` bytes (at once if those held before are more), at the end of the body, and when the client
        has left or sends nothing for a moment: the event loop finds out which.
        """
        filled, waits = self._filled, 0
        most = min(self._left, most - filled)
        while filled or self.received < most:
            more = self._receive(filled, most - self.received)
            if more:
                filled += more
                if filled < len(self._buffer) and self.received < most:
                    continue  # what else is there
            elif more is None and not filled:
                waits += 1
                if waits > WAITS_MAX or not self._patience.wait(self.descriptor, for_input=True):
                    return
                continue
            if not filled:
                return
            yield self._buffer[:filled]
            filled = 0

    def _receive(self, start: int, most: int) -> int | None:
        """Returns the number of bytes received; None if there are none now, 0 if there will be none."""
        into = self._buffer[start : start + most]
        if not into:
            return 0
        try:
            count = os.readv(self.descriptor, [into])
        except BlockingIOError:
            return None
        except OSError:
            return 0
        self.received += count
        return count
