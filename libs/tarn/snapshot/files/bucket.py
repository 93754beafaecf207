"""Snapshots in a bucket, through the block store of the installation, below a namespace of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from tarn.block.paging import blocks_below
from tarn.block.port import BlockKey, BlockNotFoundError, BlockStore, read_whole
from tarn.snapshot.files.target import missing_error

__all__ = ["BucketTarget"]

_ROOT: Final = "_tarn/snapshot/"
"""Prefix of all paths: the block port lets content-addressed blocks below `_tarn/` be written again."""
_PAGE: Final = 1000


class BucketTarget:
    """`Target` in a bucket.

    Args:
        blocks: the block store; `close` closes it.
        namespace: where to keep snapshots, such as `s3://bucket/backups`. Not the namespace of a repository.
    """

    def __init__(self, blocks: BlockStore, namespace: str) -> None:
        self._blocks = blocks
        self._namespace = namespace.rstrip("/")

    @property
    def about(self) -> str:
        """See `Target`."""
        return self._namespace

    async def put(self, name: str, data: bytes) -> None:
        """See `Target`."""
        await self._blocks.put(self._key(name), data)

    async def read(self, name: str, most: int) -> bytes:
        """See `Target`."""
        try:
            return await read_whole(self._blocks, self._key(name), most)
        except BlockNotFoundError:
            raise missing_error(name, self.about) from None

    async def has(self, name: str) -> bool:
        """See `Target`."""
        try:
            return (await self._blocks.stat(self._key(name))).size > 0
        except BlockNotFoundError:
            return False

    async def files(self, folder: str) -> AsyncIterator[str]:
        """See `Target`."""
        async for info in blocks_below(self._blocks, self._namespace, f"{_ROOT}{folder}/"):
            yield info.path.removeprefix(_ROOT)

    async def delete(self, names: Sequence[str]) -> None:
        """See `Target`."""
        for at in range(0, len(names), _PAGE):
            paths = [_ROOT + name for name in names[at : at + _PAGE]]
            await self._blocks.delete_many(self._namespace, paths)

    async def close(self) -> None:
        """See `Target`."""
        await self._blocks.close()

    def _key(self, name: str) -> BlockKey:
        return BlockKey(self._namespace, _ROOT + name)
