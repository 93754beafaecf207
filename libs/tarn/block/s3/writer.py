"""Writes a body of unknown size: holds up to one part, then sends the parts of a multipart upload.

A writer sends a part before it accepts more: this is the back pressure, and it limits a transfer to one
part of memory. Large writers are counted, because a part is much larger than a chunk.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import Final, Self

from tarn.aio.close_guard import CloseGuard
from tarn.block.keys import METADATA_PREFIX, PART_NUMBER_MAX
from tarn.block.port import CHUNK_BYTES, BlockKey
from tarn.block.s3.names import ObjectKey
from tarn.block.s3.objects import Objects
from tarn.block.s3.spool import Held
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["LargeWrites", "S3Writer"]

_SMALL_BYTES: Final = CHUNK_BYTES
"""Bytes that every writer may hold without being counted, as in the other drivers."""


class LargeWrites:
    """Limits the number of writers that hold more than a chunk.

    Args:
        limit: maximum number of such writers.
        seconds: how long a writer waits for its turn: long enough for a burst, but bounded.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._room = asyncio.Semaphore(limit)
        self._limit = limit
        self._seconds = seconds

    async def enter(self) -> None:
        """Waits for a free place. Each writer takes only one, so that writers cannot deadlock.

        Raises:
            TarnError: EXHAUSTED if no place became free in time.
        """
        try:
            async with asyncio.timeout(self._seconds):
                await self._room.acquire()
        except TimeoutError:
            text = (
                f"{self._limit} large bodies are being written, which is the limit; try again later"
            )
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text) from None

    def leave(self) -> None:
        """Frees the place."""
        self._room.release()


class S3Writer:
    """A `BlockWriter`.

    Args:
        objects: makes the calls.
        large: limits concurrent large writers.
        guard: counts the calls that use the store.
        key: the block, for errors.
        at: its object.
        replaces: whether the object takes the place of the one of its name.
    """

    def __init__(
        self,
        objects: Objects,
        large: LargeWrites,
        guard: CloseGuard,
        key: BlockKey,
        at: ObjectKey,
        *,
        replaces: bool = False,
    ) -> None:
        self._objects = objects
        self._large = large
        self._guard = guard
        self._key = key
        self._at = at
        self._held = bytearray()
        self._stamp = ""
        self._upload_id: str | None = None
        self._parts: list[tuple[int, str]] = []
        self._replaces = replaces
        is_compared = key.path.startswith(METADATA_PREFIX) and not replaces
        self._digest = hashlib.sha256() if is_compared else None
        self._counted = False
        self._ended = False

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `BlockWriter.write`. After a failure only `abort` is allowed."""
        self._check()
        part_bytes = self._objects.limits.part_bytes
        with memoryview(data).cast("B") as view:
            done = 0
            while done < len(view):
                if len(self._held) == part_bytes:  # and there is more: not the last one
                    with self._guard:
                        await self._send()
                size = min(part_bytes - len(self._held), len(view) - done)
                if not self._counted and len(self._held) + size > _SMALL_BYTES:
                    await self._large.enter()
                    self._counted = True
                self._held += view[done : done + size]
                done += size

    async def _send(self) -> None:
        """Sends the held bytes as the next part."""
        number = len(self._parts) + 1
        if number > PART_NUMBER_MAX:
            text = f"a block has more than {PART_NUMBER_MAX} parts; enlarge blockstore.s3.part_size"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        if self._upload_id is None:
            self._stamp = self._objects.stamp()
            self._upload_id = await self._objects.begin(self._at, self._stamp)
        if self._digest is not None:
            await asyncio.to_thread(self._digest.update, self._held)
        etag = await self._objects.part(self._at, self._upload_id, number, Held(self._held))
        if etag is None:
            text = f"another process ended the multipart upload of {self._at}"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        self._parts.append((number, etag))
        self._held = bytearray()

    async def finish(self) -> None:
        """See `BlockWriter.finish`. A failure has aborted the writer."""
        self._check()
        try:
            with self._guard:
                if self._upload_id is None and self._replaces:
                    await self._objects.set(self._at, self._held)
                elif self._upload_id is None:
                    await self._objects.put(self._key, self._at, self._held)
                else:
                    await self._finish_parts(self._upload_id)
        finally:
            await self.abort()

    async def _finish_parts(self, upload_id: str) -> None:
        await self._send()
        if self._replaces:
            if not await self._objects.join(self._at, upload_id, self._parts):
                text = f"another process ended the multipart upload of {self._at}"
                raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        else:
            await self._objects.complete(
                self._key, self._at, upload_id, self._parts, self._stamp, self._hashed
            )
        self._upload_id = None

    def _hashed(self) -> bytes:
        return b"" if self._digest is None else self._digest.digest()

    async def abort(self) -> None:
        """See `BlockWriter.abort`. The bucket's lifecycle rule removes the parts that this cannot remove."""
        self._ended = True
        self._held = bytearray()
        upload_id, self._upload_id = self._upload_id, None
        try:
            if upload_id is not None:
                with suppress(TarnError):
                    await self._objects.abort(self._at, upload_id)
        finally:
            if self._counted:
                self._counted = False
                self._large.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.abort()

    def _check(self) -> None:
        if self._ended:
            raise RuntimeError("the writer was finished or aborted")
