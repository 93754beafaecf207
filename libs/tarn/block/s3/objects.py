"""Objects of a server, with everything that makes a call on them sure: repetition, and the check of whose
object it is that answers to a name.

Write-once. Every object carries the stamp of the write that made it. Where the server has conditional
writes (`If-None-Match: *`) it decides between racing writers, and the loser looks: its own stamp
means that an answer was lost, equal bytes under `_tarn/` that another one wrote the same; all else is
BlockExistsError. Where it has none, the name is looked up before each attempt: that finds every
object that is there, but two writers that race may both believe that they wrote. It does no harm to
`data/`, whose names are made for one write, nor to `_tarn/`, whose names are made of the content.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from tarn.block.keys import METADATA_PREFIX
from tarn.block.port import BlockExistsError, BlockKey
from tarn.block.s3.faults import CallError, Failure, refused
from tarn.block.s3.names import ObjectKey
from tarn.block.s3.retrying import Retrying
from tarn.block.s3.settings import S3Limits
from tarn.block.s3.spool import PartBody
from tarn.block.s3.wire import PAGE_MAX, Found, Listed, Wire
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["Abilities", "Objects"]

T = TypeVar("T")

_WINDOW_BYTES_MAX: Final = 8 << 20
_WINDOW_BYTES_MIN: Final = 256 << 10
_WINDOWS_BYTES: Final = 256 << 20
"""What all streams of a process may hold: the more of them, the smaller their windows."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What not every server has.

    Attributes:
        put_if_absent: PutObject with `If-None-Match: *`.
        complete_if_absent: CompleteMultipartUpload with it.
    """

    put_if_absent: bool
    complete_if_absent: bool


class Objects:
    """Calls on objects that are repeated as far as is safe. Raises `TarnError`s only.

    Args:
        wire: makes the calls.
        retrying: repeats them.
        abilities: of the server.
        limits: of this process.
        chance: makes stamps.
    """

    def __init__(
        self,
        wire: Wire,
        retrying: Retrying,
        abilities: Abilities,
        limits: S3Limits,
        chance: random.Random,
    ) -> None:
        self.limits = limits
        self._wire = wire
        self._retrying = retrying
        self._abilities = abilities
        self._chance = chance
        self._streams = 0

    def stamp(self) -> str:
        """A name for one write."""
        return self._chance.randbytes(16).hex()

    async def _run(self, doing: str, attempt: Callable[[], Awaitable[T]], size: int = 0) -> T:
        try:
            return await self._retrying(doing, attempt, size)
        except CallError as fault:
            raise refused(fault, doing) from fault

    async def _once(self, call: Callable[[], Awaitable[T]], size: int = 0) -> T:
        return await self._retrying.once(call, size)

    # Reading

    async def find(self, at: ObjectKey) -> Found | None:
        """Size and stamp of an object; None if there is none."""
        return await self._run(f"look at {at}", lambda: self._find(at))

    async def _find(self, at: ObjectKey) -> Found | None:
        try:
            return await self._once(lambda: self._wire.head(at))
        except CallError as fault:
            if fault.failure is Failure.ABSENT:
                return None
            raise

    async def window(self, at: ObjectKey, start: int, end: int) -> tuple[memoryview, int] | None:
        """Bytes `[start, end)`, clipped, and the size of the whole; None if there is no object."""

        async def attempt() -> tuple[memoryview, int] | None:
            try:
                return await self._once(lambda: self._wire.get(at, start, end))
            except CallError as fault:
                if fault.failure is Failure.ABSENT:
                    return None
                if fault.failure is not Failure.PAST_END:
                    raise
            found = await self._find(at)
            return None if found is None else (memoryview(b""), found.size)

        return await self._run(f"read {at}", attempt)

    async def windows(
        self, at: ObjectKey, start: int, end: int | None
    ) -> AsyncIterator[memoryview]:
        """The bytes up to `end` (or the object's) in pieces that may be large; ends early where the
        object does, and gives nothing if there is none. Nothing is on its way while the caller works,
        so a slow client keeps neither a request nor a connection."""
        self._streams += 1
        try:
            while end is None or start < end:
                size = min(
                    max(_WINDOWS_BYTES // self._streams, _WINDOW_BYTES_MIN), _WINDOW_BYTES_MAX
                )
                stop = start + size if end is None else min(start + size, end)
                found = await self.window(at, start, stop)
                if found is None or not found[0]:
                    return
                yield found[0]
                start += len(found[0])
                if start >= found[1]:
                    return
        finally:
            self._streams -= 1

    async def page(
        self, bucket: str, prefix: str, after: str, limit: int
    ) -> tuple[list[Listed], bool]:
        """Up to `limit` objects after a key, and whether there may be more."""
        limit = min(limit, PAGE_MAX)

        async def attempt() -> tuple[list[Listed], bool]:
            return await self._once(lambda: self._wire.page(bucket, prefix, after, limit))

        return await self._run(f"list s3://{bucket}/{prefix}", attempt)

    # Writing

    async def put(self, key: BlockKey, at: ObjectKey, body: bytes | bytearray | memoryview) -> None:
        """Writes a whole block in one request.

        Raises:
            BlockExistsError: another block has the name.
        """
        stamp = self.stamp()
        conditional = self._abilities.put_if_absent

        def digest() -> bytes:
            return hashlib.sha256(body).digest()

        async def attempt() -> None:
            if not conditional and await self._is_done(key, at, stamp, digest):
                return
            try:
                await self._once(
                    lambda: self._wire.put(at, body, stamp, if_absent=conditional), len(body)
                )
            except CallError as fault:
                if fault.failure is not Failure.TAKEN:
                    raise
                if not await self._is_done(key, at, stamp, digest):
                    raise CallError(Failure.BUSY, "another write of it is under way") from fault

        await self._run(f"write {at}", attempt, len(body))

    async def _is_done(
        self, key: BlockKey, at: ObjectKey, stamp: str, digest: Callable[[], bytes]
    ) -> bool:
        """Whether the object is the one that the write `stamp` was to make; False if there is none.

        Raises:
            BlockExistsError: it is another one.
        """
        found = await self._find(at)
        if found is None:
            return False
        if found.stamp == stamp:
            return True
        if key.path.startswith(METADATA_PREFIX):
            hashed = hashlib.sha256()
            async for piece in self.windows(at, 0, found.size):
                hashed.update(piece)
            if hashed.digest() == digest():
                return True
        raise BlockExistsError(key)

    async def set(self, at: ObjectKey, body: bytes | bytearray) -> None:
        """Writes an object of the driver's own, over what is there."""
        stamp = self.stamp()

        async def attempt() -> None:
            await self._once(lambda: self._wire.put(at, body, stamp, if_absent=False))

        await self._run(f"write {at}", attempt)

    async def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Removes objects, absent ones too."""
        for start in range(0, len(keys), PAGE_MAX):
            some = keys[start : start + PAGE_MAX]

            async def attempt(some: Sequence[str] = some) -> None:
                await self._once(lambda: self._wire.delete(bucket, some))

            await self._run(f"delete {len(some)} objects of {bucket}", attempt)

    # Multipart uploads

    async def begin(self, at: ObjectKey, stamp: str) -> str:
        """Begins a multipart upload of a key that is this write's alone; its id."""
        tries = 0

        async def attempt() -> str:
            nonlocal tries
            tries += 1
            return await self._once(lambda: self._wire.begin(at, stamp))

        upload_id = await self._run(f"begin to write {at}", attempt)
        if tries > 1:
            # An answer may have been lost, and with it the id of an upload that nobody would end.
            with suppress(TarnError):
                for other in await self._unfinished(at):
                    if other != upload_id:
                        await self.abort(at, other)
        return upload_id

    async def _unfinished(self, at: ObjectKey) -> list[str]:
        doing = f"list uploads of {at}"
        return await self._run(doing, lambda: self._once(lambda: self._wire.unfinished(at)))

    async def part(self, at: ObjectKey, upload_id: str, number: int, body: PartBody) -> str | None:
        """Uploads one part; its ETag, or None if there is no such upload. May be repeated: the same
        bytes are put in the same place."""

        async def attempt() -> str | None:
            try:
                return await self._once(
                    lambda: self._wire.part(at, upload_id, number, body), body.size
                )
            except CallError as fault:
                if fault.failure in (Failure.NO_UPLOAD, Failure.ABSENT):
                    return None
                raise

        return await self._run(f"write part {number} of {at}", attempt, body.size)

    async def complete(
        self,
        key: BlockKey,
        at: ObjectKey,
        upload_id: str,
        parts: Sequence[tuple[int, str]],
        stamp: str,
        digest: Callable[[], bytes],
    ) -> None:
        """Makes a block of the parts of our own writer.

        Raises:
            BlockExistsError: another block has the name. The upload is still there.
        """
        conditional = self._abilities.complete_if_absent

        async def attempt() -> None:
            if not conditional and await self._is_done(key, at, stamp, digest):
                return
            try:
                await self._once(
                    lambda: self._wire.complete(at, upload_id, parts, if_absent=conditional)
                )
            except CallError as fault:
                if fault.failure not in (Failure.TAKEN, Failure.NO_UPLOAD):
                    raise
                if await self._is_done(key, at, stamp, digest):
                    return
                if fault.failure is Failure.NO_UPLOAD:
                    raise
                raise CallError(Failure.BUSY, "another write of it is under way") from fault

        await self._run(f"write {at}", attempt)

    async def join(self, at: ObjectKey, upload_id: str, parts: Sequence[tuple[int, str]]) -> bool:
        """Makes an object of a client's parts; False if there is no such upload (any more).

        Raises:
            TarnError: UPLOAD_PART_INVALID if a part was replaced since its ETag was given out.
        """

        async def attempt() -> bool:
            try:
                await self._once(lambda: self._wire.complete(at, upload_id, parts, if_absent=False))
            except CallError as fault:
                if fault.failure in (Failure.NO_UPLOAD, Failure.ABSENT):
                    return False
                if fault.failure is Failure.BAD_PART:
                    text = "a part was uploaded again by a request that was late; upload it again"
                    raise TarnError(
                        Kind.INVALID, Reason.UPLOAD_PART_INVALID, f"{text} ({fault.text})"
                    ) from fault
                raise
            return True

        return await self._run(f"complete {at}", attempt)

    async def abort(self, at: ObjectKey, upload_id: str) -> None:
        """Ends a multipart upload and removes its parts; no error if it has ended."""

        async def attempt() -> None:
            try:
                await self._once(lambda: self._wire.abort(at, upload_id))
            except CallError as fault:
                if fault.failure not in (Failure.NO_UPLOAD, Failure.ABSENT):
                    raise

        await self._run(f"abort the upload of {at}", attempt)
