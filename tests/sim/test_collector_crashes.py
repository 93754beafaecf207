"""A collector that dies at any await of a mark and its sweep takes nothing that is live, and leaves nothing behind.

It dies once after each request that it sends, to the block store or to graveler, which may still arrive, and once after
each answer. Then a client writes and commits beside the lease and the batch of the dead process, and another collector
goes on. In the end every block to which something refers is there, and no other one (`Kept.compare`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.sim.admins import Admin
from tests.sim.collectors import CollectorProcess, collect_twice
from tests.sim.compactors import Compactor
from tests.sim.plan import Plan, draw, with_collectors
from tests.sim.run import scaled
from tests.sim.workload import Client
from tests.sim.world import World
from tests.support.sim.loop import SimLoop, simulate

from tarn.collection.collector import Step
from tarn.core.errors import TarnError

pytestmark = pytest.mark.timeout(600)

_MAIN = "lake/main"
_DIES = "k0"
_STEPS = 4
_KINDS = {"ListRoots", "BeginBatch", "EndBatch", "BeginCollection", "EndCollection"}


class MortalWorld(World):
    """A world without faults, whose collector dies at a moment: after it sends a request, or gets an answer.

    Args:
        dies_at: the number of the moment, from 1; it lives if this is 0.

    Attributes:
        moments: what it sent and got until then.
    """

    def __init__(self, loop: SimLoop, plan: Plan, dies_at: int) -> None:
        self._dies_at = dies_at
        self.moments: list[str] = []
        super().__init__(loop, plan, is_traced=True)
        self.mortal = CollectorProcess(self, _DIES, ["lake"])

    def log(self, text: str) -> None:
        """Counts the moments: the wire tells each request and each answer."""
        super().log(text)
        if text.startswith(f"  {_DIES}.") and self.mortal.is_up:
            self.moments.append(text.split()[1].rstrip(":"))
            if len(self.moments) == self._dies_at:
                self.mortal.crash()


async def _prepare(world: World, client: Client) -> None:
    """Objects that are committed, staged, or overwritten before a commit; and compacted listings that were replaced."""
    await Admin(world, "admin", []).create(_MAIN)
    compactor = Compactor(world, "compactor", [_MAIN])
    for _ in range(2):
        for key in client.keys:
            await client.put(_MAIN, key)
        await compactor.compact(_MAIN)
    await client.commit(_MAIN)
    for key in client.keys:
        await client.put(_MAIN, key)


async def _collect(world: MortalWorld, seconds: float) -> None:
    """Marks and sweeps in the mortal process, until its end or that of the sweep."""

    async def run() -> None:
        with suppress(TarnError):  # what the dead process tries to send is refused
            for _ in range(_STEPS):
                if await world.mortal.step("lake") == Step.SWEEP.value:
                    return
                await asyncio.sleep(seconds)

    world.mortal.prepare()
    await asyncio.wait([world.mortal.tasks.spawn(run())])


async def _play(world: MortalWorld) -> None:
    plan = world.plan
    assert plan.collecting is not None, "it has collections"
    for replica in world.replicas:
        replica.start()
    client = Client(world, "c0", [_MAIN])
    await _prepare(world, client)
    await asyncio.sleep(plan.collecting.cutoff_seconds)
    await _collect(world, plan.collecting.grace_seconds + 0.1)
    # A build beside what the dead process left: it finds the ranges of the replaced listings again.
    await client.put(_MAIN, client.keys[0])
    await client.commit(_MAIN)
    await collect_twice(world, ["lake"])
    await world.kept.compare(world.replicas[0], "lake")
    reads = [await client.get(_MAIN, key) for key in client.keys]
    assert all(op.is_ok and op.value for op in reads)
    assert [*world.kept.violations(), *world.problems] == []
    for machine in [*world.replicas, *world.gateways]:
        machine.crash()


def _plan(store: str) -> Plan:
    plan = with_collectors(replace(draw(1), store=store, replicas=1, gateways=1, keys=3))
    return replace(plan, rows_mean=1, page_rows=1000, hang_up_seconds=10.0)


def _moments(plan: Plan, dies_at: int) -> Sequence[str]:
    worlds: list[MortalWorld] = []

    async def main(loop: SimLoop) -> None:
        worlds.append(MortalWorld(loop, plan, dies_at))
        await _play(worlds[0])

    with scaled(plan):
        simulate(main, seed=dies_at)
    return worlds[0].moments


# Each third await here; `make test-long` plays all.
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_collector_may_die_at_any_await_of_mark_and_sweep(step: int) -> None:
    plan = _plan("sqlite")
    deaths = 0
    while len(_moments(plan, deaths + 1)) > deaths:
        deaths += step
    assert deaths > 60, "a process that sends nothing cannot die at an interesting moment"


def test_a_sweep_that_deletes_ranges_announces_its_batches() -> None:
    moments = _moments(_plan("sqlite"), 0)
    assert set(moments) > _KINDS, moments
