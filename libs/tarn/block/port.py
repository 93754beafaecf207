"""The block port: write-once blocks of bytes under a namespace.

A block is named by `BlockKey(namespace, path)`. Paths are made by Tarn (`data/<hour>/<uuid>`,
`_tarn/ranges/<id>`, …), never by a client, are written once and never reused; content-addressed paths
may be written again with the same bytes. A block is visible only when it is complete, and durable
before its write is acknowledged (unless the driver was told `durability: os`). Drivers: `mem`,
`local`, `s3`; one contract suite (`tarn.testing.contract.block_contract`) holds all of them to this text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, Self, runtime_checkable

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value

__all__ = [
    "BlockExistsError",
    "BlockInfo",
    "BlockKey",
    "BlockNotFoundError",
    "BlockStore",
    "BlockUploads",
    "BlockWriter",
    "CHUNK_BYTES",
    "FileBacked",
    "PartWriter",
    "closed_error",
]

CHUNK_BYTES = 1 << 20
"""The unit that bodies are streamed in; the memory that one transfer may hold is a few of these."""


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
    """

    path: str
    size: int
    mtime_us: int


def closed_error() -> TarnError:
    """The store was closed before the call began: nothing was done."""
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the block store is closed")


class BlockNotFoundError(TarnError):
    """No complete block has this name."""

    def __init__(self, key: BlockKey) -> None:
        text = f"no block {key.path} in {key.namespace}"
        super().__init__(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text, path=key.path)


class BlockExistsError(TarnError):
    """A block of this name exists already with other bytes (or of another size)."""

    def __init__(self, key: BlockKey) -> None:
        text = f"block {key.path} in {key.namespace} is written already"
        super().__init__(Kind.ALREADY_EXISTS, Reason.INTERNAL, text, path=key.path)


class BlockWriter(Protocol):
    """A body on its way in. Exactly one of `finish` and `abort` ends it; an async context manager
    that leaves without `finish` aborts. Nothing is visible before `finish` returns."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes; has copied or written them when it returns (the caller may reuse
        its buffer), and returns only when it can take more: this is the back pressure."""
        ...

    async def finish(self) -> None:
        """Makes the block visible and durable.

        Raises:
            BlockExistsError: another block has this name.
        """
        ...

    async def abort(self) -> None:
        """Forgets the bytes. Idempotent; also after a failed `finish`."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


class PartWriter(BlockWriter, Protocol):
    """One attempt at one part."""

    @property
    def receipt(self) -> str:
        """What `complete` knows the attempt by, 1 to 128 letters, digits, `_` and `-`; valid when
        `finish` has returned. A driver may put there what it needs to find the bytes."""
        ...


class BlockUploads(Protocol):
    """Blocks that arrive in parts, in any order and from several processes (S3 multipart).

    The upload's own name is chosen by the caller and is unique; parts are numbered from 1. The state
    of an upload (which parts count, whether it is complete) is the caller's: this only keeps bytes.
    """

    async def begin(self, key: BlockKey, upload: str) -> None:
        """Prepares an upload: once, by whoever made its name, before anybody else knows that."""
        ...

    async def open_part(self, key: BlockKey, upload: str, part: int, attempt: str) -> PartWriter:
        """Begins one attempt at one part, with a name of its own.

        Attempts of one part do not mix their bytes. A driver may keep only the one that ended last.
        """
        ...

    async def complete(self, key: BlockKey, upload: str, parts: Sequence[tuple[int, str]]) -> int:
        """Joins `(part, receipt)`s, in the order of their numbers, into the block and returns its
        size in bytes.

        Idempotent: joining again after success, even after the parts were discarded, returns the
        size of the block that is there.

        Raises:
            BlockNotFoundError: a part is missing and the block does not exist.
            TarnError: UPLOAD_PART_INVALID if the driver did not keep this attempt, because another
                one at the same part ended later: the client may upload the part again;
                UPLOAD_PART_TOO_SMALL if a part but the last one has less than 5 MiB and the driver
                cannot join it.
        """
        ...

    async def discard(self, key: BlockKey, upload: str) -> None:
        """Removes the parts of an upload that is complete or aborted. Idempotent."""
        ...


class BlockStore(Protocol):
    """One store of blocks, shared by the processes of an installation."""

    @property
    def uploads(self) -> BlockUploads:
        """Multipart writing."""
        ...

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        """Writes a whole block from memory; visible and durable when it returns.

        Raises:
            BlockExistsError: another block has this name (same bytes again are no error for
                `_tarn/` paths, which are content-addressed).
        """
        ...

    async def open_write(self, key: BlockKey) -> BlockWriter:
        """Begins a block of unknown size, with bounded memory."""
        ...

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """Bytes `[start, start + length)`, clipped to the block's end; for bodies that fit in memory.

        Raises:
            BlockNotFoundError: no such block.
        """
        ...

    def stream(self, key: BlockKey, start: int, length: int) -> AsyncIterator[bytes]:
        """The same bytes in chunks of at most `CHUNK_BYTES`. `BlockNotFoundError` comes with the
        first chunk; a block that ends early raises CORRUPT."""
        ...

    async def stat(self, key: BlockKey) -> BlockInfo:
        """Size and time of a block. Raises `BlockNotFoundError`."""
        ...

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """Up to `limit` blocks whose path starts with `prefix` and is greater than `after`, in byte
        order of the path. Shorter than `limit` means no more."""
        ...

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        """Removes blocks, absent ones too."""
        ...

    async def close(self) -> None:
        """Finishes what was begun and releases the store. Idempotent."""
        ...


@runtime_checkable
class FileBacked(Protocol):
    """What a driver offers beside the port when its large blocks are plain local files, so that a
    server can `sendfile` them. Ask with `isinstance(store, FileBacked)`."""

    async def open_file(self, key: BlockKey) -> BinaryIO | None:
        """The block as an unbuffered file at offset 0, which the caller closes; None when the block
        is not a file of its own (`read` it, it is small). A later delete does not disturb it.

        Raises:
            BlockNotFoundError: no such block.
            TarnError: EXHAUSTED if too many files are open.
        """
        ...
