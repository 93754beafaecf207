"""Holds a client's part until it can be sent: in memory while it is small, else in an unnamed file.

A part is sent to the server in one request. The request states its length first, may have to be repeated, and
must not begin before the client's checksums are verified. So the whole part must be stored, and a part may
have 5 GiB.
"""

from __future__ import annotations

import errno
import io
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tarn.aio.thread_work import run_in_thread
from tarn.block.port import CHUNK_BYTES
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["FileBody", "Held", "PartBody", "Spool"]

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class PartBody(Protocol):
    """The bytes of a part, for one or more attempts."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def open(self) -> io.RawIOBase | io.BytesIO:
        """Returns the bytes from their start; the caller closes the stream. Runs in a thread."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes in memory, which must not change."""

    data: bytes | bytearray

    @property
    def size(self) -> int:
        """See `PartBody.size`."""
        return len(self.data)

    def open(self) -> io.BytesIO:
        """See `PartBody.open`."""
        return io.BytesIO(self.data)


@dataclass(frozen=True, slots=True)
class FileBody:
    """Bytes of an open file."""

    fd: int
    size: int

    def open(self) -> io.RawIOBase:
        """See `PartBody.open`."""
        return _Reader(self.fd, self.size)


class _Reader(io.RawIOBase):
    """The bytes of a file from its start, with its own position and descriptor. A timed-out attempt may
    still read while the next one begins, and after the file was closed."""

    def __init__(self, fd: int, size: int) -> None:
        super().__init__()
        self._fd = os.dup(fd)
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Returns True: the body is read once for its signature and once to be sent."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the position and returns it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Returns the position."""
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # no Buffer before 3.12
        """Fills the buffer with the available bytes; returns their number."""
        with memoryview(buffer).cast("B") as view:
            size = os.preadv(self._fd, [view[: self._size - self._at]], self._at)
        self._at += size
        return size

    def close(self) -> None:
        """Closes the descriptor. Idempotent."""
        if not self.closed:
            os.close(self._fd)
        super().close()


class Spool:
    """Stores bytes until they are sent.

    Args:
        folder: holds the file; None: the system's temporary folder.
        memory_bytes: a larger body is stored in a file.
    """

    def __init__(self, folder: Path | None, memory_bytes: int) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._held = bytearray()
        self._file: int | None = None
        self.size = 0

    async def write(self, view: memoryview) -> None:
        """Appends all of the bytes.

        Raises:
            TarnError: UNAVAILABLE if the disk is full; INTERNAL if the file cannot be created.
        """
        if self._hold(view):
            await run_in_thread(self._spill)

    def append(self, view: memoryview) -> None:
        """The same in a thread, which may wait for the disk."""
        if self._hold(view):
            self._spill()

    def _hold(self, view: memoryview) -> bool:
        """Returns whether the held bytes have to go to the file."""
        self._held += view
        self.size += len(view)
        return len(self._held) > (self._memory_bytes if self._file is None else CHUNK_BYTES)

    def _spill(self) -> None:
        held, self._held = self._held, bytearray()
        try:
            self._append(held)
        except OSError as error:
            text = (
                f"cannot keep a part in {self._folder or tempfile.gettempdir()}: {error.strerror}; free "
                "space there, or set blockstore.s3.spool to another folder"
            )
            if error.errno in _FULL:
                raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error
            raise TarnError(Kind.INTERNAL, Reason.INTERNAL, text) from error

    def _append(self, held: bytearray) -> None:
        if self._file is None:
            folder = str(self._folder or tempfile.gettempdir())
            fd, name = tempfile.mkstemp(prefix="tarn-part-", dir=folder)
            self._file = fd
            Path(name).unlink()
        with memoryview(held) as view:
            done = 0
            while done < len(view):
                done += os.write(self._file, view[done:])

    async def body(self) -> Held | FileBody:
        """Returns all bytes; valid until `close`."""
        if self._file is None:
            return Held(self._held)
        await run_in_thread(self._spill)
        return FileBody(self._file, self.size)

    def close(self) -> None:
        """Discards the bytes. Idempotent."""
        self._held = bytearray()
        fd, self._file = self._file, None
        if fd is not None:
            os.close(fd)
