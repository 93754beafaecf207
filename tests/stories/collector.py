"""A garbage collection of a story's repository: mark, grace, sweep, at the times of this version."""

from __future__ import annotations

from beside_work import World

from tarn.core import collection as core
from tarn.core.collection import LIMITS, Collection, Phase

__all__ = ["StoryCollector"]

_MARK, _SWEEP = "a" * 32, "b" * 32


class StoryCollector(World):
    """Deletes the blocks that no root refers to, at the mark and again at the sweep."""

    async def begin(self, run: str, phase: Phase, mark: str = "") -> None:
        """Begins a mark or a sweep."""

        def decide(at: Collection) -> Collection:
            return core.begin(at, run, phase, mark, self.clock.now_us(), LIMITS)

        await self.change(decide)

    async def run(self) -> None:
        """Collects once; the time between mark and sweep passes."""
        await self.begin(_MARK, Phase.MARK)
        cutoff_us = (await self.graveler.collections.read(self.repository)).cutoff_us
        doomed = await self.unreferenced(await self.old(cutoff_us))
        await self.end(_MARK)
        self.clock.advance(LIMITS.grace_us / 1e6)
        await self.begin(_SWEEP, Phase.SWEEP, _MARK)
        await self.delete_doomed(_SWEEP, cutoff_us, sorted(await self.unreferenced(doomed)))
        await self.end(_SWEEP)
