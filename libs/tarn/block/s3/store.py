"""The block store over buckets: checks names and implements the block port with objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

from tarn.aio.close_guard import CloseGuard
from tarn.block.keys import (
    PART_NUMBER_MAX,
    check_listing,
    check_part,
    check_replaced,
    check_span,
)
from tarn.block.port import (
    CHUNK_BYTES,
    BlockInfo,
    BlockKey,
    BlockNotFoundError,
    PresignedWrite,
    closed_error,
)
from tarn.block.s3.names import OWN, namespace_of, object_key_of
from tarn.block.s3.objects import Objects
from tarn.block.s3.settings import S3Settings
from tarn.block.s3.uploads import S3Uploads
from tarn.block.s3.wire import Wire
from tarn.block.s3.writer import LargeWrites, S3Writer
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["S3BlockStore"]

_AFTER_OWN: Final = OWN[:-1] + chr(ord("/") + 1)
"""Greater than every key of the driver's own, and not greater than any other key that follows them."""


class S3BlockStore:
    """`BlockStore` of one server; serves namespaces `s3://<bucket>/<prefix>` of any of its buckets.

    Args:
        wire: closed with the store.
        objects: makes the calls.
        settings: those that the store was opened with.
        reconnect: makes the clients again, from other settings and from the file of the authorities, and uses them once
            the server has accepted the credentials. Raises as `open_s3`, and then the old clients stay in use.
    """

    def __init__(
        self,
        wire: Wire,
        objects: Objects,
        settings: S3Settings,
        reconnect: Callable[[S3Settings], Awaitable[None]],
    ) -> None:
        self._wire = wire
        self._settings = settings
        self._reconnect = reconnect
        self._objects = objects
        self._guard = CloseGuard(closed_error)
        limits = objects.limits
        self._large = LargeWrites(limits.large_writes, limits.deadline_seconds)
        self._uploads = S3Uploads(objects, self._large, self._guard, settings.spool)

    @property
    def uploads(self) -> S3Uploads:
        """Returns the store's multipart uploads."""
        return self._uploads

    async def use_keys(self, settings: S3Settings) -> None:
        """Uses other credentials of the same server for all further requests, once the server has accepted them.

        Raises:
            TarnError: the server refuses them or does not answer, as when it is opened; the old ones stay in use.
        """
        with self._guard:
            await self._reconnect(settings)
        self._settings = settings

    async def use_authorities(self) -> None:
        """Reads the file of the authorities again; uses them for all further requests, once the server was accepted.

        Raises:
            TarnError: the file cannot be used, or the server is not accepted or does not answer; the old ones stay in
                use.
        """
        with self._guard:
            await self._reconnect(self._settings)

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        """See `BlockStore.put`."""
        at = object_key_of(namespace_of(key.namespace), key.path)
        with memoryview(body).cast("B") as view:
            if len(view) <= self._objects.limits.part_bytes:
                with self._guard:
                    # Copied unless immutable: a timed-out attempt may still read it.
                    whole = body if isinstance(body, bytes) else bytes(view)
                    await self._objects.put(key, at, whole)
                return
            async with await self.open_write(key) as writer:
                await writer.write(view)
                await writer.finish()

    async def open_write(self, key: BlockKey) -> S3Writer:
        """See `BlockStore.open_write`."""
        at = object_key_of(namespace_of(key.namespace), key.path)
        with self._guard:
            return S3Writer(self._objects, self._large, self._guard, key, at)

    async def open_replace(self, key: BlockKey) -> S3Writer:
        """See `BlockStore.open_replace`."""
        at = object_key_of(namespace_of(key.namespace), check_replaced(key.path))
        with self._guard:
            return S3Writer(self._objects, self._large, self._guard, key, at, replaces=True)

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """See `BlockStore.read`."""
        check_span(start, length)
        at = object_key_of(namespace_of(key.namespace), key.path)
        with self._guard:
            end = None if length is None else start + length
            pieces = [piece async for piece in self._objects.windows(at, start, end)]
            if not pieces and await self._objects.find(at) is None:
                raise BlockNotFoundError(key)
        return b"".join(pieces)

    async def stream(
        self, key: BlockKey, start: int, length: int
    ) -> AsyncIterator[bytes | memoryview]:
        """See `BlockStore.stream`."""
        check_span(start, length)
        at = object_key_of(namespace_of(key.namespace), key.path)
        end = start + length
        done = start
        windows = self._objects.windows(at, start, end, first_bytes=CHUNK_BYTES)
        async with aclosing(windows):
            while True:
                with self._guard:
                    piece = await anext(windows, None)
                if piece is None:
                    break
                for begin in range(0, len(piece), CHUNK_BYTES):
                    yield piece[begin : begin + CHUNK_BYTES]
                done += len(piece)
        if done < end or not length:
            info = await self.stat(key)
            if info.size < end:
                text = f"block {key.path} in {key.namespace} ends before byte {end}"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=key.path)

    async def stat(self, key: BlockKey) -> BlockInfo:
        """See `BlockStore.stat`."""
        at = object_key_of(namespace_of(key.namespace), key.path)
        with self._guard:
            found = await self._objects.find(at)
        if found is None:
            raise BlockNotFoundError(key)
        return BlockInfo(key.path, found.size, found.mtime_us, found.etag)

    @property
    def binds_writes(self) -> bool:
        """See `PresignsWrites`."""
        return self._objects.binds_writes

    async def copy_written(self, source: BlockKey, target: BlockKey, size: int, etag: str) -> None:
        """See `PresignsWrites`; CopyObject, or UploadPartCopy of large blocks."""
        of = object_key_of(namespace_of(source.namespace), source.path)
        at = object_key_of(namespace_of(target.namespace), target.path)
        with self._guard:
            copied = await self._objects.copy(of, target, at, size, etag)
        if not copied:
            raise BlockNotFoundError(source)

    async def presign_write(
        self, key: BlockKey, seconds: int, part_count: int, *, once: bool = True
    ) -> PresignedWrite:
        """See `PresignsWrites`. Signing uses the driver's own credentials."""
        at = object_key_of(namespace_of(key.namespace), key.path)
        with self._guard:
            return await self._objects.presign(at, seconds, part_count, once=once)

    async def presign_read(
        self,
        key: BlockKey,
        seconds: int,
        *,
        content_type: str = "",
        content_disposition: str = "",
    ) -> str:
        """See `PresignsReads`. Signing uses the driver's own credentials."""
        at = object_key_of(namespace_of(key.namespace), key.path)
        with self._guard:
            return await self._objects.presign_read(at, seconds, content_type, content_disposition)

    async def presign_parts(
        self, key: BlockKey, upload_id: str, numbers: Sequence[int], seconds: int
    ) -> tuple[str, ...]:
        """See `PresignsParts`."""
        at = object_key_of(namespace_of(key.namespace), key.path)
        for number in numbers:
            check_part(number, "url")
        with self._guard:
            return tuple(await self._objects.presign_parts(at, upload_id, numbers, seconds))

    async def complete_parts(
        self, key: BlockKey, upload_id: str, parts: Sequence[tuple[int, str]]
    ) -> BlockInfo:
        """See `PresignsParts`."""
        at = object_key_of(namespace_of(key.namespace), key.path)
        if not 1 <= len(parts) <= PART_NUMBER_MAX:
            text = f"{key.path} is completed with {len(parts)} parts, not 1 to {PART_NUMBER_MAX}"
            raise TarnError(Kind.INVALID, Reason.UPLOAD_PART_INVALID, text, parts=str(len(parts)))
        with self._guard:
            await self._objects.join(at, upload_id, parts)
        return await self.stat(key)

    async def copy_part(
        self,
        source: BlockKey,
        key: BlockKey,
        upload_id: str,
        number: int,
        span: tuple[int, int] | None = None,
    ) -> str:
        """See `PresignsParts`; one request, UploadPartCopy."""
        check_part(number, "copy")
        if span is not None:
            check_span(*span)
        of = object_key_of(namespace_of(source.namespace), source.path)
        at = object_key_of(namespace_of(key.namespace), key.path)
        with self._guard:
            found = await self._objects.copy_part(of, at, upload_id, number, span)
            if not found and await self._objects.find(of) is None:
                raise BlockNotFoundError(source)
        if not found:
            raise BlockNotFoundError(key)
        return found

    async def abort_writes(self, key: BlockKey) -> int:
        """See `PresignsWrites`; needs the permissions `s3:ListBucketMultipartUploads`, `s3:AbortMultipartUpload`."""
        at = object_key_of(namespace_of(key.namespace), key.path)
        with self._guard:
            return await self._objects.abort_all(at)

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`; one request for each 1,000 rows."""
        ns = namespace_of(namespace)
        if not check_listing(prefix, after, limit):
            return []
        found: list[BlockInfo] = []
        more = True
        with self._guard:
            while more and len(found) < limit:
                start = max(after, _AFTER_OWN) if after.startswith(OWN) else after
                rows, more = await self._objects.page(
                    ns.bucket,
                    ns.root + prefix,
                    ns.root + start if start else "",
                    limit - len(found),
                )
                for row in rows:
                    after = row.key[len(ns.root) :]
                    if not after.startswith(OWN):
                        found.append(BlockInfo(after, row.size, row.mtime_us))
                more = more and bool(rows)
        return found

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        """See `BlockStore.delete_many`."""
        ns = namespace_of(namespace)
        keys = [object_key_of(ns, path).key for path in paths]
        with self._guard:
            await self._objects.delete(ns.bucket, keys)

    async def kept_versions(self, namespace: str) -> str:
        """See `KeepsVersions`: asks for the versioning of the bucket (permission `s3:GetBucketVersioning`)."""
        bucket = namespace_of(namespace).bucket
        try:
            with self._guard:
                state = await self._objects.versioning(bucket)
        except TarnError as error:
            return f"the bucket {bucket} does not tell whether it keeps versions: {error.message}"
        if not state:
            return ""
        return f"the versioning of the bucket {bucket} is {state.lower()}, so older versions of the blocks may be there"

    async def close(self) -> None:
        """See `BlockStore.close`."""
        await self._guard.close()
        await self._objects.tasks.close()
        await self._wire.close()
