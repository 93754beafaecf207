"""Moves bodies between clients and the block store. Knows nothing of refs.

A small body is held in memory and stored in one piece. A larger body is streamed in pieces of at most
`CHUNK_BYTES`, so the memory of a transfer does not grow with its size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog

from tarn.block.port import (
    CHUNK_BYTES,
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    BlockWriter,
    FileBacked,
    FileSlice,
)
from tarn.core.entry import Entry
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import physical_path
from tarn.objects.checksums import NO_ALGORITHMS, Algorithm, BodySums, Digests
from tarn.objects.incoming import IncomingBody, thread_of

__all__ = [
    "Body",
    "LostBlockError",
    "LostBytesError",
    "block_key",
    "copy_block",
    "digest_block",
    "discard",
    "open_body",
    "receive",
    "refuse_external",
]

Body = bytes | AsyncIterator[bytes | memoryview] | FileSlice
"""Bytes of an object on their way to a client. Whoever sends them closes the iterator or the file."""

_log = structlog.get_logger()


class LostBytesError(TarnError):
    """Bytes that an entry names are missing. The text is for the client."""

    def __init__(self, text: str) -> None:
        super().__init__(Kind.CORRUPT, Reason.DATA_CORRUPT, text)


class LostBlockError(LostBytesError):
    """The block of an entry is missing: it is lost, unless it was erased (`tarn.objects.erased`).

    Attributes:
        key: of the block.
    """

    def __init__(self, key: BlockKey) -> None:
        super().__init__("The object's data is missing; report it to the administrator.")
        self.key = key


def block_key(namespace: str, entry: Entry) -> BlockKey:
    """Returns the key of an entry's block.

    Raises:
        TarnError: NOT_IMPLEMENTED for an entry whose bytes are outside its namespace.
    """
    if entry.external_address:
        refuse_external(entry)
    return BlockKey(namespace, physical_path(entry.address))


def refuse_external(entry: Entry) -> None:
    """Raises TarnError NOT_IMPLEMENTED for an entry whose bytes are outside the namespace."""
    if entry.external_address:
        text = "The object's data is outside the repository, which is not implemented."
        raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)


async def receive(blocks: BlockStore, key: BlockKey, payload: IncomingBody) -> BodySums:
    """Stores and verifies a request's body as a block, piece by piece.

    If anything fails, including a wrong digest, no block exists: bodies are verified before they become
    visible.

    Args:
        blocks: the block store.
        key: a new block.
        payload: the body.

    Raises:
        TarnError: an error of the store.
        Exception: the errors of the body.
    """
    async with await blocks.open_write(key) as writer:
        sums = await payload.pump(writer.write, thread_of(writer))
        await writer.finish()
    return sums


async def discard(blocks: BlockStore, key: BlockKey) -> None:
    """Removes a block that nothing refers to; if that fails, garbage collection removes it."""
    try:
        await blocks.delete_many(key.namespace, [key.path])
    except TarnError as error:
        _log.warning("block left behind", path=key.path, error=error.message)


async def open_body(
    blocks: BlockStore,
    key: BlockKey,
    start: int,
    length: int,
    small: int,
    *,
    as_file: bool = True,
) -> Body:
    """Returns the bytes `[start, start + length)` of a block, in the form that is cheapest to send.

    Args:
        blocks: the block store.
        key: of the block.
        start: first byte.
        length: number of bytes, all of them within the block.
        small: bodies up to this size come in one piece.
        as_file: whether the front can send a `FileSlice`. If not, larger bodies come in chunks of at most
            `CHUNK_BYTES`, each read when it is asked for.

    Raises:
        LostBytesError: the block is absent (`LostBlockError`) or too short. That is lost data, and is logged
            as such; a 404 would look as if the object had never been written.
    """
    try:
        if length <= small:
            return await _read(blocks, key, start, length)
        if as_file and isinstance(blocks, FileBacked):
            file = await blocks.open_file(key)
            if file is not None:
                return FileSlice(file, start, length)
        if length <= CHUNK_BYTES:
            return await _read(blocks, key, start, length)
        return await _begun(blocks.stream(key, start, length))
    except BlockNotFoundError as error:
        raise LostBlockError(key) from error


async def _read(blocks: BlockStore, key: BlockKey, start: int, length: int) -> bytes:
    if not length:
        return b""
    body = await blocks.read(key, start, length)
    if len(body) != length:
        text = f"block {key.path} gave {len(body)} bytes from {start} instead of {length}"
        _log.error("block too short", path=key.path, namespace=key.namespace, detail=text)
        raise LostBytesError("The object's data is incomplete; report it to the administrator.")
    return body


async def _begun(
    chunks: AsyncIterator[bytes | memoryview],
) -> AsyncIterator[bytes | memoryview]:
    """Yields the same chunks, with the first one prefetched: a missing block is detected before the answer begins."""
    first = await anext(chunks)

    async def all_chunks() -> AsyncIterator[bytes | memoryview]:
        yield first
        async for chunk in chunks:
            yield chunk

    return all_chunks()


async def copy_block(
    blocks: BlockStore,
    key: BlockKey,
    start: int,
    length: int,
    writer: BlockWriter,
    wanted: frozenset[Algorithm] = NO_ALGORITHMS,
) -> BodySums:
    """Copies bytes of a block to a writer, which the caller finishes; returns their digests.

    Raises:
        LostBlockError: the block is absent.
        TarnError: an error of the store.
    """
    digests = Digests(wanted)
    async for chunk in _chunks(blocks, key, start, length):
        await asyncio.to_thread(digests.update, chunk)
        await writer.write(chunk)
    return digests.finish()


async def digest_block(
    blocks: BlockStore,
    key: BlockKey,
    length: int,
    wanted: frozenset[Algorithm] = NO_ALGORITHMS,
    *,
    start: int = 0,
) -> BodySums:
    """Returns the digests of bytes of an existing block, in O(length).

    Raises:
        LostBlockError: the block is absent.
        TarnError: an error of the store; CORRUPT if the block ends early.
    """
    digests = Digests(wanted)
    async for chunk in _chunks(blocks, key, start, length):
        await asyncio.to_thread(digests.update, chunk)
    return digests.finish()


async def _chunks(
    blocks: BlockStore, key: BlockKey, start: int, length: int
) -> AsyncIterator[bytes | memoryview]:
    if not length:
        return
    try:
        async for chunk in blocks.stream(key, start, length):
            yield chunk
    except BlockNotFoundError as error:
        raise LostBlockError(key) from error
