"""Listings in a store of blocks, and machines that read and build them, each with an empty cache."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, TypeVar

from tests.support.listings import Listing, staged

from tarn.block.committed import Committed
from tarn.block.mem import MemBlockStore
from tarn.block.rangecache import RangeCache
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule

__all__ = ["SPACE", "ListingStore"]

SPACE = "mem://lake"
Blocks = TypeVar("Blocks", bound=MemBlockStore)


class ListingStore(Generic[Blocks]):
    """A store and its machines.

    Attributes:
        store: what the machines share.
        committed: a machine.
    """

    def __init__(self, store: Blocks, directory: Path, rule: BreakRule | None = None) -> None:
        self.store = store
        self._directory = directory
        self._rule = rule or BreakRule(rows_mean=4, rows_max=50)
        self._machines = 0
        self._executor = ThreadPoolExecutor(2)
        self.committed = self.machine()

    def machine(self) -> Committed:
        """Returns a new machine; its cache is empty."""
        self._machines += 1
        cache = RangeCache(self._directory / str(self._machines), executor=self._executor)
        return Committed(self.store, cache, rule=self._rule)

    def close(self) -> None:
        """Waits until no machine writes to its cache; then the directory may go."""
        self._executor.shutdown()

    async def add(self, listing: Listing) -> MetarangeId:
        """Stores a listing; it has the same id as any history that leads to it."""
        return (await self.committed.build(SPACE, None, [staged(listing)])).metarange_id
