"""Implements a client's multipart upload as one multipart upload of the server.

    <root>.tarn/uploads/<upload>/id                 the server's own id of the upload, written by `begin`
    <root>.tarn/uploads/<upload>/<part>-<attempt>   a part that is kept aside

A part of 5 MiB or more is sent directly to the server's upload. Its receipt is its ETag, so completing
moves no bytes. Of two attempts at such a part, the server keeps the one that ended last. Completing with
the other one is refused because of its ETag.

Smaller parts are kept aside as objects, because only the last part of an upload may be so small, and the
last part is not known yet. It is sent when the upload is completed. If all parts are small, the block is
written from them. The gateway refuses uploads with a small part in the middle, as S3 does.

An upload without an `id` object has ended. `discard` removes that object before it looks for parts, and a
late part checks for it after the part is written. So at least one of the two sees the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

from tarn.aio.bounded_map import BoundedMap
from tarn.aio.close_guard import CloseGuard
from tarn.aio.thread_work import run_in_thread
from tarn.block.keys import check_part, check_parts, check_upload
from tarn.block.port import (
    CHUNK_BYTES,
    THREAD_TURN_BYTES,
    Append,
    BlockExistsError,
    BlockKey,
    BlockNotFoundError,
    Joined,
)
from tarn.block.s3.names import OWN, RESERVED, ObjectKey, S3Namespace, namespace_of, object_key_of
from tarn.block.s3.objects import Objects
from tarn.block.s3.settings import PART_BYTES_MIN
from tarn.block.s3.spool import Held, Spool
from tarn.block.s3.wire import PAGE_MAX
from tarn.block.s3.writer import LargeWrites, S3Writer
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["S3PartWriter", "S3Uploads"]

T = TypeVar("T")

_RECEIPT: Final = re.compile(r"s3-((?:[0-9a-f]{2}){1,62})")
_MD5: Final = re.compile(r'"([0-9a-f]{32})"')
_KNOWN_MAX: Final = 1000
_ID_BYTES_MAX: Final = 4096


def _receipt_of(etag: str) -> str:
    """Encodes an ETag, which may hold any characters, in the letters, digits, `_` and `-` of a receipt."""
    receipt = "s3-" + etag.strip('"').encode().hex()
    if not _RECEIPT.fullmatch(receipt):
        text = f"the server's ETag {etag[:80]!r} is empty or too long"
        raise TarnError(Kind.INTERNAL, Reason.INTERNAL, text)
    return receipt


def _etag_of(receipt: str) -> str | None:
    """Returns the ETag in a receipt; None for a part that is kept aside, whose receipt is its attempt."""
    found = _RECEIPT.fullmatch(receipt)
    return None if found is None else f'"{bytes.fromhex(found[1]).decode()}"'


def _joined_etag(etags: Sequence[str]) -> str:
    """The ETag that most servers give an object of parts with these ETags, without quotes; empty: not known."""
    found = [_MD5.fullmatch(each) for each in etags]
    digests = [bytes.fromhex(each[1]) for each in found if each is not None]
    if not digests or len(digests) < len(etags):
        return ""
    joined = hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
    return f"{joined}-{len(digests)}"


class S3Uploads:
    """`BlockUploads` of an S3 store.

    Args:
        objects: makes the calls.
        large: limits concurrent large writers.
        guard: counts the calls that use the store.
        folder: where large parts are kept until they are complete; None: the system's.
    """

    def __init__(
        self, objects: Objects, large: LargeWrites, guard: CloseGuard, folder: Path | None
    ) -> None:
        self.folder = folder
        self.objects = objects
        self.large = large
        self.guard = guard
        self._known: BoundedMap[ObjectKey, str] = BoundedMap(_KNOWN_MAX)

    async def begin(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.begin`. Makes two requests."""
        ns, at = _places(key, upload)
        with self.guard:
            upload_id = await self.objects.begin(at, self.objects.stamp())
            mark = _mark(ns, upload)
            await self.objects.set(mark, upload_id.encode())
            self._known.put(mark, upload_id)

    async def upload_id(self, mark: ObjectKey) -> str | None:
        """Returns the server's id of an upload; None if it has ended or never began."""
        if known := self._known.get(mark):
            return known
        found = await self.objects.window(mark, 0, _ID_BYTES_MAX)
        if found is None:
            return None
        upload_id = bytes(found[0]).decode()
        self._known.put(mark, upload_id)
        return upload_id

    async def open_part(self, key: BlockKey, upload: str, part: int, attempt: str) -> S3PartWriter:
        """See `BlockUploads.open_part`."""
        _places(key, upload)
        check_part(part, attempt)
        if _RECEIPT.fullmatch(attempt):
            text = f"the attempt name {attempt[:80]!r} has the form of a receipt; choose another"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        with self.guard:
            return S3PartWriter(self, key, upload, part, attempt)

    async def complete(
        self, key: BlockKey, upload: str, parts: Sequence[tuple[int, str]]
    ) -> Joined:
        """See `BlockUploads.complete`.

        Raises:
            TarnError: UPLOAD_PART_INVALID, see `BlockUploads.complete`; UPLOAD_PART_TOO_SMALL if a
                part of less than 5 MiB precedes a larger one.
        """
        ns, at = _places(key, upload)
        names = check_parts(upload, parts)
        with self.guard:
            etags = {part: etag for part, receipt in parts if (etag := _etag_of(receipt))}
            joined_etag = _joined_etag([etags.get(part, "") for part, _ in parts])
            found = await self.objects.find(at)
            if found is not None:
                return Joined(found.size, was_there=found.etag != joined_etag)
            asides = {
                part: _aside(ns, upload, name)
                for (part, _), name in zip(parts, names, strict=True)
                if part not in etags
            }
            kept = await self._kept(ns, upload) if asides else {}
            upload_id = await self.upload_id(_mark(ns, upload))
            missing = not {place.key for place in asides.values()} <= kept.keys()
            made = False
            if upload_id is not None and not missing:
                if etags:
                    order = [part for part, _ in parts]
                    made = await self._join(key, at, upload_id, order, etags, asides)
                else:
                    sources = [asides[part] for part, _ in parts]
                    made = await self._compose(
                        key, at, [(each, kept[each.key]) for each in sources]
                    )
            found = await self.objects.find(at)
            if found is None:
                raise BlockNotFoundError(key)
            return Joined(found.size, was_there=not made and found.etag != joined_etag)

    async def _kept(self, ns: S3Namespace, upload: str) -> dict[str, int]:
        """Returns keys and sizes of all objects that are kept for an upload."""
        prefix = ns.own(f"uploads/{upload}/").key
        sizes: dict[str, int] = {}
        after, more = "", True
        while more:
            rows, more = await self.objects.page(ns.bucket, prefix, after, PAGE_MAX)
            sizes.update((row.key, row.size) for row in rows)
            after = rows[-1].key if rows else after
            more = more and bool(rows)
        return sizes

    async def _join(
        self,
        key: BlockKey,
        at: ObjectKey,
        upload_id: str,
        order: Sequence[int],
        etags: dict[int, str],
        asides: dict[int, ObjectKey],
    ) -> bool:
        """Completes the server's upload; first sends the last part if it was kept aside as too small. False if the
        upload has ended."""
        last = order[-1]
        small = [part for part in asides if part != last]
        if small:
            text = f"part {small[0]} has less than 5 MiB and is not the last part"
            raise TarnError(Kind.INVALID, Reason.UPLOAD_PART_TOO_SMALL, text, part=str(small[0]))
        if last in asides:
            found = await self.objects.window(asides[last], 0, PART_BYTES_MIN)
            if found is None or len(found[0]) != found[1]:
                raise BlockNotFoundError(key)  # discarded in the meantime
            etag = await self.objects.part(at, upload_id, last, Held(bytes(found[0])))
            if etag is None:
                return False
            etags[last] = etag
        return await self.objects.join(at, upload_id, [(part, etags[part]) for part in order])

    async def _compose(
        self, key: BlockKey, at: ObjectKey, sources: Sequence[tuple[ObjectKey, int]]
    ) -> bool:
        """Writes the block from parts that are too small for an upload of the server. False if another completion was
        first.

        Raises:
            BlockNotFoundError: a part was discarded in the meantime. No block is written, rather than a short one.
        """
        async with S3Writer(self.objects, self.large, self.guard, key, at) as writer:
            for place, size in sources:
                found = 0
                async for piece in self.objects.windows(place, 0, size):
                    await writer.write(piece)
                    found += len(piece)
                if found != size:
                    raise BlockNotFoundError(key)
            try:
                await writer.finish()
            except BlockExistsError:
                return False
        return True

    async def discard(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.discard`."""
        ns, at = _places(key, upload)
        mark = _mark(ns, upload)
        with self.guard:
            self._known.pop(mark)
            upload_id = await self.upload_id(mark)
            if upload_id is not None:
                await self.objects.abort(at, upload_id)
                await self.objects.delete(mark.bucket, [mark.key])
                self._known.pop(mark)
            if keys := await self._kept(ns, upload):
                await self.objects.delete(ns.bucket, list(keys))

    async def discard_all(self, namespace: str) -> None:
        """See `BlockUploads.discard_all`."""
        ns = namespace_of(namespace)
        with self.guard:
            # Not of the whole root: another namespace may lie below it.
            for prefix in (OWN, *RESERVED):
                await self._abort_all(ns.bucket, f"{ns.root}{prefix.rstrip('/')}/")
            own, more = ns.own("uploads/").key, True
            while more:
                rows, more = await self.objects.page(ns.bucket, own, "", PAGE_MAX)
                await self.objects.delete(ns.bucket, [row.key for row in rows])
                for row in rows:
                    self._known.pop(ObjectKey(ns.bucket, row.key))

    async def _abort_all(self, bucket: str, prefix: str) -> None:
        while uploads := await self.objects.unfinished(bucket, prefix):
            for at, upload_id in uploads:
                await self.objects.abort(at, upload_id)


def _places(key: BlockKey, upload: str) -> tuple[S3Namespace, ObjectKey]:
    ns = namespace_of(key.namespace)
    check_upload(upload)
    return ns, object_key_of(ns, key.path)


def _mark(ns: S3Namespace, upload: str) -> ObjectKey:
    return ns.own(f"uploads/{upload}/id")


def _aside(ns: S3Namespace, upload: str, name: str) -> ObjectKey:
    return ns.own(f"uploads/{upload}/{name}")


class S3PartWriter:
    """A `PartWriter`. Sends the complete part, to the server's upload or to an object kept aside.

    Args:
        uploads: the uploads of the store.
        key: the block that is uploaded.
        upload: name of the upload.
        part: number of the part, from 1.
        attempt: name of this attempt.
    """

    def __init__(
        self, uploads: S3Uploads, key: BlockKey, upload: str, part: int, attempt: str
    ) -> None:
        self._uploads = uploads
        self._key = key
        self._ns, self._at = _places(key, upload)
        self._mark = _mark(self._ns, upload)
        self._aside = _aside(self._ns, upload, check_part(part, attempt))
        self._part = part
        self._spool = Spool(uploads.folder, uploads.objects.limits.part_bytes)
        self._counted = False
        self._ended = False
        self.receipt = attempt

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `BlockWriter.write`."""
        self._check()
        with memoryview(data).cast("B") as view:
            if not self._counted and self._spool.size + len(view) > CHUNK_BYTES:
                await self._uploads.large.enter()
                self._counted = True
            await self._spool.write(view)

    async def write_by_thread(self, work: Callable[[Append, int], T]) -> T:
        """See `ThreadWriter.write_by_thread`. After a failure only `abort` is allowed."""
        self._check()
        if not self._counted:
            await self._uploads.large.enter()
            self._counted = True
        return await run_in_thread(lambda: work(self._spool.append, THREAD_TURN_BYTES))

    async def finish(self) -> None:
        """See `BlockWriter.finish`.

        Raises:
            BlockNotFoundError: the upload was discarded; no bytes of the part remain.
        """
        self._check()
        try:
            with self._uploads.guard:
                if self._spool.size < PART_BYTES_MIN:
                    await self._keep_aside()
                else:
                    await self._send()
        finally:
            await self.abort()

    async def _send(self) -> None:
        upload_id = await self._uploads.upload_id(self._mark)
        etag = None
        if upload_id is not None:
            body = await self._spool.body()
            try:
                etag = await self._uploads.objects.part(self._at, upload_id, self._part, body)
            except TarnError:
                # A server may cut the connection of a part whose upload is over.
                if await self._uploads.objects.find(self._mark) is not None:
                    raise
        if etag is None:
            raise BlockNotFoundError(self._key)
        self.receipt = _receipt_of(etag)

    async def _keep_aside(self) -> None:
        objects = self._uploads.objects
        with (await self._spool.body()).open() as source:
            await objects.set(self._aside, source.read() or b"")
        # Not from this process's memory: another process may have discarded the upload.
        if await objects.find(self._mark) is None:
            await objects.delete(self._aside.bucket, [self._aside.key])
            raise BlockNotFoundError(self._key)

    async def abort(self) -> None:
        """See `BlockWriter.abort`."""
        self._ended = True
        self._spool.close()
        if self._counted:
            self._counted = False
            self._uploads.large.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.abort()

    def _check(self) -> None:
        if self._ended:
            raise RuntimeError("the writer was finished or aborted")
