"""The body of a request: received into two alternating buffers, read piece by piece.

While the handler processes one buffer, the socket fills the other. When that is also full, the connection
stops reading, and TCP slows the client down. Receiving directly into a large buffer is 1.5 times as fast as
callbacks per received segment (docs/design/hot-path.md, "HTTP").

A body takes no memory before its handler reads it, so a request that is refused never does.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from tarn_gateway.http.body_error import (
    BodyError,
    BodyMalformedError,
    BodySlowError,
    BodyStalledError,
    BodyTruncatedError,
)
from tarn_gateway.http.chunked import ChunkedDecoder
from tarn_gateway.http.patience import Patience
from tarn_gateway.http.receiver import Receiver

__all__ = [
    "BodyError",
    "BodyMalformedError",
    "BodyReader",
    "BodySlowError",
    "BodyStalledError",
    "BodyTruncatedError",
    "BufferPool",
    "Channel",
    "WholeBody",
]


Buffer = bytearray | mmap.mmap

RATE_WINDOW_S: Final = 30.0
"""Seconds of waiting over which the rate of a body is averaged; also the grace after its beginning."""

SMALL_BUFFER_BYTES: Final = 16 * 1024
"""Size of the buffers beyond those of the pool: 10,000 bodies with two of them take 320 MiB."""


THREAD_LEAST_BYTES: Final = 1024 * 1024
"""A thread receives a body only if so many bytes are still to come."""


class BufferPool:
    """Reusable receive buffers: a fresh 512 KiB buffer costs a page fault per 4 KiB.

    A new buffer is a mapping of its own. A page of it takes memory only when a byte arrives there, so a client that
    sends little costs little; and the system has the memory back as soon as the buffer is dropped. Buffers of malloc
    remain with the process after a peak.

    Args:
        size: bytes of each buffer.
        idle_max: maximum number of unused buffers that are kept.
        used_max: maximum number of buffers in use; beyond it, `take` returns small ones.
    """

    def __init__(self, size: int, idle_max: int, used_max: int) -> None:
        self.size = size
        self._idle_max = idle_max
        self._used_max = used_max
        self._used = 0
        self._idle: list[mmap.mmap] = []

    def take(self) -> Buffer:
        """Returns a buffer with arbitrary content."""
        if self._used >= self._used_max:
            return bytearray(min(self.size, SMALL_BUFFER_BYTES))
        self._used += 1
        if self._idle:
            return self._idle.pop()
        return mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give(self, buffer: Buffer) -> None:
        """Returns a buffer to the pool; its views must not be used any more."""
        if isinstance(buffer, bytearray):
            return  # of a body's own size, or small
        self._used -= 1
        if len(self._idle) < self._idle_max:
            self._idle.append(buffer)


class Channel(Protocol):
    """The functions of its connection that a body uses."""

    def send_continue(self) -> None:
        """Tells the client to send the body."""
        ...

    def time(self) -> float:
        """Returns the time of the loop, in seconds."""
        ...

    def pause_body(self) -> None:
        """Stops receiving."""
        ...

    def resume_body(self) -> None:
        """Resumes receiving."""
        ...

    def end_body(self, rest: bytes) -> None:
        """Called when the body is received; `rest` are bytes after its end, part of the next request."""
        ...

    def lend_socket(self) -> tuple[int, Patience] | None:
        """Stops receiving; returns a duplicate of the socket for a thread, and the patience with its client.

        None, and nothing happens, if a thread cannot receive: over TLS.
        """
        ...


class Place(Protocol):
    """The place of a request among those that are worked on."""

    def leave(self) -> None:
        """Gives it back."""
        ...

    def resume(self) -> None:
        """Takes it again."""
        ...


class BodyReader:
    """Reads one body. If the client waits for `100 Continue`, the first read that finds no received bytes
    sends it.

    Args:
        length: Content-Length; None for a chunked body; 0 if there is none.
        first: bytes of the body that were received together with the head.
        channel: the connection; None only if `first` is the whole body.
        pool: buffers for large and chunked bodies.
        small_bytes: bodies up to this length get a buffer of their own size instead.
        expects_continue: whether the client waits for `100 Continue`.

    Attributes:
        length: as above.
        received: bytes received so far, framing included.
        rate_min_bytes: bytes per second that the client must send at least, averaged over each `RATE_WINDOW_S`
            seconds in which a read waits for it: the handler's own time does not count. 0: any rate.
        place: of the request; None: it has none. It is left while a read waits for the client; by a body above
            `small_bytes` for good, because its client decides how long it takes.
    """

    __slots__ = (
        "_channel",
        "_decoder",
        "_error",
        "_expects_continue",
        "_fill",
        "_filled",
        "_first",
        "_held",
        "_left",
        "_paused",
        "_pool",
        "_slices",
        "_small_bytes",
        "_undecoded",
        "_waited_s",
        "_waiter",
        "_waiting_since",
        "_window_received",
        "length",
        "place",
        "rate_min_bytes",
        "received",
    )

    def __init__(
        self,
        length: int | None,
        first: bytes = b"",
        channel: Channel | None = None,
        pool: BufferPool | None = None,
        *,
        small_bytes: int = 0,
        expects_continue: bool = False,
        rate_min_bytes: int = 0,
    ) -> None:
        self.length = length
        self.received = len(first)
        self.rate_min_bytes = rate_min_bytes
        self.place: Place | None = None
        self._first = first
        self._channel = channel
        self._pool = pool
        self._small_bytes = small_bytes
        # Only if no byte of the body has arrived: a client that sends immediately does not wait.
        self._expects_continue = expects_continue and not first
        self._decoder = ChunkedDecoder() if length is None else None
        # Invariant with a known length: received + left = length.
        self._left = 0 if length is None else length - len(first)
        self._fill: Buffer | None = None
        self._filled = 0
        self._held: Buffer | None = None
        self._paused = False
        self._slices: deque[memoryview] = deque()
        # The rest of the last piece, if it has more chunks than are decoded in one turn.
        self._undecoded: memoryview | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: BodyError | None = None
        # Seconds for which reads have waited in the present window; `received` at its start.
        self._waited_s = 0.0
        self._waiting_since = 0.0
        self._window_received = self.received

    # --- the reading side

    async def read(self) -> bytes | memoryview:
        """Returns the next piece, empty at the end. A piece is valid only until the next call, which reuses
        its memory.

        Raises:
            BodyTruncatedError, BodyStalledError, BodyMalformedError: also on every later call.
        """
        while True:
            if self._slices:
                return self._slices.popleft()
            if isinstance(self._error, BodyMalformedError):
                raise self._error  # bytes after a broken chunk have no meaning
            if self._undecoded is not None and self._decoder is not None:
                await asyncio.sleep(0)  # lets other requests run
                self._decode(self._decoder, self._undecoded)
                continue
            piece = self._take()
            if piece:
                if self._decoder is None:
                    return piece
                self._decode(self._decoder, memoryview(piece))
            elif self.complete:
                return b""
            elif self._error is not None:
                raise self._error
            else:
                await self._wait()

    @contextmanager
    def by_thread(self) -> Iterator[Receiver | None]:
        """Lets a thread receive what follows the last piece, which stays valid until the thread has the next one.

        None: it has to be read by `read`, because it is short, chunked or encrypted, or has a small buffer. At the end
        of the block `read` continues behind what the thread has received.
        """
        lent = None
        if self._decoder is None and self._left >= THREAD_LEAST_BYTES and self._error is None:
            if self._fill is None:
                self._fill = self._new_buffer()
            if len(self._fill) > SMALL_BUFFER_BYTES and self._channel is not None:
                lent = self._channel.lend_socket()
        if lent is None:
            yield None
            return
        assert self._fill is not None, "made above"
        receiver = Receiver(lent[0], memoryview(self._fill), self._filled, self._left, lent[1])
        self._filled = 0
        try:
            yield receiver
        finally:
            os.close(lent[0])
            self._count_received(receiver.received)

    def _count_received(self, count: int) -> None:
        assert self._channel is not None, "it has lent its socket"
        self._expects_continue = self._expects_continue and not count
        self.received += count
        self._left -= count
        self._paused = False
        if self._left:
            self._channel.resume_body()
        else:
            self._channel.end_body(b"")

    async def read_all(self, limit: int) -> bytes | None:
        """Returns the whole rest in one object, or None as soon as it is longer than `limit` bytes."""
        if self.length is not None and self.length > limit:
            return None
        piece = await self.read()
        if self.length is not None and len(piece) == self.length:
            return bytes(piece)
        whole = bytearray()
        while piece:
            whole += piece
            if len(whole) > limit:
                return None
            piece = await self.read()
        return bytes(whole)

    async def __aiter__(self) -> AsyncIterator[bytes | memoryview]:
        """Yields the pieces of `read` until the end."""
        while piece := await self.read():
            yield piece

    @property
    def complete(self) -> bool:
        """Whether the whole body was received (if chunked: also read)."""
        return self._left == 0 if self._decoder is None else self._decoder.done

    def left_at_most(self, limit: int) -> bool:
        """Returns whether the client will send at most `limit` more bytes unprompted."""
        return not self._expects_continue and self._decoder is None and self._left <= limit

    def drop(self) -> int:
        """Ends the reading of a body of known length; returns how many bytes of it the client has yet to send."""
        left = self._left
        self.release()
        return left

    def _take(self) -> bytes | memoryview:
        """Returns the undecoded bytes received since the last piece; frees the last piece."""
        if self._first:
            first, self._first = self._first, b""
            return first
        if self._fill is None or self._filled == 0:
            return b""
        piece = memoryview(self._fill)[: self._filled]
        self._fill, self._held = self._held, self._fill
        self._filled = 0
        if self._paused:
            self._paused = False
            assert self._channel is not None, "only a channel fills a buffer"
            self._channel.resume_body()
        return piece

    def _decode(self, decoder: ChunkedDecoder, piece: memoryview) -> None:
        try:
            events, used = decoder.feed(piece)
        except BodyMalformedError as error:
            self._error = error
            self._undecoded = None
            return
        self._undecoded = piece[used:] if used < len(piece) and not decoder.done else None
        self._slices.extend(event for event in events if isinstance(event, memoryview))
        if decoder.done and self._channel is not None:
            rest = bytes(piece[used:])
            if self._fill is not None and self._filled:
                rest += memoryview(self._fill)[: self._filled]
                self._filled = 0
            self._channel.end_body(rest)

    async def _wait(self) -> None:
        assert self._waiter is None, "one reader at a time"
        assert self._channel is not None, "without a channel the body is complete"
        if self._expects_continue:
            self._expects_continue = False
            self._channel.send_continue()
        self._waiter = asyncio.get_running_loop().create_future()
        self._channel.resume_body()  # the first wait: nothing was received before
        self._waiting_since = self._channel.time()
        place = self.place
        if place is not None:
            place.leave()
            if self.length is None or self.length > self._small_bytes:
                self.place = place = None
        try:
            await self._waiter
        finally:
            if place is not None:
                place.resume()
            self._waiter = None
            self._waited_s += self._channel.time() - self._waiting_since

    # --- the receiving side, called by the connection

    def get_buffer(self) -> memoryview:
        """Returns the memory for the socket to write to; never empty, never beyond the end of the body."""
        if self._fill is None:
            self._fill = self._new_buffer()
        room = memoryview(self._fill)[self._filled :]
        return room if self.length is None else room[: self._left]

    def _new_buffer(self) -> Buffer:
        if self.length is not None and self._left <= self._small_bytes:
            return bytearray(self._left)
        assert self._pool is not None, "a body that is not complete has a pool"
        return self._pool.take()

    def commit(self, count: int) -> None:
        """Called after `count` bytes were written into the buffer."""
        assert self._fill is not None, "get_buffer is called first"
        assert self._channel is not None, "bytes come from a channel"
        self._expects_continue = False
        self._filled += count
        self.received += count
        if self.length is not None:
            self._left -= count
            if self._left == 0:
                self._channel.end_body(b"")
        if self._filled == len(self._fill) and not self.complete:
            # The held buffer belongs to the handler until it reads again.
            self._paused = True
            self._channel.pause_body()
        self._wake()

    def sweep(self, now: float, last_received: float, stall_s: float) -> None:
        """Ends a read that waits for a client that is silent or too slow.

        Args:
            now: loop time.
            last_received: when the connection last received a byte, or began to wait for one.
            stall_s: how long the client may send nothing.
        """
        if self._waiter is None:
            return
        if now - max(last_received, self._waiting_since) > stall_s:
            self.fail(BodyStalledError(self.received, stall_s))
            return
        waited = self._waited_s + now - self._waiting_since
        if waited < RATE_WINDOW_S:
            return
        count = self.received - self._window_received
        if count < self.rate_min_bytes * waited:
            self.fail(BodySlowError(self.received, count / waited, self.rate_min_bytes))
            return
        # The next window begins within this wait.
        self._waited_s = self._waiting_since - now
        self._window_received = self.received

    def excuse(self, seconds: float) -> None:
        """Takes time in which the whole process stood still from the present wait."""
        self._waiting_since += seconds

    def fail(self, error: BodyError) -> None:
        """Called when no more bytes will be received; bytes received before are still read first."""
        if self._error is None and not self.complete:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def release(self) -> None:
        """Returns the buffers to the pool; called after the request, when no reader is left."""
        self._slices.clear()
        self._undecoded = None
        if self._pool is not None:
            for buffer in (self._fill, self._held):
                if buffer is not None:
                    self._pool.give(buffer)
        self._fill = self._held = None
        self._filled = 0
        self._first = b""


class WholeBody(BodyReader):
    """A body that arrived with its head, or none at all: most requests need no more of a `BodyReader`.

    Args:
        whole: the bytes.
    """

    __slots__ = ()

    complete = True  # no property: it costs nothing

    def __init__(self, whole: bytes) -> None:
        self.length = self.received = len(whole)
        self.rate_min_bytes = 0
        self.place = None
        self._first = whole

    async def read(self) -> bytes | memoryview:
        """Returns the whole body, and nothing the next time."""
        first, self._first = self._first, b""
        return first

    @contextmanager
    def by_thread(self) -> Iterator[Receiver | None]:
        """Gives None: nothing follows."""
        yield None

    def left_at_most(self, limit: int) -> bool:
        """Returns whether the client will send at most `limit` more bytes unprompted: it sends none."""
        return limit >= 0

    def drop(self) -> int:
        """Ends the reading; the client has sent all."""
        self._first = b""
        return 0

    def release(self) -> None:
        """Drops the bytes: there is no buffer."""
        self._first = b""
