"""A process that dies at any await of a drain or a drop loses no acknowledged write (docs/design/journal.md).

As in `test_crashes`: it dies once after each request that it sends, which may still arrive, and once after each answer.
Then another replica writes, commits, drains and drops. In the end each write is in the files of the bucket.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from lake import Lake, create_repository
from tests.sim.plan import draw
from tests.sim.test_crashes import MortalWorld, Scene, _run
from tests.support.drained_files import read_files
from tests.support.sim.loop import SimLoop, simulate

from tarn_graveler.collection.cleaner import Cleaner
from tarn_graveler.journal.draining import Drain

pytestmark = pytest.mark.timeout(600)


async def _drain(lake: Lake) -> object:
    assert lake.graveler.drain is not None
    return await lake.graveler.drain.round()


async def _drop(lake: Lake) -> object:
    return await lake.graveler.cleaner.drop_due()


WORKS: dict[str, Callable[[Lake], Awaitable[object]]] = {"drain": _drain, "drop": _drop}


async def _waits(self: object) -> None:
    """Instead of the work of a replica beside its calls: the test calls it."""


async def play(world: MortalWorld, work: Callable[[Lake], Awaitable[object]]) -> None:
    dies, other = world.replicas
    for replica in world.replicas:
        replica.start()
    scene = Scene(world, await create_repository(dies.graveler))
    await scene.put(scene.dying, "a", 1)
    await scene.dying.commit()
    await scene.put(scene.dying, "b", 2)
    await asyncio.sleep(2 * world.plan.registered_seconds + 3)
    if work is _drop:
        await dies.graveler.cleaner.drop_due()  # looks
        await asyncio.sleep(2 * world.plan.registered_seconds + 3)
    world.counts = True
    await _run(dies, work(scene.dying))
    world.counts = False
    await scene.put(scene.other, "c", 3)
    await scene.other.commit()
    await scene.put(scene.other, "d", 4)
    drain = other.graveler.drain
    assert drain is not None
    for _ in range(4):
        await asyncio.sleep(2 * world.plan.registered_seconds + 3)
        await other.graveler.cleaner.drop_due()
        await drain.drain(drain.place_of(scene.repository))  # without the lease of the dead one
    with tempfile.TemporaryDirectory() as folder:
        namespace = scene.repository.storage_namespace
        files = await read_files(world.blocks, namespace, Path(folder) / "replay")
    assert set(files.sizes) == {("a", 1), ("b", 2), ("c", 3), ("d", 4)}
    assert files.staged == {"main": {"d": 4}}
    assert files.report is not None
    assert [text for text in files.report.lines() if "never ended" not in text] == []
    left = [name for name in world.store.token_names() if (await world.store.peek(name))[1]]
    assert len(left) == 1, "tokens that are over are dropped"
    refs = other.graveler.repositories.keys_of(scene.repository).refs
    assert (await world.store.peek(refs.name))[1] == [], (
        "events of records that are drained are removed"
    )
    assert world.problems == []
    for replica in world.replicas:
        replica.crash()


@pytest.mark.parametrize(
    ("store", "step"),
    [
        ("sqlite", 7),
        ("cassandra", 11),
        pytest.param("sqlite", 1, marks=pytest.mark.long),
        pytest.param("cassandra", 1, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", WORKS)
def test_a_process_may_die_at_any_await(name: str, store: str, step: int) -> None:
    plan = replace(
        draw(1), store=store, replicas=2, gateways=0, page_rows=2, rows_mean=2, keeps_events=True
    )
    deaths = 0
    while True:
        worlds: list[MortalWorld] = []

        async def main(loop: SimLoop, dies_at: int = deaths + 1) -> None:
            worlds.append(MortalWorld(loop, plan, dies_at))  # noqa: B023 - runs at once
            await play(worlds[0], WORKS[name])  # noqa: B023

        with mock.patch.object(Drain, "run", _waits), mock.patch.object(Cleaner, "run", _waits):
            simulate(main, seed=deaths)
        if worlds[0].moments <= deaths:
            break
        deaths += step
    assert deaths >= 20, "a process that sends nothing cannot die at an interesting moment"
