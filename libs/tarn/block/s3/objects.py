"""Objects of a server, with safe calls: repeats them, and checks which write made the object under a name.

Write-once: every object carries the stamp of the write that made it. If the server has conditional writes
(`If-None-Match: *`), it decides between racing writers, and the loser reads the object. If the object has the
loser's own stamp, an answer was lost. If it has equal bytes under `_tarn/`, another writer wrote the same, perhaps long
ago: the loser writes it again, unconditionally, which gives it a new time.
Everything else is `BlockExistsError`. If the server lacks conditional writes, the name is looked up before
each attempt. That finds every existing object, but two racing writers may both believe that they wrote. This
does no harm: names under `data/` are made for one write, and names under `_tarn/` derive from the content.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from tarn.aio.parallel import for_each
from tarn.aio.task_set import TaskSet
from tarn.block.keys import METADATA_PREFIX
from tarn.block.port import BlockExistsError, BlockKey, PresignedWrite
from tarn.block.s3.ahead import Ahead
from tarn.block.s3.faults import CallError, Failure, refused
from tarn.block.s3.names import ObjectKey
from tarn.block.s3.retrying import Retrying
from tarn.block.s3.settings import S3Limits
from tarn.block.s3.spool import PartBody
from tarn.block.s3.wire import PAGE_MAX, ListedObject, ObjectHead, Wire
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["Abilities", "Objects"]

T = TypeVar("T")

_WINDOW_BYTES_MAX: Final = 4 << 20
_WINDOWS_AHEAD: Final = 2
_WINDOW_BYTES_MIN: Final = 256 << 10
_WINDOWS_BYTES: Final = 256 << 20
"""Bound on the memory of all streams of a process: with more streams, each has smaller windows."""


_CONDITION: Final = (("If-None-Match", "*"),)
_COPY_BYTES_MAX: Final = 256 << 20
"""Larger objects are copied in parts, because one copy may take no longer than an attempt."""
_COPIES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Abilities:
    """Optional features of a server.

    Attributes:
        put_if_absent: PutObject with `If-None-Match: *`.
        complete_if_absent: CompleteMultipartUpload with `If-None-Match: *`.
    """

    put_if_absent: bool
    complete_if_absent: bool


class Objects:
    """Calls on objects, repeated as far as is safe. Raises only `TarnError`s.

    Args:
        wire: makes the calls.
        retrying: repeats them.
        abilities: the server's optional features.
        limits: the limits of this process.
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
        self.tasks = TaskSet()

    @property
    def binds_writes(self) -> bool:
        """Whether the server has conditional PUTs."""
        return self._abilities.put_if_absent

    def stamp(self) -> str:
        """Returns a new unique stamp for one write."""
        return self._chance.randbytes(16).hex()

    async def _run(self, doing: str, attempt: Callable[[], Awaitable[T]], size: int = 0) -> T:
        try:
            return await self._retrying(doing, attempt, size)
        except CallError as fault:
            raise refused(fault, doing) from fault

    async def _once(self, call: Callable[[], Awaitable[T]], size: int = 0) -> T:
        return await self._retrying.once(call, size)

    # Reading

    async def find(self, at: ObjectKey) -> ObjectHead | None:
        """Returns size and stamp of an object; None if it does not exist."""
        return await self._run(f"look at {at}", lambda: self._find(at))

    async def _find(self, at: ObjectKey) -> ObjectHead | None:
        try:
            return await self._once(lambda: self._wire.head(at))
        except CallError as fault:
            if fault.failure is Failure.ABSENT:
                return None
            raise

    async def window(self, at: ObjectKey, start: int, end: int) -> tuple[memoryview, int] | None:
        """Returns bytes `[start, end)`, clipped, and the size of the whole object; None if it does not exist."""

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
        self, at: ObjectKey, start: int, end: int | None, *, first_bytes: int = _WINDOW_BYTES_MAX
    ) -> AsyncGenerator[memoryview, None]:
        """Yields the bytes up to `end`, or the object's end, in pieces that may be large. Yields nothing if
        the object does not exist.

        The next two windows are fetched while the caller works: one alone would leave the link to the store idle
        between its requests. They are fetched whole, whether or not the caller continues, so a slow client occupies
        neither a request nor a connection.

        Args:
            at: the object.
            start: first byte.
            end: behind the last byte; None: of the object.
            first_bytes: of the first window at most, so that an answer begins soon.
        """
        self._streams += 1
        # The ends of windows, and their bytes; each begins at the end of the one before.
        ahead: deque[tuple[int, Ahead[tuple[memoryview, int] | None]]] = deque()
        size = min(self._window_bytes(), first_bytes)
        try:
            while end is None or start < end:
                if not ahead:
                    stop = start + size if end is None else min(start + size, end)
                    found = await self.window(at, start, stop)
                else:
                    stop, first = ahead[0]
                    found = await first.result()
                    ahead.popleft()
                if found is None or not found[0]:
                    return
                start += len(found[0])
                last = found[1] if end is None else min(end, found[1])
                if start < min(stop, last):
                    text = f"the server sent only a part of bytes of {at} before {stop}"
                    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
                size = self._window_bytes()
                asked = ahead[-1][0] if ahead else start
                while asked < last and size > _WINDOW_BYTES_MIN and len(ahead) < _WINDOWS_AHEAD:
                    begin, asked = asked, min(asked + size, last)
                    work = partial(self.window, at, begin, asked)
                    ahead.append((asked, Ahead(self.tasks, work)))
                yield found[0]
                if start >= last:
                    return
        finally:
            self._streams -= 1
            for _, each in ahead:
                await each.cancel()

    def _window_bytes(self) -> int:
        """Returns the size of a window. A stream holds its caller's and those ahead, unless they are the smallest."""
        share = _WINDOWS_BYTES // self._streams // (1 + _WINDOWS_AHEAD)
        return min(max(share, _WINDOW_BYTES_MIN), _WINDOW_BYTES_MAX)

    async def page(
        self, bucket: str, prefix: str, after: str, limit: int
    ) -> tuple[list[ListedObject], bool]:
        """Returns up to `limit` objects after a key, and whether there may be more."""
        limit = min(limit, PAGE_MAX)

        async def attempt() -> tuple[list[ListedObject], bool]:
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
            if not conditional and await self._is_done(key, at, stamp, digest, again):
                return
            try:
                await put(if_absent=conditional)
            except CallError as fault:
                if fault.failure is not Failure.TAKEN:
                    raise
                if not await self._is_done(key, at, stamp, digest, again):
                    raise CallError(Failure.BUSY, "another write of it is under way") from fault

        async def put(*, if_absent: bool) -> None:
            await self._once(
                lambda: self._wire.put(at, body, stamp, if_absent=if_absent), len(body)
            )

        async def again() -> None:
            await put(if_absent=False)

        await self._run(f"write {at}", attempt, len(body))

    async def copy(
        self, source: ObjectKey, key: BlockKey, at: ObjectKey, size: int, etag: str
    ) -> bool:
        """Copies an object to which a client may still write; returns False if it does not exist. Safe to repeat.

        The stamp of the copy names the ETag of the source, because the copy may have another one: with keys of KMS, or
        in parts.

        Raises:
            BlockExistsError: the target is something else.
            TarnError: LINK_MISMATCH: the source has another ETag.
        """
        stamp, doing = f"copy-{etag}", f"copy {source} to {at}"

        async def is_copied() -> bool:
            found = await self._find(at)
            if found is not None and (found.stamp, found.size) != (stamp, size):
                raise BlockExistsError(key)
            return found is not None

        async def attempt() -> bool:
            if await is_copied():
                return True
            try:
                made = await self._once(lambda: self._wire.copy(source, at, stamp, etag), size)
            except CallError as fault:
                if fault.failure is Failure.ABSENT:
                    return False
                if fault.failure is Failure.LACKING:
                    raise _copies_nothing(at) from fault
                if fault.failure is Failure.TAKEN:
                    raise _changed(source) from fault
                raise
            if made != etag:
                await self._require_same(source, at, etag)
            return True

        if size <= _COPY_BYTES_MAX:
            return await self._run(doing, attempt)
        return await self._run(doing, is_copied) or await self._copy_in_parts(
            source, at, stamp, size, etag
        )

    async def _copy_in_parts(
        self, source: ObjectKey, at: ObjectKey, stamp: str, size: int, etag: str
    ) -> bool:
        parts: dict[int, str] = {}
        upload_id = await self.begin(at, stamp)

        async def one(number: int) -> None:
            start = (number - 1) * _COPY_BYTES_MAX
            span = (start, min(_COPY_BYTES_MAX, size - start))
            parts[number] = await self.copy_part(source, at, upload_id, number, span, etag)

        try:
            await for_each(range(1, -(-size // _COPY_BYTES_MAX) + 1), one, _COPIES_AT_ONCE)
            if not all(parts.values()):
                await self.abort(at, upload_id)
                return False
            await self.join(at, upload_id, sorted(parts.items()))
        except BaseException:
            with suppress(TarnError):
                await self.abort(at, upload_id)
            raise
        await self._require_same(source, at, etag)
        return True

    async def _require_same(self, source: ObjectKey, at: ObjectKey, etag: str) -> None:
        """Removes a copy whose source has changed meanwhile, on a server that ignores the condition of copies."""
        found = await self.find(source)
        if found is None or found.etag != etag:
            await self.delete(at.bucket, [at.key])
            raise _changed(source)

    async def _is_done(
        self,
        key: BlockKey,
        at: ObjectKey,
        stamp: str,
        digest: Callable[[], bytes],
        again: Callable[[], Awaitable[None]],
    ) -> bool:
        """Returns True if the write `stamp` made the object; False if it is absent.

        Metadata with equal bytes is written `again`, so that it is young.

        Raises:
            BlockExistsError: another write made the object.
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
                await again()
                return True
        raise BlockExistsError(key)

    async def set(self, at: ObjectKey, body: bytes | bytearray) -> None:
        """Writes an object in one request, replacing an existing one: one of the driver's own, or of
        `BlockStore.open_replace`."""
        stamp = self.stamp()

        async def attempt() -> None:
            await self._once(lambda: self._wire.put(at, body, stamp, if_absent=False), len(body))

        await self._run(f"write {at}", attempt, len(body))

    async def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Removes objects. Absent ones are not an error."""
        for start in range(0, len(keys), PAGE_MAX):
            some = keys[start : start + PAGE_MAX]

            async def attempt(some: Sequence[str] = some) -> None:
                await self._once(lambda: self._wire.delete(bucket, some))

            await self._run(f"delete {len(some)} objects of {bucket}", attempt)

    async def versioning(self, bucket: str) -> str:
        """Returns the state of the bucket's versioning: `Enabled`, `Suspended`, or empty for never."""

        async def attempt() -> str:
            return await self._once(lambda: self._wire.versioning(bucket))

        return await self._run(f"ask for the versioning of {bucket}", attempt)

    # Multipart uploads

    async def begin(self, at: ObjectKey, stamp: str) -> str:
        """Begins a multipart upload of a key that only this write uses; returns the upload id."""
        tries = 0

        async def attempt() -> str:
            nonlocal tries
            tries += 1
            return await self._once(lambda: self._wire.begin(at, stamp))

        upload_id = await self._run(f"begin to write {at}", attempt)
        if tries > 1:
            # An answer may have been lost, and with it the id of an upload that then would never end.
            with suppress(TarnError):
                for key, other in await self.unfinished(at.bucket, at.key):
                    if key == at and other != upload_id:
                        await self.abort(at, other)
        return upload_id

    async def unfinished(self, bucket: str, prefix: str) -> list[tuple[ObjectKey, str]]:
        """Returns multipart uploads that have not ended, with their ids; one page of them."""
        doing = f"list uploads of s3://{bucket}/{prefix}"
        return await self._run(
            doing, lambda: self._once(lambda: self._wire.unfinished(bucket, prefix))
        )

    async def part(self, at: ObjectKey, upload_id: str, number: int, body: PartBody) -> str | None:
        """Uploads one part; returns its ETag, or None if the upload does not exist. Safe to repeat: the same
        bytes replace themselves."""

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

    async def copy_part(
        self,
        source: ObjectKey,
        at: ObjectKey,
        upload_id: str,
        number: int,
        span: tuple[int, int] | None,
        source_etag: str = "",
    ) -> str:
        """Copies bytes of an object to a part; returns its ETag, or an empty text if the object or the upload does not
        exist. Safe to repeat.

        Raises:
            TarnError: LINK_MISMATCH: the source has another ETag than this one.
        """

        async def attempt() -> str:
            try:
                return await self._once(
                    lambda: self._wire.copy_part(source, at, upload_id, number, span, source_etag)
                )
            except CallError as fault:
                if fault.failure in (Failure.NO_UPLOAD, Failure.ABSENT):
                    return ""
                if fault.failure is Failure.LACKING:
                    raise _copies_nothing(at) from fault
                if fault.failure is Failure.TAKEN:
                    raise _changed(source) from fault
                raise

        return await self._run(f"copy {source} to part {number} of {at}", attempt)

    async def complete(
        self,
        key: BlockKey,
        at: ObjectKey,
        upload_id: str,
        parts: Sequence[tuple[int, str]],
        stamp: str,
        digest: Callable[[], bytes],
    ) -> None:
        """Completes our own writer's multipart upload.

        Raises:
            BlockExistsError: another block has the name. The upload still exists.
        """
        conditional = self._abilities.complete_if_absent

        async def attempt() -> None:
            if not conditional and await self._is_done(key, at, stamp, digest, again):
                return
            try:
                await complete(if_absent=conditional)
            except CallError as fault:
                if fault.failure not in (Failure.TAKEN, Failure.NO_UPLOAD):
                    raise
                if await self._is_done(key, at, stamp, digest, again):
                    return
                if fault.failure is Failure.NO_UPLOAD:
                    raise
                raise CallError(Failure.BUSY, "another write of it is under way") from fault

        async def complete(*, if_absent: bool) -> None:
            await self._once(lambda: self._wire.complete(at, upload_id, parts, if_absent=if_absent))

        async def again() -> None:
            await complete(if_absent=False)

        await self._run(f"write {at}", attempt)

    async def join(self, at: ObjectKey, upload_id: str, parts: Sequence[tuple[int, str]]) -> bool:
        """Completes an upload of a client's parts; returns False if the upload does not exist.

        Raises:
            TarnError: UPLOAD_PART_INVALID if a part was replaced after its ETag was returned.
        """

        async def attempt() -> bool:
            try:
                await self._once(lambda: self._wire.complete(at, upload_id, parts, if_absent=False))
            except CallError as fault:
                if fault.failure in (Failure.NO_UPLOAD, Failure.ABSENT):
                    return False
                if fault.failure is Failure.BAD_PART:
                    text = "a late request replaced a part of the upload; upload the part again"
                    raise TarnError(
                        Kind.INVALID, Reason.UPLOAD_PART_INVALID, f"{text} ({fault.text})"
                    ) from fault
                raise
            return True

        return await self._run(f"complete {at}", attempt)

    async def abort(self, at: ObjectKey, upload_id: str) -> None:
        """Aborts a multipart upload and removes its parts. An upload that has ended is not an error."""

        async def attempt() -> None:
            try:
                await self._once(lambda: self._wire.abort(at, upload_id))
            except CallError as fault:
                if fault.failure not in (Failure.NO_UPLOAD, Failure.ABSENT):
                    raise

        await self._run(f"abort the upload of {at}", attempt)

    async def abort_all(self, at: ObjectKey) -> int:
        """Aborts the multipart uploads of one key; returns how many. There are two at most: see `begin`."""
        found = [each for key, each in await self.unfinished(at.bucket, at.key) if key == at]
        for upload_id in found:
            await self.abort(at, upload_id)
        return len(found)

    # URLs for clients

    async def presign(
        self, at: ObjectKey, seconds: int, part_count: int, *, once: bool
    ) -> PresignedWrite:
        """Returns URLs for a client's write; with parts, begins the upload.

        With `once`, if the server has conditional writes, only one PUT, or one completion, can succeed.
        """
        able = self._abilities
        conditional = once and (able.complete_if_absent if part_count else able.put_if_absent)
        headers = _CONDITION if conditional else ()
        upload_id = await self.begin(at, self.stamp()) if part_count else ""

        async def attempt() -> tuple[str, list[str]]:
            return await self._wire.presigned(
                at, seconds, upload_id, part_count, if_absent=conditional
            )

        whole, parts = await self._run(f"sign URLs for {at}", attempt)
        if not part_count:
            return PresignedWrite(put_url=whole, headers=headers)
        return PresignedWrite(
            headers=headers, part_urls=tuple(parts), complete_url=whole, upload_id=upload_id
        )

    async def presign_parts(
        self, at: ObjectKey, upload_id: str, numbers: Sequence[int], seconds: int
    ) -> list[str]:
        """Returns URLs for parts of an upload that a client fills."""

        async def attempt() -> list[str]:
            return await self._wire.presigned_parts(at, upload_id, numbers, seconds)

        return await self._run(f"sign URLs for {at}", attempt)

    async def presign_read(
        self, at: ObjectKey, seconds: int, content_type: str, content_disposition: str
    ) -> str:
        """Returns a URL for a client's reads."""

        async def attempt() -> str:
            return await self._wire.presigned_read(at, seconds, content_type, content_disposition)

        return await self._run(f"sign a URL for {at}", attempt)


def _copies_nothing(at: ObjectKey) -> TarnError:
    text = f"the server of {at.bucket} copies no objects, or no parts; send the bytes through an endpoint of Tarn"
    return TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)


def _changed(source: ObjectKey) -> TarnError:
    text = f"{source} was written again meanwhile, so nothing was copied of it"
    return TarnError(Kind.FAILED_PRECONDITION, Reason.LINK_MISMATCH, text)
