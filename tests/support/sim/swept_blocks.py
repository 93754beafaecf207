"""The link to a block store whose blocks a collection deletes.

Looks and listings are requests here, too, with their delays and refusals. A deletion takes its blocks one after the
other. Its answer may be lost while it is still on its way. But the store refuses it once it is older than a limit, as
S3 refuses a request that was signed more than 15 minutes ago (docs/design/collection.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tests.support.sim.blocks import BlockLink
from tests.support.sim.faults import FaultInjector, refused
from tests.support.sim.link import Wire

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockInfo, BlockKey, PresignedWrite
from tarn.kv.port import OutcomeUnknownError

__all__ = ["SweptBlockLink"]


class SweptBlockLink(BlockLink):
    """`BlockStore` of one process, over a wire.

    Args:
        blocks: the blocks.
        wire: of the process.
        faults: delays and faults.
        valid_seconds: age at which the store refuses a deletion.
        deleted: called before each block is deleted, with its key.
    """

    def __init__(
        self,
        blocks: MemBlockStore,
        wire: Wire,
        faults: FaultInjector,
        *,
        valid_seconds: float,
        deleted: Callable[[BlockKey], None],
    ) -> None:
        super().__init__(blocks, wire, faults)
        self._valid_seconds = valid_seconds
        self._deleted = deleted

    async def stat(self, key: BlockKey) -> BlockInfo:
        """See `BlockStore.stat`."""

        async def stat() -> BlockInfo:
            await self._faults.hop("block")
            self._faults.refuse(f"block {key.path}")
            info = await self._blocks.stat(key)
            await self._faults.hop("block")
            return info

        return await self._wire.send(f"stat {key.path}", stat)

    async def list_page(
        self, namespace: str, prefix: str, after: str, limit: int
    ) -> list[BlockInfo]:
        """See `BlockStore.list_page`."""

        async def list_page() -> list[BlockInfo]:
            await self._faults.hop("block")
            self._faults.refuse(f"list {prefix}")
            page = await self._blocks.list_page(namespace, prefix, after, limit)
            await self._faults.hop("block")
            return page

        return await self._wire.send(f"list {prefix} after {after!r}", list_page)

    async def delete_many(self, namespace: str, paths: Sequence[str]) -> None:
        """See `BlockStore.delete_many`."""
        held = [BlockKey(namespace, path) for path in paths]
        until = asyncio.get_running_loop().time() + self._valid_seconds
        if held:
            what = f"delete {[key.path for key in held]}"
            await self._wire.send(what, lambda: self._delete_all(held, until))

    @property
    def binds_writes(self) -> bool:
        """See `PresignsWrites`."""
        return True

    async def copy_written(self, source: BlockKey, target: BlockKey, size: int, etag: str) -> None:
        """See `PresignsWrites`. Tests ask for no URL that lets a client write twice."""
        raise AssertionError(f"{source} is copied to {target} ({size} bytes, {etag})")

    async def presign_write(
        self, key: BlockKey, seconds: int, part_count: int, *, once: bool = True
    ) -> PresignedWrite:
        """See `PresignsWrites`. Tests write the block themselves."""
        del seconds, part_count, once
        return PresignedWrite(f"sim:{key.path}", (("If-None-Match", "*"),))

    async def abort_writes(self, key: BlockKey) -> int:
        """See `PresignsWrites`. Tests write no parts."""
        del key
        return 0

    async def kept_versions(self, namespace: str) -> str:
        """See `KeepsVersions`."""
        return await self._blocks.kept_versions(namespace)

    async def _delete_all(self, keys: Sequence[BlockKey], until: float) -> None:
        await self._faults.hop("block")
        self._faults.refuse("deletion")
        if self._faults.happens(self._faults.profile.late_deletion_rate):
            self._wire.leave(lambda: self._delete_late(keys, until))
            raise OutcomeUnknownError("a deletion has no answer")
        await self._delete_each(keys, until)
        await self._faults.hop("block")

    async def _delete_late(self, keys: Sequence[BlockKey], until: float) -> None:
        """Deletes some blocks at any time at which the store may still take the request."""
        left = max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.sleep(self._faults.random.uniform(0.0, left))
        kept = self._faults.random.randrange(len(keys) + 1)
        await self._delete_each(keys[kept:], until)

    async def _delete_each(self, keys: Sequence[BlockKey], until: float) -> None:
        for key in keys:
            if asyncio.get_running_loop().time() > until:
                raise refused("a deletion that was signed too long ago")
            self._deleted(key)
            await self._blocks.delete_many(key.namespace, [key.path])
            if self._faults.happens(_BETWEEN_RATE):
                await self._faults.hop("block")


_BETWEEN_RATE = 0.3
