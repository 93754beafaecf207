"""Purges beside restores: a restored repository has all of its objects, a purged one none (docs/design/erase.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import pytest
from tests.sim.plan import Plan, draw, with_collectors
from tests.sim.purging import DELETED, RESTORED, play
from tests.sim.run import scaled
from tests.sim.world import World
from tests.support.faults.guards import Guard, Weakening, switched_off
from tests.support.sim.loop import SimLoop, simulate

import tarn.collection.purging
import tarn_graveler.records.repositories
from tarn.collection.purging import Purger
from tarn.kv.namespace_records import Namespace, decode_namespace
from tarn_graveler.records.purges import Purges

pytestmark = pytest.mark.timeout(600)

_SEEDS = range(8)
_CONFIRM_SECONDS = 0.2


def _plan(seed: int) -> Plan:
    """A plan whose purgers pause for longer than a deletion and its grace time take."""
    plan = with_collectors(draw(4 * seed))
    assert plan.collecting is not None, "it has collections"
    collecting = replace(plan.collecting, pause_rate=0.02, grace_seconds=0.9)
    profile = replace(plan.profile, pause_rate=0.0, slow_seconds=0.1)
    return replace(plan, seed=seed, collecting=collecting, profile=profile, keys=3)


def _run(seed: int) -> World:
    plan, worlds = _plan(seed), list[World]()

    async def main(loop: SimLoop) -> None:
        worlds.append(World(loop, plan))
        await play(worlds[0])
        worlds[0].problems += loop.errors

    with (
        scaled(plan),
        mock.patch.object(tarn.collection.purging, "_CONFIRM_S", _CONFIRM_SECONDS),
    ):
        simulate(main, seed=seed)
    return worlds[0]


def test_a_repository_is_restored_with_all_of_its_data_or_purged() -> None:
    counts: Counter[str] = Counter()
    for seed in _SEEDS:
        world = _run(seed)
        assert world.problems == [], f"seed {seed}"
        counts += world.statistics
    assert counts[DELETED] > len(_SEEDS), counts
    assert counts[RESTORED] > len(_SEEDS) // 2, counts


def _of_anybody(storage_namespace: str, held: Namespace, instance_uid: str) -> None:
    """Purges a namespace without regard to its row."""


async def _no_look(self: Purger, doomed: object) -> None:
    """Does not look for the note of a later owner, which hides some mistakes."""


def _never_purged(value: bytes) -> Namespace:
    """Takes a namespace for whole although its purge has begun."""
    return replace(decode_namespace(value), purge_begin_us=0)


_NO_LOOK = Weakening(Purger, "_refuse_newer_owner", _no_look)
_GUARDS = (
    Guard(
        "purge-names-its-instance",
        "erase",
        "I9",
        "a purge begins although its repository was restored",
        (
            Weakening(Purges, "_require", staticmethod(_of_anybody)),
            Weakening(Purges, "_refuse_used", _no_look),
            _NO_LOOK,
        ),
    ),
    Guard(
        "no-restore-after-a-purge",
        "erase",
        "I9",
        "a restore takes a namespace whose purge has begun",
        (
            Weakening(tarn_graveler.records.repositories, "decode_namespace", _never_purged),
            _NO_LOOK,
        ),
    ),
)


@pytest.mark.parametrize("guard", _GUARDS, ids=lambda guard: guard.name)
def test_a_missing_guard_of_purges_is_detected(guard: Guard) -> None:
    with switched_off(guard):
        assert any(_run(seed).problems for seed in _SEEDS), guard.without
