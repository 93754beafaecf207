"""Finds metaranges and ranges by id: first in memory, then on the local disk, then in the block store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

from tarn.aio.lru_cache import LruCache
from tarn.block.port import BlockKey, BlockStore, read_whole
from tarn.block.rangecache import CachedRange, RangeCache
from tarn.block.rangefile import decode_metarange, decode_range, metarange_path, range_path
from tarn.core.ids import MetarangeId, RangeId
from tarn.core.listing.metarange import EMPTY_METARANGE, Metarange
from tarn.core.listing.run import Run

__all__ = ["RangeReader"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_HELD_RANGES_MAX = 200_000
"""Rows of metaranges held in memory: 100 MiB at half a KiB each. They describe 4 billion entries."""


class RangeReader:
    """Reads and caches ranges and metaranges. They are immutable, so no cached value is ever stale.

    Args:
        store: the authoritative copy.
        cache: the ranges on this machine's disk.
        executor: runs long computations; None: the loop's default executor.
    """

    def __init__(self, store: BlockStore, cache: RangeCache, executor: Executor | None) -> None:
        self.store = store
        self.cache = cache
        self._executor = executor
        # Keyed by namespace too: an id of another repository must not be found here.
        self._metaranges: LruCache[tuple[str, MetarangeId], Metarange] = LruCache(
            _HELD_RANGES_MAX, size_of=_rows_of
        )

    async def compute(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs work that would stall the event loop in a thread; Arrow and numpy release the GIL."""
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def held_metarange(self, namespace: str, metarange_id: MetarangeId) -> Metarange | None:
        """Returns the metarange if it is in memory."""
        if metarange_id == EMPTY_METARANGE.metarange_id:
            return EMPTY_METARANGE
        return self._metaranges.get((namespace, metarange_id))

    async def metarange(self, namespace: str, metarange_id: MetarangeId) -> Metarange:
        """Returns a metarange, from memory or the store.

        Raises:
            TarnError: CORRUPT if the file is damaged; `BlockNotFoundError` if the store lacks it.
        """
        found = self.held_metarange(namespace, metarange_id)
        if found is not None:
            return found
        body = await read_whole(self.store, BlockKey(namespace, metarange_path(metarange_id)))
        metarange = await self.compute(decode_metarange, metarange_id, body)
        self.hold(namespace, metarange)
        return metarange

    async def listing(self, namespace: str, metarange_id: MetarangeId | None) -> Metarange:
        """Returns a metarange as `metarange`; for None, the empty listing."""
        return (
            EMPTY_METARANGE
            if metarange_id is None
            else await self.metarange(namespace, metarange_id)
        )

    def hold(self, namespace: str, metarange: Metarange) -> None:
        """Keeps a metarange in memory and evicts the least recently used ones."""
        self._metaranges.put((namespace, metarange.metarange_id), metarange)

    async def range(self, namespace: str, range_id: RangeId) -> CachedRange:
        """Returns a range, from memory, the local disk or the store.

        Raises:
            TarnError: CORRUPT if the file is damaged; `BlockNotFoundError` if the store lacks it.
        """
        found = self.cache.opened(range_id)
        if found is not None:
            return found

        async def fetch() -> Run:
            body = await read_whole(self.store, BlockKey(namespace, range_path(range_id)))
            return await self.compute(decode_range, range_id, body)

        return await self.cache.get(range_id, fetch)


def _rows_of(metarange: Metarange) -> int:
    """The weight of a metarange in memory: its rows and one more, so that an empty one counts, too."""
    return len(metarange.ranges) + 1
