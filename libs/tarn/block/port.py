"""The block port: write-once blocks of bytes under a namespace.

A block is named by `BlockKey(namespace, path)`. Tarn makes the paths (`data/<hour>/<uuid>`,
`_tarn/ranges/<id>`, …), never a client. A path is written once and never reused, with two exceptions: a
content-addressed path may be written again with the same bytes, and files for other engines, which nothing
of Tarn reads, are replaced (`BlockStore.open_replace`). A block becomes visible only when it is
complete. It is durable before its write is acknowledged (unless the driver runs with `durability: os`).
Drivers: `mem`, `local`, `s3`; one contract suite (`tarn.testing.contract.block_contract`) tests all of
them against this text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, Self, TypeVar, runtime_checkable

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = [
    "Append",
    "BlockExistsError",
    "BlockInfo",
    "BlockKey",
    "BlockNotFoundError",
    "BlockStore",
    "BlockUploads",
    "BlockWriter",
    "CHUNK_BYTES",
    "FileBacked",
    "FileSlice",
    "KeepsVersions",
    "PartWriter",
    "PresignedWrite",
    "PresignsParts",
    "PresignsReads",
    "PresignsWrites",
    "ReadBlocks",
    "THREAD_TURN_BYTES",
    "ThreadWriter",
    "WHOLE_BYTES_MAX",
    "closed_error",
    "put_again",
    "read_whole",
]

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
"""Size of the chunks in which bodies are streamed. One transfer holds a few of them in memory."""

WHOLE_BYTES_MAX = 144 << 20
"""Size of the largest file of metadata: one of 128 MiB, whose compression makes it larger."""


@hot_value
class BlockKey:
    """A block's name.

    Attributes:
        namespace: the repository's storage namespace, e.g. `local://lake` (`mem://`, `s3://bucket/prefix`).
        path: relative, `/`-separated, no empty, `.` or `..` segment, no NUL; see `tarn.core.ids.physical_path`.
    """

    namespace: str
    path: str


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A listed block.

    Attributes:
        path: relative to the namespace.
        size: bytes.
        mtime_us: when it became visible, microseconds since the epoch.
        etag: the bucket's ETag without quotes; empty in listings, and if the store has none.
    """

    path: str
    size: int
    mtime_us: int
    etag: str = ""


def closed_error() -> TarnError:
    """The store was closed before the call began: nothing was done."""
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the block store is closed")


class BlockNotFoundError(TarnError):
    """No complete block has this key."""

    def __init__(self, key: BlockKey) -> None:
        text = f"no block {key.path} in {key.namespace}"
        super().__init__(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text, path=key.path)


class BlockExistsError(TarnError):
    """A block of this name already exists with other bytes or another size."""

    def __init__(self, key: BlockKey) -> None:
        text = f"block {key.path} in {key.namespace} is written already"
        super().__init__(Kind.ALREADY_EXISTS, Reason.INTERNAL, text, path=key.path)


class BlockWriter(Protocol):
    """Receives the body of a block. End it with exactly one of `finish` and `abort`. Leaving the async
    context manager without `finish` aborts. Nothing is visible before `finish` returns."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Accepts the next bytes. On return they are copied or written, so the caller may reuse its
        buffer. Returns only when the writer can accept more: this is the back pressure."""
        ...

    async def finish(self) -> None:
        """Makes the block visible and durable.

        Raises:
            BlockExistsError: another block has this name.
        """
        ...

    async def abort(self) -> None:
        """Discards the bytes. Idempotent; also allowed after a failed `finish`."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


Append = Callable[[memoryview], None]
"""Appends bytes to a block; may block its thread, and on return the bytes are written or copied."""

THREAD_TURN_BYTES = 8 << 20
"""Most bytes that a thread writes in one turn: threads are few, and serve all bodies."""


@runtime_checkable
class ThreadWriter(Protocol):
    """Offered by a `BlockWriter` in addition, if the thread that has the bytes may write them."""

    async def write_by_thread(self, work: Callable[[Append, int], T]) -> T:
        """Runs work in a thread and returns its result. On return all bytes are written or copied that it has appended.

        The work may append so many bytes as its second argument says, and one piece of up to `CHUNK_BYTES` in any case.
        A caller that is cancelled waits until the thread is done.

        Raises:
            TarnError: `Append` failed, which has ended the work.
            Exception: an error of the work.
        """
        ...


class PartWriter(BlockWriter, Protocol):
    """Writes one attempt at one part."""

    @property
    def receipt(self) -> str:
        """Identifies the attempt in `complete`: 1 to 128 letters, digits, `_` and `-`. Valid after `finish`
        has returned. A driver may encode here how to find the bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Joined:
    """A block of an upload.

    Attributes:
        size: in bytes.
        was_there: whether it may be of another call, which may have joined other parts.
    """

    size: int
    was_there: bool


