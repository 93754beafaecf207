"""A replica tells what waits for garbage collections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from collector_lab import DAY_S, NO_LIMITS, collector_lab
from lake import Lake

from tarn.aio.task_set import TaskSet
from tarn.core.errors import Kind, Reason, TarnError
from tarn.telemetry.meters import Meters
from tarn_graveler.assembly import Graveler
from tarn_graveler.collection.backlog import LOOK_SECONDS, CollectionBacklog

FIRST_LOOK = 61


def backlog_of(graveler: Graveler) -> CollectionBacklog:
    return CollectionBacklog(
        graveler.iterators, graveler.collections, graveler.purges, graveler.clock
    )


def values(meters: Meters) -> dict[str, float]:
    """Returns the gauges of the backlog, without `collection.`."""
    return {
        family.metric.name.removeprefix("collection."): value
        for family in meters.collect()
        if family.metric.name.startswith("collection.")
        for _, value in meters.samples(family.metric.name)
    }


async def test_the_backlog_follows_marks_sweeps_and_deletions(tmp_path: Path) -> None:
    async with collector_lab(tmp_path) as lab:
        (graveler,) = lab.service.replicas.made
        backlog, meters = backlog_of(graveler), Meters()
        backlog.register(meters)
        assert set(values(meters).values()) == {0}
        await lab.put("main", "a", b"first")
        await lab.put("main", "a", b"second one")  # the first block is garbage now
        await lab.pass_days(3)
        await backlog.look()
        assert values(meters)["run_age"] == pytest.approx(3 * DAY_S)
        assert values(meters)["mark_age"] == 0
        await lab.collector.mark("lake")
        await lab.pass_days(1)
        await backlog.look()
        assert values(meters) == {
            "candidates": 1,
            "candidate": 5,
            "mark_age": DAY_S,
            "run_age": DAY_S,
            "purges_waiting": 0,
            "looks_failed": 0,
        }
        await lab.service.graveler.create_repository(lab.admin, "younger")
        await backlog.look()
        assert values(meters)["run_age"] == DAY_S
        await lab.collector.sweep("lake", NO_LIMITS)
        lab.service.clock.advance(100)
        await backlog.look()
        assert values(meters) == {**dict.fromkeys(values(meters), 0), "run_age": 100}
        await lab.service.graveler.delete_repository(lab.admin, "lake", with_data=True)
        await backlog.look()
        assert values(meters)["purges_waiting"] == 0  # not before its grace time is over
        await lab.pass_days(8)
        await backlog.look()
        assert values(meters)["purges_waiting"] == 1
        purges, namespace = graveler.purges, lab.namespace
        await purges.begin(namespace, lab.uid)
        assert (await backlog.look()).purges == 1
        await purges.end(namespace, lab.uid, 1, 1)
        assert (await backlog.look()).purges == 0


async def rest() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_failed_look_keeps_the_numbers_and_is_counted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog, meters, tasks = backlog_of(lake.graveler), Meters(), TaskSet()
    backlog.register(meters)
    tasks.spawn(backlog.run())
    await rest()
    lake.clock.advance(FIRST_LOOK)
    await rest()
    assert values(meters)["run_age"] == FIRST_LOOK
    with monkeypatch.context() as broken:

        async def fail(*_: object) -> None:
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is down")

        broken.setattr(lake.graveler.collections, "read", fail)
        lake.clock.advance(LOOK_SECONDS)
        await rest()
    assert values(meters)["looks_failed"] == 1
    assert values(meters)["run_age"] == FIRST_LOOK + LOOK_SECONDS
    lake.clock.advance(LOOK_SECONDS)
    await rest()
    assert values(meters)["looks_failed"] == 1
    await tasks.close()
