"""Erasers: processes that erase objects out of all history while clients work (docs/design/erase.md).

Everything is production's: the plan, its files, the rows of addresses, the deletions and the certificate, under the
lease of a collection. Erasers crash and pause like collectors; any of them runs a plan of another one again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.sim.collectors import CollectorProcess
from tests.sim.versioning import REPOSITORY
from tests.support.sim.swept_blocks import SweptBlockLink

from tarn.client.erasures import ErasureClient
from tarn.collection.erasing import Eraser
from tarn.core.errors import Reason, TarnError

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["EraserProcess", "erase_all"]

_EVERYTHING: Final = "**"
_EVERYTHING_SHARE: Final = 0.1
_FOLDER_SHARE: Final = 0.5
_RECENT: Final = 4
_LAST_SECONDS: Final = 0.2
_PATIENCE: Final = 100
_LATER: Final = frozenset({Reason.COLLECTION_RUNNING, Reason.ADDRESS_TOO_YOUNG})
"""Another process holds the lease; or the clock of the replica is behind that of the plan."""


class EraserProcess(CollectorProcess):
    """One process that makes plans, and runs those of all."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, [REPOSITORY])
        erasing = world.plan.erasing
        assert erasing is not None, "the plan has erasures"
        self._what, self._pause_seconds = "erasure", erasing.pause_seconds
        self._plan_share = erasing.plan_share

    def prepare(self) -> None:
        """See `CollectorProcess.prepare`."""
        super().prepare()
        self._eraser = Eraser(self._collector, ErasureClient(self._transport), self.name)

    def open_blocks(self) -> SweptBlockLink:
        """See `CollectorProcess.open_blocks`."""
        world = self.world
        return world.swept_link(self.wire, world.collector_faults, world.erased.deleting)

    async def turn(self, repository_id: str) -> str:
        """Makes a plan, or runs a recent one; returns what it did."""
        plans = self.world.erased.plan_ids()[-_RECENT:]
        if not plans or self._random.random() < self._plan_share:
            await self.make_plan(self._pattern())
            return "plan"
        return await self.erase(self._random.choice(plans))

    def _pattern(self) -> str:
        if self._random.random() < _EVERYTHING_SHARE:
            return _EVERYTHING
        key = self._random.choice(self.world.keys)
        folder, slash, _ = key.partition("/")
        if slash and self._random.random() < _FOLDER_SHARE:
            return f"{folder}/**"
        return key

    async def make_plan(self, pattern: str) -> str:
        """Makes a plan; returns its id.

        Raises:
            TarnError: as `Eraser.plan`.
        """
        begun = self.world.history.tick()
        is_everything = pattern == _EVERYTHING
        plan = await self._eraser.plan(REPOSITORY, pattern, everything=is_everything)
        self.world.erased.planned(plan.plan_id, begun)
        return plan.plan_id

    async def erase(self, plan_id: str) -> str:
        """Runs a plan; returns what came of it.

        Raises:
            TarnError: as `Eraser.run`.
        """
        done = await self._eraser.run(REPOSITORY, plan_id)
        if done.certificate is None:
            return "run without a certificate"
        self.world.erased.certified(plan_id)
        return "certificate"


async def erase_all(world: World) -> None:
    """Runs all plans to their certificates, without faults, and one more of the objects of one path."""
    collecting = world.plan.collecting
    assert collecting is not None, "a plan with erasures has collections"
    await asyncio.sleep(collecting.cutoff_seconds + 3 * collecting.skew_seconds)
    eraser = EraserProcess(world, "last eraser")
    eraser.prepare()
    left = [*world.erased.plan_ids(), ""]
    for _ in range(_PATIENCE):
        plan_id = left[0]
        try:
            if not plan_id:
                left[0] = await eraser.make_plan(world.keys[0])
                continue
            told = await eraser.erase(plan_id)
        except TarnError as error:
            if error.reason not in _LATER:
                world.problem(f"an erasure without faults: {error!r}")
                break
            await asyncio.sleep(_LAST_SECONDS)
        else:
            if told != "certificate":
                world.problem(f"an erasure without faults ended as a {told}")
            left.pop(0)
            if not left:
                break
    else:
        world.problem(f"the erasures did not end in {_PATIENCE} steps")
    eraser.crash()
