"""Writes a body of unknown size: holds up to one part, then sends the parts of a multipart upload.

Parts are sent while the next one is received, if there is room for more parts; otherwise before the writer accepts
more. This is the back pressure: a transfer holds three parts at most, and all of them together no more than
`LargeWrites` allows, because a part is much larger than a chunk.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Self, TypeVar

from tarn.aio.close_guard import CloseGuard
from tarn.aio.thread_work import run_in_thread
from tarn.block.keys import METADATA_PREFIX, PART_NUMBER_MAX
from tarn.block.port import CHUNK_BYTES, THREAD_TURN_BYTES, Append, BlockKey
from tarn.block.s3.ahead import Ahead
from tarn.block.s3.names import ObjectKey
from tarn.block.s3.objects import Objects
from tarn.block.s3.spool import Held
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["LargeWrites", "S3Writer"]

T = TypeVar("T")

_SMALL_BYTES: Final = CHUNK_BYTES
"""Bytes that every writer may hold without being counted, as in the other drivers."""
_BESIDE_MAX: Final = 2
"""Parts that a writer sends beside the one that it holds."""


class LargeWrites:
    """Limits the number of parts that writers hold, beyond a chunk each.

    Args:
        limit: maximum number of such parts.
        seconds: how long a writer waits for its turn: long enough for a burst, but bounded.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._room = asyncio.Semaphore(limit)
        self._limit = limit
        self._seconds = seconds

    async def enter(self) -> None:
        """Waits for a free place. Each writer waits only for its first one, so that writers cannot deadlock.

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

    async def try_enter(self) -> bool:
        """Takes a place if one is free and nobody waits for it; never waits. Returns whether it did."""
        return not self._room.locked() and await self._room.acquire()

    def leave(self) -> None:
        """Frees a place."""
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
        # Parts that are sent beside the held one; at most _BESIDE_MAX, oldest first.
        self._sending: deque[Ahead[tuple[int, str]]] = deque()
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
                        await self._send_beside()
                size = min(part_bytes - len(self._held), len(view) - done)
                if not self._counted and len(self._held) + size > _SMALL_BYTES:
                    await self._large.enter()
                    self._counted = True
                self._held += view[done : done + size]
                done += size

    async def write_by_thread(self, work: Callable[[Append, int], T]) -> T:
        """See `ThreadWriter.write_by_thread`: the thread fills a part. After a failure only `abort` is allowed."""
        self._check()
        part_bytes = self._objects.limits.part_bytes
        if not self._counted:
            await self._large.enter()
            self._counted = True
        if len(self._held) == part_bytes:
            with self._guard:
                await self._send_beside()
        next_part = bytearray()

        def append(data: memoryview) -> None:
            room = part_bytes - len(self._held)
            self._held += data[:room]
            next_part.extend(data[room:])

        most = min(part_bytes - len(self._held), THREAD_TURN_BYTES)
        found = await run_in_thread(lambda: work(append, most))
        if next_part:
            with self._guard:
                await self._send_beside()
            self._held = next_part
        return found

    async def _send_beside(self) -> None:
        """Begins to send the held bytes as the next part, or sends them if there is no room for another part."""
        await self._await_parts(_BESIDE_MAX - 1)
        part = await self._next_part()
        while not await self._large.try_enter():
            if not self._sending:
                self._parts.append(await part())
                return
            await self._await_parts(len(self._sending) - 1)  # gives its place back
        self._sending.append(Ahead(self._objects.tasks, part, self._large.leave))

    async def _await_parts(self, left: int) -> None:
        """Waits until at most so many parts are being sent. If one fails or this is cancelled, `abort` ends them."""
        while len(self._sending) > left:
            self._parts.append(await self._sending[0].result())
            self._sending.popleft()

    async def _next_part(self) -> Callable[[], Awaitable[tuple[int, str]]]:
        """Takes the held bytes; returns the call that sends them as the next part, and returns its number and ETag."""
        number = len(self._parts) + len(self._sending) + 1
        if number > PART_NUMBER_MAX:
            text = f"a block has more than {PART_NUMBER_MAX} parts; enlarge blockstore.s3.part_size"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        if self._upload_id is None:
            self._stamp = self._objects.stamp()
            self._upload_id = await self._objects.begin(self._at, self._stamp)
        if self._digest is not None:
            await asyncio.to_thread(self._digest.update, self._held)
        held, self._held = self._held, bytearray()
        return partial(self._part, self._upload_id, number, held)

    async def _part(self, upload_id: str, number: int, held: bytearray) -> tuple[int, str]:
        with self._guard:
            etag = await self._objects.part(self._at, upload_id, number, Held(held))
        if etag is None:
            text = f"another process ended the multipart upload of {self._at}"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        return number, etag

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
        await self._send_beside()
        await self._await_parts(0)
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
            while self._sending:
                await self._sending[0].cancel()
                self._sending.popleft()
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