class BlockUploads(Protocol):
    """Blocks that arrive in parts, in any order and from several processes (S3 multipart).

    The caller chooses the unique name of an upload; parts are numbered from 1. The caller also keeps the
    state of the upload (which parts count, whether it is complete). This port keeps only bytes.
    """

    async def begin(self, key: BlockKey, upload: str) -> None:
        """Prepares an upload. Called once by the process that made the name, before any other learns it."""
        ...

    async def open_part(self, key: BlockKey, upload: str, part: int, attempt: str) -> PartWriter:
        """Begins one attempt at one part. Each attempt has its own name.

        Attempts at the same part do not mix their bytes. A driver may keep only the attempt that ended last.
        """
        ...

    async def complete(
        self, key: BlockKey, upload: str, parts: Sequence[tuple[int, str]]
    ) -> Joined:
        """Joins the parts, given as `(part, receipt)` in order of their numbers, into the block.

        Idempotent: joining again after success, even after the parts were discarded, returns the existing block.

        Raises:
            BlockNotFoundError: a part is missing and the block does not exist.
            TarnError: UPLOAD_PART_INVALID if the driver did not keep this attempt, because another
                attempt at the same part ended later: the client may upload the part again;
                UPLOAD_PART_TOO_SMALL if a part other than the last has less than 5 MiB and the driver
                cannot join it.
        """
        ...

    async def discard(self, key: BlockKey, upload: str) -> None:
        """Removes the parts of a completed or aborted upload. Idempotent."""
        ...

    async def discard_all(self, namespace: str) -> None:
        """Removes the parts of all uploads of a namespace that are not used any more, and writes that were broken off.
        Idempotent. Uploads of other namespaces stay, also of one below this one."""
        ...


class BlockStore(Protocol):
    """A store of blocks, shared by the processes of an installation."""

    @property
    def uploads(self) -> BlockUploads:
        """Returns the store's multipart uploads."""
        ...

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        """Writes a whole block from memory. It is visible and durable on return.

        Raises:
            BlockExistsError: another block has this name. Writing the same bytes again is allowed for
                `_tarn/` paths, which are content-addressed; it makes the block *young*: its `mtime_us` is that of
                the new write, durably, so that no collection judges it by its former age.
        """
        ...

    async def open_write(self, key: BlockKey) -> BlockWriter:
        """Begins a block of unknown size. Memory is bounded."""
        ...

    async def open_replace(self, key: BlockKey) -> BlockWriter:
        """Begins a block that takes the place of the one of its name, if there is one. A reader sees the old block or
        the new one, never a part of one and never none. Of two writers, the one that finishes last stays.

        Only for names below `tarn.block.keys.REPLACED_PREFIX`, which nothing caches and no data depend on.

        Raises:
            TarnError: INVALID: the name is another one.
        """
        ...

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """Returns bytes `[start, start + length)`, clipped to the block's end; for bodies that fit in memory.

        Raises:
            BlockNotFoundError: the block does not exist.
        """
        ...

    def stream(self, key: BlockKey, start: int, length: int) -> AsyncIterator[bytes | memoryview]:
        """Yields the same bytes in chunks of at most `CHUNK_BYTES`. The first chunk raises
        `BlockNotFoundError` if the block does not exist. A block that ends early raises CORRUPT."""
        ...

    async def stat(self, key: BlockKey) -> BlockInfo:
        """Returns size and time of a block, or raises `BlockNotFoundError`."""
        ...

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """Returns up to `limit` blocks whose path starts with `prefix` and is greater than `after`, in byte
        order of the path. A page shorter than `limit` is the last."""
        ...

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        """Removes blocks. Absent paths are not an error."""
        ...

    async def close(self) -> None:
        """Finishes calls in progress and releases the store. Idempotent."""
        ...


