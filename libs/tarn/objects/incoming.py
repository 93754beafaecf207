"""Bodies on their way from a client to the block store: verified at their end, in pieces, with bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, Self

from tarn.aio.thread_work import finish_work, settle_work
from tarn.block.port import Append, BlockWriter, ThreadWriter
from tarn.core.errors import Kind, Reason, TarnError
from tarn.objects.checksums import NO_ALGORITHMS, Algorithm, BodySums, Digests

__all__ = [
    "BodyMismatchError",
    "BodyTooLargeError",
    "IncomingBody",
    "StreamedBody",
    "THREAD_BYTES",
    "Write",
    "WriteByThread",
    "hash_and_write",
    "thread_of",
]

Write = Callable[[memoryview], Awaitable[None]]
"""Receives a piece of the body; on return it has copied or written the piece."""

WriteByThread = Callable[[Callable[[Append, int], None]], Awaitable[None]]
"""See `ThreadWriter.write_by_thread`."""

THREAD_BYTES: Final = 256 * 1024
"""Pieces of at least this size are hashed in a thread: MD5 of one takes 0.3 ms, a thread 0.05 ms."""


class IncomingBody(Protocol):
    """One body being received. It is read once, with `pump` or with `read_all`, which verify it at its end."""

    @property
    def size(self) -> int | None:
        """Announced bytes of the object; None if the client did not announce them."""
        ...

    async def pump(self, write: Write, by_thread: WriteByThread | None = None) -> BodySums:
        """Reads the body to its end and passes every piece to `write`. If it raises an error, the caller discards all
        bytes written.

        A body that a thread can receive may use `by_thread` for some of its bytes instead.
        """
        ...

    async def read_all(self, limit: int) -> tuple[bytes, BodySums]:
        """Returns the whole body in memory; refuses one above `limit` bytes."""
        ...


def thread_of(writer: BlockWriter) -> WriteByThread | None:
    """Returns how a thread writes by a writer; None if it does not."""
    return writer.write_by_thread if isinstance(writer, ThreadWriter) else None


class BodyTooLargeError(TarnError):
    """The body has more bytes than the front or the operation takes."""

    def __init__(self, bytes_max: int) -> None:
        text = f"the body has more than {bytes_max} bytes; nothing was stored"
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, text, bytes_max=str(bytes_max))


class BodyMismatchError(TarnError):
    """The body is not the one that the client announced, by its size or its MD5."""

    def __init__(self, text: str) -> None:
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, f"{text}; nothing was stored")


async def hash_and_write(
    hash_all: Callable[[], None], pieces: Sequence[memoryview], write: Write
) -> None:
    """Hashes in a thread while the same bytes are written."""
    hashed = asyncio.get_running_loop().run_in_executor(None, hash_all)
    try:
        for piece in pieces:
            await write(piece)
    except BaseException:
        # The thread still reads the buffer; its own outcome does not matter any more.
        await settle_work(hashed)
        raise
    await finish_work(hashed)


class StreamedBody:
    """`IncomingBody` of an iterator, such as an ASGI request or the file of a form.

    Small pieces are gathered to `THREAD_BYTES`, so that hashing and writing do not run piece by piece.

    Args:
        pieces: the bytes in order. Its errors pass through, and nothing is stored then. None: see `held`.
        size: announced bytes; None if unknown.
        bytes_max: most bytes of the body.
        md5: what the client says that the MD5 is, 16 bytes; None if it says nothing.
        wanted: checksums to compute beside MD5, for the entry.

    Raises:
        BodyTooLargeError: more than `bytes_max` are announced.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes] | None,
        *,
        bytes_max: int,
        size: int | None = None,
        md5: bytes | None = None,
        wanted: frozenset[Algorithm] = NO_ALGORITHMS,
    ) -> None:
        if size is not None and size > bytes_max:
            raise BodyTooLargeError(bytes_max)
        self.size = size
        self._pieces = pieces
        self._bytes_max = bytes_max
        self._md5 = md5
        self._digests = Digests(wanted)
        self._begun: bytes | bytearray = bytearray()

    @classmethod
    def held(cls, content: bytes, *, bytes_max: int, md5: bytes | None = None) -> Self:
        """Returns a body whose bytes have all come; nothing is waited for.

        Raises:
            BodyTooLargeError: it has more bytes than `bytes_max`.
        """
        body = cls(None, bytes_max=bytes_max, size=len(content), md5=md5)
        body._begun = content
        return body

    @classmethod
    async def begun(
        cls,
        pieces: AsyncIterator[bytes],
        *,
        bytes_max: int,
        small: int,
        md5: bytes | None = None,
        wanted: frozenset[Algorithm] = NO_ALGORITHMS,
    ) -> Self:
        """Returns a body whose size the client did not announce, after its first bytes were received.

        If the body ends within `small` bytes, its size is known, and it is stored in one piece.

        Raises:
            Exception: the errors of the iterator.
        """
        body = cls(pieces, bytes_max=bytes_max, md5=md5, wanted=wanted)
        if await body._gather(small + 1) <= small:
            body.size = len(body._begun)
        return body

    async def pump(self, write: Write, by_thread: WriteByThread | None = None) -> BodySums:  # noqa: ARG002 - its bytes come from an iterator of the loop
        """See `IncomingBody.pump`.

        Raises:
            BodyTooLargeError: it has more bytes than `bytes_max`.
            BodyMismatchError: it has another size or MD5 than the client announced.
            Exception: the errors of the iterator and of `write`.
        """
        while await self._gather(THREAD_BYTES):
            whole, self._begun = self._begun, bytearray()
            self._check_size(len(whole))
            view = memoryview(whole)
            if len(whole) < THREAD_BYTES:
                self._digests.update(view)
                await write(view)
            else:
                await hash_and_write(partial(self._digests.update, view), [view], write)
        return self._finish()

    async def read_all(self, limit: int) -> tuple[bytes, BodySums]:
        """See `IncomingBody.read_all`. Raises as `pump`; BodyTooLargeError also above `limit`."""
        await self._gather(limit + 1)
        whole = bytes(self._begun)
        if len(whole) > limit:
            raise BodyTooLargeError(limit)
        self._check_size(len(whole))
        self._digests.update(whole)
        return whole, self._finish()

    async def _gather(self, least: int) -> int:
        """Receives until so many bytes are held, or to the end; returns the number that is held."""
        while self._pieces is not None and len(self._begun) < least:
            piece = await anext(self._pieces, None)
            if piece is None:
                break
            self._begun += piece
        return len(self._begun)

    def _check_size(self, more: int) -> None:
        size = self._digests.size + more
        if size > self._bytes_max:
            raise BodyTooLargeError(self._bytes_max)
        if self.size is not None and size > self.size:
            raise BodyMismatchError(f"the body is longer than the {self.size} bytes announced")

    def _finish(self) -> BodySums:
        sums = self._digests.finish()
        if self.size not in (None, sums.size):
            text = f"{sums.size} of the {self.size} bytes announced were received"
            raise BodyMismatchError(text)
        if self._md5 not in (None, sums.md5):
            assert self._md5 is not None, "it differs from one"
            text = f"the MD5 of the body is {sums.md5.hex()}, not {self._md5.hex()} as announced"
            raise BodyMismatchError(text)
        return sums
