"""Finds metaranges and ranges by id: in memory, on the local disk, then in the block store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

from tarn.aio.lru_cache import LruCache
from tarn.block.port import BlockKey, BlockStore
from tarn.block.rangecache import CachedRange, RangeCache
from tarn.block.rangefile import decode_metarange, decode_range, metarange_path, range_path
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange
from tarn.core.listing.run import Run

__all__ = ["RangeReader"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_HELD_RANGES_MAX = 200_000
"""Rows of metaranges held in memory: at half a KiB each, 100 MiB; 4 billion entries."""


class RangeReader:
    """Reads immutable things, so nothing it holds is ever stale.

    Args:
        store: where they are for good.
        cache: the ranges that this machine has.
        executor: runs what takes long; None: the loop's own.
    """

    def __init__(self, store: BlockStore, cache: RangeCache, executor: Executor | None) -> None:
        self.store = store
        self.cache = cache
        self._executor = executor
        # By namespace, too: an id that another repository has is none here.
        self._metaranges: LruCache[tuple[str, MetarangeId], Metarange] = LruCache(
            _HELD_RANGES_MAX, size_of=_rows_of
        )

    async def compute(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs what would stall the event loop, in a thread; Arrow and numpy let go of the GIL."""
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def held_metarange(self, namespace: str, metarange_id: MetarangeId) -> Metarange | None:
        """The metarange if it is in memory."""
        if metarange_id == EMPTY_METARANGE.metarange_id:
            return EMPTY_METARANGE
        return self._metaranges.get((namespace, metarange_id))

    async def metarange(self, namespace: str, metarange_id: MetarangeId) -> Metarange:
        """A metarange.

        Raises:
            TarnError: CORRUPT, or `BlockNotFoundError`.
        """
        found = self.held_metarange(namespace, metarange_id)
        if found is not None:
            return found
        body = await self.store.read(BlockKey(namespace, metarange_path(metarange_id)))
        metarange = await self.compute(decode_metarange, metarange_id, body)
        self.hold(namespace, metarange)
        return metarange

    def hold(self, namespace: str, metarange: Metarange) -> None:
        """Keeps a metarange in memory; the least recently used ones make room."""
        self._metaranges.put((namespace, metarange.metarange_id), metarange)

    async def range(self, namespace: str, range_id: RangeId) -> CachedRange:
        """A range.

        Raises:
            TarnError: CORRUPT, or `BlockNotFoundError`.
        """
        found = self.cache.opened(range_id)
        if found is not None:
            return found

        async def fetch() -> Run:
            body = await self.store.read(BlockKey(namespace, range_path(range_id)))
            return await self.compute(decode_range, range_id, body)

        return await self.cache.get(range_id, fetch)


def _rows_of(metarange: Metarange) -> int:
    """What it holds; an empty one is something, too."""
    return len(metarange.ranges) + 1