class ReadBlocks(Protocol):
    """The methods of `BlockStore` that read, with the same contract. Every `BlockStore` satisfies this protocol.

    Code that inspects a store (`tarn fsck`) uses it, because it has no method that changes anything.
    """

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """See `BlockStore.read`."""
        ...

    def stream(self, key: BlockKey, start: int, length: int) -> AsyncIterator[bytes | memoryview]:
        """See `BlockStore.stream`."""
        ...

    async def stat(self, key: BlockKey) -> BlockInfo:
        """See `BlockStore.stat`."""
        ...

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`."""
        ...

    async def close(self) -> None:
        """See `BlockStore.close`."""
        ...


@runtime_checkable
class FileBacked(Protocol):
    """Offered by a driver, in addition to the port, if it keeps large blocks as plain local files, so that
    a server can `sendfile` them. Check with `isinstance(store, FileBacked)`."""

    async def open_file(self, key: BlockKey) -> BinaryIO | None:
        """Opens the block as an unbuffered file at offset 0; the caller closes it. Returns None if the block
        has no file of its own (it is small: `read` it). A later delete does not affect the open file.

        Raises:
            BlockNotFoundError: the block does not exist.
            TarnError: EXHAUSTED if too many files are open.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileSlice:
    """`count` bytes of an open file from `offset`, sent with sendfile(2) if the kernel can.

    Whoever sends it closes the file, whether it was sent or given up.
    """

    file: BinaryIO
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class PresignedWrite:
    """How a client writes a block to the bucket itself. The URLs are secrets.

    Attributes:
        put_url: for one PUT of the whole body; empty with parts.
        headers: names and values that this PUT, or the POST to `complete_url`, must carry, because they are signed.
        part_urls: for the PUT of each part, in order.
        complete_url: for the POST that completes the parts (S3 CompleteMultipartUpload).
        upload_id: names the upload in the bucket; empty without parts.
    """

    put_url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    part_urls: tuple[str, ...] = ()
    complete_url: str = ""
    upload_id: str = ""


@runtime_checkable
class PresignsReads(Protocol):
    """Offered by a driver, in addition to the port, if clients can read blocks without Tarn."""

    async def presign_read(
        self,
        key: BlockKey,
        seconds: int,
        *,
        content_type: str = "",
        content_disposition: str = "",
    ) -> str:
        """Returns a URL for a GET of the block, whole or of a range, that ends after some seconds. It is a secret.

        Does not look whether the block exists.

        Args:
            key: the block.
            seconds: life of the URL.
            content_type: of the answer, because blocks have none; empty: the bucket's default.
            content_disposition: likewise.
        """
        ...


@runtime_checkable
class PresignsWrites(Protocol):
    """Offered by a driver, in addition to the port, if clients can write blocks without Tarn."""

    @property
    def binds_writes(self) -> bool:
        """Whether the server has conditional writes, so that `once` holds for one PUT."""
        ...

    async def presign_write(
        self, key: BlockKey, seconds: int, part_count: int, *, once: bool = True
    ) -> PresignedWrite:
        """Returns URLs that end after some seconds. With parts, begins an upload in the bucket.

        Args:
            key: the block.
            seconds: life of the URLs.
            part_count: number of parts; 0: one PUT.
            once: if the server has conditional writes, the signed headers let only one write of the block succeed. A
                client that sends no headers of ours needs False, and may write again until its URL ends.
        """
        ...

    async def copy_written(self, source: BlockKey, target: BlockKey, size: int, etag: str) -> None:
        """Copies a block to which a client may still write to one for which no URL was signed, inside the server.

        One caller at a time copies to a target. Idempotent: if the target is the copy of an object of this ETag,
        nothing is done, and the source need not exist any more.

        Args:
            source: what the client wrote.
            target: written once, in the same namespace.
            size: bytes of the source.
            etag: of the source, without quotes.

        Raises:
            BlockNotFoundError: nothing is at the source.
            BlockExistsError: the target is something else.
            TarnError: FAILED_PRECONDITION, LINK_MISMATCH: the source has another ETag by now; nothing is at the target.
        """
        ...

    async def abort_writes(self, key: BlockKey) -> int:
        """Aborts the uploads of a block in the bucket that were begun and not completed, so that their parts go.

        A complete block stays. Returns how many were aborted; idempotent. Only for a block whose URLs have ended.
        """
        ...


@runtime_checkable
class PresignsParts(Protocol):
    """Offered by a driver that `PresignsWrites`, if a front may end the uploads that clients fill."""

    async def presign_parts(
        self, key: BlockKey, upload_id: str, numbers: Sequence[int], seconds: int
    ) -> tuple[str, ...]:
        """Returns URLs for further parts of an upload (`PresignedWrite.upload_id`), in the order of their numbers,
        which are 1 to 10,000. A later PUT of a part replaces an earlier one."""
        ...

    async def complete_parts(
        self, key: BlockKey, upload_id: str, parts: Sequence[tuple[int, str]]
    ) -> BlockInfo:
        """Joins the parts, given as `(number, ETag)` in order of their numbers, into the block; returns what it is.

        Idempotent: joining again after success returns the existing block.

        Raises:
            BlockNotFoundError: the upload has ended, and there is no block.
            TarnError: UPLOAD_PART_INVALID: a part is missing or has another ETag, or no parts are given.
        """
        ...

    async def copy_part(
        self,
        source: BlockKey,
        key: BlockKey,
        upload_id: str,
        number: int,
        span: tuple[int, int] | None = None,
    ) -> str:
        """Makes a part of an upload of bytes of a block, inside the server; returns the part's ETag, without quotes.

        Args:
            source: the block; it may be of another namespace.
            key: the block of the upload.
            upload_id: as in `presign_parts`.
            number: 1 to 10,000. A later write of a part replaces an earlier one.
            span: offset of the first byte, and the number of bytes; None: the whole block. Servers take a span only of
                a block of more than 5 MiB.

        Raises:
            BlockNotFoundError: `source` does not exist, or, with the key of the upload, the upload has ended.
            TarnError: NOT_IMPLEMENTED: the server copies no parts.
        """
        ...


@runtime_checkable
class KeepsVersions(Protocol):
    """Offered by a driver, in addition to the port, if it can tell whether a deleted block is gone for good."""

    async def kept_versions(self, namespace: str) -> str:
        """Returns why older versions of deleted blocks may be there, in words; an empty text if there are none.

        A store that cannot be asked gives a reason, too: it does not raise.
        """
        ...


async def read_whole(blocks: ReadBlocks, key: BlockKey, most: int = WHOLE_BYTES_MAX) -> bytes:
    """Returns a whole file of metadata, without taking memory for one that cannot be right.

    Args:
        blocks: where it is.
        key: its name.
        most: greatest number of bytes.

    Raises:
        BlockNotFoundError: it does not exist.
        TarnError: CORRUPT: it is longer.
    """
    body = await blocks.read(key, 0, most + 1)
    if len(body) > most:
        text = f"{key.path} in {key.namespace} has more than {most} bytes, so Tarn did not write it"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=key.path)
    return body


async def put_again(blocks: BlockStore, key: BlockKey) -> None:
    """Puts the bytes that a file of metadata has: only a put makes it young (docs/design/collection.md).

    Raises:
        BlockExistsError: it has other bytes by now.
        BlockNotFoundError, TarnError: as `read_whole`.
    """
    await blocks.put(key, await read_whole(blocks, key))
