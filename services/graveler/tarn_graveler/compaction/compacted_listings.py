"""Builds compacted listings, for compactions and resets of parts (rules 6 and 13 of docs/design/protocol.md).

A compacted listing has no row of its own, as a commit has. So it is *pinned* in the branch record before the last look
for sweeps: a pin is a root of collections. The operation then publishes it by a compare-and-set of the whole record,
which succeeds only while the pin is there. How much time passes in between does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.block.committed import BuildResult
from tarn.core.branch import Branch, Pin, pin_listing
from tarn_graveler.branch.building import Builder, BuildOrder
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.layers import Layers
from tarn_graveler.guards.fences import BuildBlocks, Fences
from tarn_graveler.records.branches import Branches, BranchVersion

__all__ = ["CompactedListing", "CompactedListings"]


@dataclass(frozen=True, slots=True)
class CompactedListing:
    """A listing that is durable, and not yet used by the branch.

    Attributes:
        result: of its build.
        pin: its pin; None if it is the listing of the branch's commit.
        record: the newest record that is known, with the pin.
    """

    result: BuildResult
    pin: Pin | None
    record: BranchVersion


class CompactedListings:
    """Builds and pins compacted listings."""

    def __init__(
        self, branches: Branches, layers: Layers, builder: Builder, fences: Fences
    ) -> None:
        self._branches = branches
        self._layers = layers
        self._builder = builder
        self._fences = fences

    async def build(
        self, handle: BranchHandle, record: BranchVersion, built_from: Branch, order: BuildOrder
    ) -> CompactedListing:
        """Builds the listing of an order and pins it.

        Args:
            handle: the branch.
            record: the newest record that is known.
            built_from: the record that the order was made from.
            order: the build.

        Returns:
            The listing. Whether the result is right for its record is still to be decided: other operations may have
            changed that since.

        Raises:
            TarnError: as `Builder.build`, `BranchHandle.change` and `Fences.rooted`.
        """

        async def make(made: BuildBlocks) -> CompactedListing:
            result = await self._builder.build(order)
            made.add(result.made)
            repository = handle.name.repository
            head = await self._layers.metarange_of(repository, built_from.commit_id)
            if result.metarange_id == head:
                return CompactedListing(result, None, record)
            await made.check()
            pin = Pin(self._branches.new_op_id(), result.metarange_id)

            def decide(now: Branch, op_id: bytes) -> Branch:
                return pin_listing(now, pin, op_id)

            def holds(now: Branch) -> bool:
                return pin in now.pins

            return CompactedListing(result, pin, (await handle.change(decide, holds)).newest)

        return await self._fences.rooted(handle.name.repository, make)
