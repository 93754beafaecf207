"""Equal objects on a lake in memory, and the rows of erased addresses."""

from __future__ import annotations

from lake import MAIN, Lake
from tests.support.clock import SeededIds

from tarn.core.entry import Entry, address_of, pack, unpack
from tarn.core.erasure import ErasedAddress
from tarn.core.ids import BranchId
from tarn.core.listing.pages import PageRequest

__all__ = ["MAIN", "Writer"]


class Writer:
    """Writes equal objects, each with an address of its own, and erases them."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._ids = SeededIds(lake.clock, seed=9)

    def address(self) -> bytes:
        return self._ids.uuid7()

    async def put(self, path: str = "p", branch: BranchId = MAIN) -> bytes:
        """Writes the object of a path; returns its address."""
        address = self.address()
        packed = pack(Entry(7, self.lake.clock.now_us(), address, path.encode().ljust(16)))
        await self.lake.graveler.staging.stage(self.lake.branch(branch), path, packed)
        return address

    async def committed(self, path: str = "p") -> bytes:
        """Writes an object and commits it; returns its address."""
        address = await self.put(path)
        await self.lake.commit()
        return address

    async def erase(self, *addresses: bytes) -> None:
        """Writes the rows of addresses, as the run of an erasure does."""
        rows = {address: ErasedAddress("ab" * 16, 1) for address in addresses}
        await self.lake.graveler.erased.restore(self.lake.repository, rows)

    async def at(self, ref: str, path: str = "p") -> bytes | None:
        """Returns the address of the object at a path of a ref."""
        request = PageRequest(limit=1, prefix=path)
        page = await self.lake.graveler.reading.page(self.lake.repository, ref, request)
        return address_of(page.entries[0]) if page.entries else None

    async def replaced(self) -> bytes:
        """Returns the address that the object of the commit replaced; empty for none."""
        page = await self.lake.graveler.reading.page(
            self.lake.repository, "main@", PageRequest(limit=1, prefix="p")
        )
        return unpack(page.entries[0]).replaced_address

    async def compact(self) -> None:
        await self.lake.graveler.compacting.compact(self.lake.main)
