"""Sends one response: a single write for small ones, back pressure for streams, sendfile for files."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from typing import BinaryIO, Final, TypeVar

from tarn.aio.thread_work import finish_work
from tarn.block.port import FileSlice
from tarn_gateway.http.patience import Patience
from tarn_gateway.http.response import Response
from tarn_gateway.http.response_writer import ConnectionLostError, ResponseWriter

__all__ = ["LengthMismatchError", "close_body", "send_body"]

_T = TypeVar("_T")

ONE_WRITE_BYTES: Final = 64 * 1024
"""Bodies up to this size are copied after their head, so that one write sends both."""
FILE_CHUNK_BYTES: Final = 256 * 1024
FIRST_BYTES: Final = 256 * 1024
"""Bytes of a file that go with its head if they are in the page cache. With 512 KiB a range of 1 MiB took longer."""
SENDFILE_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of one turn of a thread, of whom there are few for all clients."""
WAITS_MAX: Final = 16
"""Waits of one turn: with `Patience.wait_ms` they bound its time."""
_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN})


class LengthMismatchError(Exception):
    """The length of a response's body differs from the length that its head announced."""

    def __init__(self, announced: int, sent: int) -> None:
        super().__init__(f"a response body of {sent} bytes or more was announced with {announced}")


async def close_body(response: Response) -> None:
    """Closes the file or iterator of a body, whether or not the body was sent."""
    body = response.body
    if isinstance(body, bytes):
        return
    if isinstance(body, FileSlice):
        body.file.close()
        return
    close = getattr(body, "aclose", None)
    if close is not None:
        await close()


async def send_body(
    writer: ResponseWriter, head: bytes, response: Response, *, chunked: bool
) -> int:
    """Sends head and body; returns the bytes of the body.

    Raises:
        ConnectionLostError: the client has disconnected.
        LengthMismatchError: the iterator or the file has another length. Part of the body is sent, so
            only cutting the connection tells the client.
        Exception: an exception of the iterator; likewise.
    """
    body = response.body
    if isinstance(body, bytes):
        if len(body) <= ONE_WRITE_BYTES:
            writer.write(head + body)
        else:
            writer.write(head)
            writer.write(body)
        if writer.full:
            await writer.drain()
        return len(body)
    if isinstance(body, FileSlice):
        return await _send_file(writer, head, body)
    if chunked:
        return await _send_chunked(writer, head, body)
    return await _send_stream(writer, head, body, response.length)


async def _send_stream(
    writer: ResponseWriter,
    head: bytes,
    body: AsyncIterator[bytes | memoryview],
    length: int | None,
) -> int:
    sent = 0
    async for piece in body:
        size = len(piece)
        if length is not None and sent + size > length:
            raise LengthMismatchError(length, sent + size)
        if head:
            # The head waits for the first piece: an error of the first read is still a clean 500.
            if size <= ONE_WRITE_BYTES:
                writer.write(head + piece)
            else:
                writer.write(head)
                writer.write(piece)
            head = b""
        elif size:
            writer.write(piece)
        sent += size
        await writer.drain()
    if length is not None and sent != length:
        raise LengthMismatchError(length, sent)
    if head:
        writer.write(head)
    return sent


async def _send_chunked(
    writer: ResponseWriter, head: bytes, body: AsyncIterator[bytes | memoryview]
) -> int:
    sent = 0
    writer.write(head)
    async for piece in body:
        if not piece:
            continue
        writer.write(b"%x\r\n" % len(piece))
        writer.write(piece)
        writer.write(b"\r\n")
        sent += len(piece)
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    return sent


def _read_resident(file: BinaryIO, offset: int, count: int) -> bytes | bytearray | None:
    """Reads bytes of a file if they are in the page cache, so that the loop does not wait for a disk."""
    buffer = bytearray(count)
    try:
        got = os.preadv(file.fileno(), [buffer], offset, os.RWF_NOWAIT)
    except (BlockingIOError, AttributeError, OSError):
        return None
    return buffer if got == count else None


