"""A simulated block store that is slow, refuses requests, and loses the answers to writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.support.sim.faults import FaultInjector, refused
from tests.support.sim.link import Wire

from tarn.block.committed import Committed
from tarn.block.mem import MemBlockStore, MemUploads, MemWriter
from tarn.block.port import BlockInfo, BlockKey, BlockStore, BlockUploads, BlockWriter, Joined
from tarn.block.rangecache import RangeCache
from tarn.core.ids import RangeId
from tarn.core.listing.breaks import BreakRule
from tarn.core.listing.run import Run
from tarn.kv.port import OutcomeUnknownError

__all__ = ["BlockLink", "MemRanges", "committed_over"]

R = TypeVar("R")


class BlockLink:
    """`BlockStore` of one replica, over a wire to blocks in memory."""

    def __init__(self, blocks: MemBlockStore, wire: Wire, faults: FaultInjector) -> None:
        self._blocks = blocks
        self._wire = wire
        self._faults = faults

    @property
    def uploads(self) -> BlockUploads:
        """The uploads, as slow and as unreliable as the blocks."""
        return _UploadsLink(self._blocks.uploads, self._wire, self._faults)

    async def put(self, key: BlockKey, body: bytes | bytearray | memoryview) -> None:
        """See `BlockStore.put`."""
        held = bytes(body)

        async def put() -> None:
            await self._blocks.put(key, held)

        await self._wire.send(f"put {key.path}", lambda: _written(self._faults, key, put))

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        """See `BlockStore.read`."""

        async def read() -> bytes:
            await self._faults.hop("block")
            self._faults.refuse(f"block {key.path}")
            body = await self._blocks.read(key, start, length)
            await self._faults.hop("block")
            return body

        return await self._wire.send(f"read {key.path}", read)

    async def open_write(self, key: BlockKey) -> BlockWriter:
        """See `BlockStore.open_write`."""
        return await self._blocks.open_write(key)

    async def open_replace(self, key: BlockKey) -> BlockWriter:
        """See `BlockStore.open_replace`."""
        return await self._blocks.open_replace(key)

    def stream(self, key: BlockKey, start: int, length: int) -> AsyncIterator[bytes | memoryview]:
        """See `BlockStore.stream`."""
        return self._blocks.stream(key, start, length)

    async def stat(self, key: BlockKey) -> BlockInfo:
        """See `BlockStore.stat`."""
        return await self._blocks.stat(key)

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`."""
        return await self._blocks.list_page(namespace, prefix, after, limit)

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        """See `BlockStore.delete_many`."""
        await self._blocks.delete_many(namespace, paths)

    async def close(self) -> None:
        """Does nothing: the blocks outlive the replica."""


class _UploadsLink:
    """`BlockUploads` over a wire. Bytes of parts are held until they are finished."""

    def __init__(self, uploads: MemUploads, wire: Wire, faults: FaultInjector) -> None:
        self._uploads = uploads
        self._wire = wire
        self._faults = faults

    async def begin(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.begin`."""
        work = partial(self._uploads.begin, key, upload)
        await self._wire.send(f"begin {upload}", lambda: _written(self._faults, key, work))

    async def open_part(self, key: BlockKey, upload: str, part: int, attempt: str) -> MemWriter:
        """See `BlockUploads.open_part`."""
        writer = await self._uploads.open_part(key, upload, part, attempt)

        async def finish(body: bytes) -> None:
            async def work() -> None:
                await writer.write(body)
                await writer.finish()

            what = f"part {part} of {upload}"
            await self._wire.send(what, lambda: _written(self._faults, key, work))

        return MemWriter(finish, attempt)

    async def complete(
        self, key: BlockKey, upload: str, parts: Sequence[tuple[int, str]]
    ) -> Joined:
        """See `BlockUploads.complete`."""
        work = partial(self._uploads.complete, key, upload, parts)
        return await self._wire.send(f"join {upload}", lambda: _written(self._faults, key, work))

    async def discard(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.discard`."""
        work = partial(self._uploads.discard, key, upload)
        await self._wire.send(f"discard {upload}", lambda: _written(self._faults, key, work))

    async def discard_all(self, namespace: str) -> None:
        """See `BlockUploads.discard_all`."""
        key, work = BlockKey(namespace, ""), partial(self._uploads.discard_all, namespace)
        await self._wire.send("discard uploads", lambda: _written(self._faults, key, work))


async def _written(faults: FaultInjector, key: BlockKey, work: Callable[[], Awaitable[R]]) -> R:
    """Performs a write with the faults of the profile."""
    await faults.hop("block")
    if faults.are_blocks_away:
        raise refused(f"block {key.path}")
    faults.refuse(f"block {key.path}")
    is_lost = faults.fails(faults.profile.lost_rate)
    if is_lost and faults.random.random() < 0.5:
        raise OutcomeUnknownError(f"block {key.path}: lost on its way")
    answer = await work()
    await faults.hop("block")
    if is_lost:
        raise OutcomeUnknownError(f"block {key.path}: no answer")
    return answer


class MemRanges(RangeCache):
    """A range cache over a dict; files would only make the simulation slower."""

    def __init__(self, executor: Executor | None = None) -> None:
        super().__init__(Path(), executor=executor)
        self._files: dict[RangeId, Run] = {}

    def _store(self, range_id: RangeId, run: Run) -> None:
        self._files[range_id] = run

    def _load(self, range_id: RangeId) -> Run | None:
        return self._files.get(range_id)


def committed_over(blocks: BlockStore, rows_mean: int) -> Committed:
    """Returns committed listings with a cache of their own; the simulated loop runs their thread work."""
    return Committed(blocks, MemRanges(), rule=BreakRule(rows_mean=rows_mean))
