"""Blocks in memory, for tests and simulations. Enforces the same rules as the persistent drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Self

from tarn.block.keys import (
    METADATA_PREFIX,
    check_listing,
    check_part,
    check_parts,
    check_path,
    check_replaced,
    check_span,
    check_upload,
    parse_namespace,
)
from tarn.block.port import (
    CHUNK_BYTES,
    BlockExistsError,
    BlockInfo,
    BlockKey,
    BlockNotFoundError,
    Joined,
    closed_error,
)
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["MemBlockStore"]


@dataclass(frozen=True, slots=True)
class _Block:
    body: bytes
    mtime_us: int


class MemBlockStore:
    """`BlockStore` over dicts; namespaces of any scheme.

    Args:
        clock: gives the blocks' modification times.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._namespaces: dict[str, dict[str, _Block]] = {}
        self._uploads = MemUploads(self)
        self._open = True

    @property
    def uploads(self) -> MemUploads:
        """Returns the store's multipart uploads."""
        return self._uploads

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        """See `BlockStore.put`."""
        self.check(key)
        self.add(key, bytes(body))

    async def open_write(self, key: BlockKey) -> MemWriter:
        """See `BlockStore.open_write`; here the whole body is held."""
        self.check(key)

        async def finish(body: bytes) -> None:
            self.check(key)
            self.add(key, body)

        return MemWriter(finish)

    async def open_replace(self, key: BlockKey) -> MemWriter:
        """See `BlockStore.open_replace`."""
        self.check(key)
        check_replaced(key.path)

        async def finish(body: bytes) -> None:
            self.check(key)
            self._namespaces.setdefault(key.namespace, {})[key.path] = _Block(
                body, self._clock.now_us()
            )

        return MemWriter(finish)

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """See `BlockStore.read`."""
        check_span(start, length)
        body = self.find(key).body
        return body[start:] if length is None else body[start : start + length]

    async def stream(self, key: BlockKey, start: int, length: int) -> AsyncIterator[bytes]:
        """See `BlockStore.stream`."""
        check_span(start, length)
        body = self.find(key).body
        if len(body) < start + length:
            text = f"block {key.path} in {key.namespace} ends before byte {start + length}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=key.path)
        for at in range(start, start + length, CHUNK_BYTES):
            yield body[at : min(at + CHUNK_BYTES, start + length)]

    async def stat(self, key: BlockKey) -> BlockInfo:
        """See `BlockStore.stat`."""
        block = self.find(key)
        return BlockInfo(key.path, len(block.body), block.mtime_us)

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`; sorts the namespace each time."""
        self._check_open()
        parse_namespace(namespace, None)
        if not check_listing(prefix, after, limit):
            return []
        blocks = self._namespaces.get(namespace, {})
        paths = sorted(path for path in blocks if path.startswith(prefix) and path > after)[:limit]
        return [BlockInfo(path, len(blocks[path].body), blocks[path].mtime_us) for path in paths]

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        """See `BlockStore.delete_many`."""
        for path in paths:
            self.check(BlockKey(namespace, path))
        blocks = self._namespaces.get(namespace, {})
        for path in paths:
            blocks.pop(path, None)

    async def kept_versions(self, namespace: str) -> str:
        """See `KeepsVersions`: this store keeps none."""
        self._check_open()
        parse_namespace(namespace, None)
        return ""

    async def close(self) -> None:
        """See `BlockStore.close`. The blocks stay, so that tests can inspect them."""
        self._open = False

    def check(self, key: BlockKey) -> None:
        """Rejects an invalid key, and every call after `close`."""
        self._check_open()
        parse_namespace(key.namespace, None)
        check_path(key.path)

    def _check_open(self) -> None:
        if not self._open:
            raise closed_error()

    def find(self, key: BlockKey) -> _Block:
        """Returns the block, or raises `BlockNotFoundError`."""
        self.check(key)
        block = self._namespaces.get(key.namespace, {}).get(key.path)
        if block is None:
            raise BlockNotFoundError(key)
        return block

    def add(self, key: BlockKey, body: bytes) -> None:
        """Makes a block visible, or metadata young again, or raises `BlockExistsError`."""
        blocks = self._namespaces.setdefault(key.namespace, {})
        old = blocks.get(key.path)
        if old is None or (old.body == body and key.path.startswith(METADATA_PREFIX)):
            blocks[key.path] = _Block(body, self._clock.now_us())
        else:
            raise BlockExistsError(key)


class MemWriter:
    """`BlockWriter` and `PartWriter` into a bytearray."""

    def __init__(self, finish: Callable[[bytes], Awaitable[None]], receipt: str = "") -> None:
        self._finish = finish
        self.receipt = receipt
        self._body = bytearray()
        self._ended = False

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `BlockWriter.write`."""
        self._check()
        self._body += data

    async def finish(self) -> None:
        """See `BlockWriter.finish`."""
        self._check()
        self._ended = True
        await self._finish(bytes(self._body))

    async def abort(self) -> None:
        """See `BlockWriter.abort`."""
        self._ended = True
        self._body = bytearray()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.abort()

    def _check(self) -> None:
        if self._ended:
            raise RuntimeError("the writer was finished or aborted")


class MemUploads:
    """`BlockUploads` of a `MemBlockStore`."""

    def __init__(self, store: MemBlockStore) -> None:
        self._store = store
        # (namespace, upload) → parts by name; present from the first open_part to discard
        self._parts: dict[tuple[str, str], dict[str, bytes]] = {}

    async def begin(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.begin`."""
        self._store.check(key)
        self._parts.setdefault((key.namespace, check_upload(upload)), {})

    async def open_part(self, key: BlockKey, upload: str, part: int, attempt: str) -> MemWriter:
        """See `BlockUploads.open_part`. `finish` raises `BlockNotFoundError` after a discard."""
        self._store.check(key)
        name = check_part(part, attempt)
        place = (key.namespace, check_upload(upload))
        self._parts.setdefault(place, {})

        async def finish(body: bytes) -> None:
            self._store.check(key)
            parts = self._parts.get(place)
            if parts is None:
                raise BlockNotFoundError(key)
            if name in parts:
                raise BlockExistsError(key)
            parts[name] = body

        return MemWriter(finish, attempt)

    async def complete(
        self, key: BlockKey, upload: str, parts: Sequence[tuple[int, str]]
    ) -> Joined:
        """See `BlockUploads.complete`."""
        self._store.check(key)
        names = check_parts(upload, parts)
        kept = self._parts.get((key.namespace, check_upload(upload)), {})
        try:
            return Joined(len(self._store.find(key).body), was_there=True)
        except BlockNotFoundError:
            if not all(name in kept for name in names):
                raise
        body = b"".join(kept[name] for name in names)
        self._store.add(key, body)
        return Joined(len(body), was_there=False)

    async def discard(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.discard`."""
        self._store.check(key)
        self._parts.pop((key.namespace, check_upload(upload)), None)

    async def discard_all(self, namespace: str) -> None:
        """See `BlockUploads.discard_all`."""
        for place in [each for each in self._parts if each[0] == namespace]:
            del self._parts[place]