async def _send_file(writer: ResponseWriter, head: bytes, body: FileSlice) -> int:
    loop = asyncio.get_running_loop()
    if body.count <= ONE_WRITE_BYTES:
        data = _read_resident(body.file, body.offset, body.count)
        if data is None:
            read = loop.run_in_executor(None, os.pread, body.file.fileno(), body.count, body.offset)
            data = await _read_by_thread(read)
        if len(data) != body.count:
            raise LengthMismatchError(body.count, len(data))
        writer.write(head + data)
        await writer.drain()
        return body.count
    if writer.transport.get_extra_info("sslcontext") is None:
        await _sendfile(writer, head, body)
    else:
        writer.write(head)
        await _send_file_pieces(writer, body)
    return body.count


async def _send_file_pieces(writer: ResponseWriter, body: FileSlice) -> None:
    loop = asyncio.get_running_loop()
    sent = 0
    while sent < body.count:
        size = min(FILE_CHUNK_BYTES, body.count - sent)
        offset = body.offset + sent
        data = _read_resident(body.file, offset, size)
        if data is None:
            read = loop.run_in_executor(None, os.pread, body.file.fileno(), size, offset)
            data = await _read_by_thread(read)
        if not data:
            raise LengthMismatchError(body.count, sent)
        writer.write(memoryview(data))
        sent += len(data)
        await writer.drain()


async def _read_by_thread(work: asyncio.Future[_T]) -> _T:
    """The result of work in a thread, which uses a descriptor that is about to be closed.

    The error of cancelled work is fetched too: if the client disconnected, that caused both the failure of the
    work and the cancellation. Any other error is reported to the loop's exception handler.
    """

    def tell(error: BaseException) -> None:
        if not isinstance(error, ConnectionLostError):
            what = {"message": "reading a file for a client that left failed", "exception": error}
            work.get_loop().call_exception_handler(what)

    return await finish_work(work, on_lost_error=tell)


def _sendfile_piece(
    target: int, source: int, offset: int, count: int, patience: Patience
) -> tuple[int, bool]:
    """Sends until the socket takes no more; returns the bytes sent, and whether it takes no more now. Otherwise fewer
    bytes than `count` are the end of the file. Waits a moment for a client that reads quickly.

    Raises:
        ConnectionLostError: the client has disconnected.
        OSError: the file cannot be read.
    """
    sent = waits = 0
    try:
        while sent < count:
            try:
                more = os.sendfile(target, source, offset + sent, count - sent)
            except BlockingIOError:
                waits += 1
                if waits > WAITS_MAX or not patience.wait(target):
                    return sent, True
                continue
            if not more:
                break
            sent += more
    except OSError as error:
        if error.errno in _GONE:
            raise ConnectionLostError from None
        raise
    return sent, False


def _begin_file(writer: ResponseWriter, target: int, head: bytes, body: FileSlice) -> int:
    """Sends the head, and with it the first bytes of a file that is in the page cache; returns how many of them.

    A client that reads has them while a thread begins. What the socket does not take of the head waits in the
    transport.
    """
    sent = 0
    if not writer.transport.get_write_buffer_size():
        first = _read_resident(body.file, body.offset, min(body.count, FIRST_BYTES))
        try:
            sent = os.writev(target, [head, first or b""])
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in _GONE:
                raise ConnectionLostError from None
            raise
    writer.write(head[sent:])
    return max(0, sent - len(head))


async def _sendfile(writer: ResponseWriter, head: bytes, body: FileSlice) -> None:
    """Uses sendfile(2) on a duplicate of the socket's descriptor, which the transport does not know.

    Runs in a thread, in pieces, because reading the file may wait for the disk. The socket is
    non-blocking, so a slow client occupies no thread.
    """
    loop = asyncio.get_running_loop()
    target = os.dup(writer.transport.get_extra_info("socket").fileno())
    try:
        sent = _begin_file(writer, target, head, body)
        await writer.flush()
        while sent < body.count:
            size = min(SENDFILE_BYTES, body.count - sent)
            count, is_full = await _read_by_thread(
                loop.run_in_executor(
                    None,
                    _sendfile_piece,
                    target,
                    body.file.fileno(),
                    body.offset + sent,
                    size,
                    writer.patience,
                )
            )
            if writer.lost:
                raise ConnectionLostError
            sent += count
            if is_full:
                await writer.writable(target)
            elif count < size:
                raise LengthMismatchError(body.count, sent)
    finally:
        os.close(target)
