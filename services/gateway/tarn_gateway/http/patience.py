"""Short waits of threads for clients that take a file, or send a body, quickly.

A thread sends a file until the socket is full. To wait in the event loop costs two changes of threads, some 0.1 ms, in
which a fast client has emptied the socket: it took a fifth of the time of a large answer. So the thread waits itself,
but for a moment only, and few threads do so at a time: slow clients, however many, find the other threads free.
"""

from __future__ import annotations

import select
import threading

__all__ = ["Patience"]


class Patience:
    """The permits to wait. Its methods are called by threads.

    Args:
        waits_max: threads that wait at a time; the others send their clients back to the event loop.
        wait_ms: of one wait.
    """

    def __init__(self, waits_max: int, wait_ms: int) -> None:
        self._permits = threading.Semaphore(waits_max)
        self._wait_ms = wait_ms

    def wait(self, descriptor: int, *, for_input: bool = False) -> bool:
        """Waits until a socket takes more bytes, or has some, or its client has left.

        Returns False if none of that happened in time.
        """
        if not self._permits.acquire(blocking=False):
            return False
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN if for_input else select.POLLOUT)
            return bool(poll.poll(self._wait_ms))
        finally:
            self._permits.release()
