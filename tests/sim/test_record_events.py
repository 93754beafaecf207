"""Processes that race for records, over simulated stores with faults: each change has its event, and no other has one.

The rules are those of `tests.sim.journaled_records`, which also watch whole runs (`test_journal`).
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from tests.sim.journaled_records import JournaledRecords, WatchedLink
from tests.sim.world import World
from tests.support.record_events import record_events
from tests.support.sim.clock import SimClock, SimIds
from tests.support.sim.faults import FaultInjector, FaultProfile
from tests.support.sim.kv_cassandra import SimCassandra
from tests.support.sim.kv_sqlite import SimSqlite
from tests.support.sim.link import Wire
from tests.support.sim.loop import SimLoop, simulate

from tarn.aio.task_set import TaskSet
from tarn.core.errors import TarnError
from tarn.core.ids import CommitId, RepositoryId
from tarn.core.levels import ALL_FEATURES
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys
from tarn.kv.port import Group, Partition, Predicate, Row
from tarn.kv.record_events import JournaledKv
from tarn.kv.record_kinds import RecordKind
from tarn.kv.register import Register
from tarn.kv.registrations import Registration, Registrations, hour_of

STORES = pytest.mark.parametrize("store", ["sqlite", "cassandra"])
FAULTS = FaultProfile(
    hop_seconds=0.002,
    refused_rate=0.02,
    lost_rate=0.05,
    late_rate=0.05,
    queued_rate=0.05,
    queue_seconds=1.0,
    linger_rate=0.1,
    down_rate=0.1,
)
KEYS = InstallationKeys("sim")
LAKE = KEYS.of_repository(RepositoryId("lake"), "0" * 8)
AUTH = AuthKeys("sim").partition
PLACES = (
    (LAKE.refs, RepositoryKeys.tag("v1")),
    (LAKE.refs, RepositoryKeys.SETTINGS),
    (LAKE.pulls, RepositoryKeys.pull(1)),
    (AUTH, AuthKeys.user("ann")),
)
_PROCESSES = 4
_CHANGES = 40


async def _process(kv: JournaledKv, wire: Wire, rng: random.Random, name: str) -> None:
    """Changes records, whose values are never used again; some processes die at any step."""
    dies_after = rng.choice([_CHANGES, rng.randrange(_CHANGES)])
    for number in range(_CHANGES):
        value = f"{name} {number}".encode()
        if number == dies_after:
            asyncio.get_running_loop().call_later(rng.random() * 0.02, wire.cut)
        partition, key = rng.choice(PLACES)
        with suppress(TarnError):
            if rng.random() < 0.2:
                row = RepositoryKeys.expired(CommitId(name))
                await kv.set_many(LAKE.commits, [Group(row, ((row, value),))])
            elif partition is AUTH and rng.random() < 0.3:
                await kv.delete_many(partition, [key])
            else:
                register = Register[bytes | None](
                    kv, partition, key, lambda found: found, lambda found: found, "a record"
                )
                is_removal = rng.random() < 0.2
                # Also after a lost answer: a change that was made is not repeated.
                await register.change(
                    lambda _, value=value, gone=is_removal: None if gone else value,  # type: ignore[misc]
                )


async def _read(kv: JournaledKv, clock: SimClock) -> set[bytes]:
    """The keys of all events that a drain finds by their registrations."""
    registrations = Registrations(kv, KEYS, clock)
    now_us = clock.now_us()
    found = record_events(kv, registrations, [hour_of(now_us)], now_us)
    return {each.registration.event_key async for each in found}


def race(store: str, seed: int) -> tuple[list[str], int]:
    """Plays one race; returns the problems, and how many events there are."""
    problems: list[str] = []
    statistics: Counter[str] = Counter()

    async def main(loop: SimLoop) -> None:
        tasks = TaskSet()
        faults = FaultInjector(FAULTS, random.Random(seed))
        made: Any = SimCassandra(faults, tasks) if store == "cassandra" else SimSqlite(faults)
        world: Any = SimpleNamespace(
            store=made,
            plan=SimpleNamespace(keeps_events=True),
            problem=problems.append,
            statistics=statistics,
        )
        records = JournaledRecords(cast("World", world))
        world.journaled = SimpleNamespace(records=records)
        clock = SimClock(loop)
        kvs: list[JournaledKv] = []
        running = []
        for number in range(_PROCESSES):
            wire = Wire(f"p{number}", tasks, None)
            link = WatchedLink(world, made.open(clock), wire, 2)
            ids = SimIds(clock, random.Random(f"ids {seed} {number}"))
            kvs.append(JournaledKv(link, "sim", clock, ids, ALL_FEATURES))
            rng = random.Random(1000 * seed + number)
            running.append(_process(kvs[-1], wire, rng, f"p{number}"))
        async with asyncio.TaskGroup() as group:
            for each in running:
                group.create_task(each)
        faults.profile = FaultProfile(hop_seconds=0.0001)
        await asyncio.sleep(10)  # whatever is late has landed
        last = WatchedLink(world, made.open(clock), Wire("last", tasks, None), 2)
        reader = JournaledKv(last, "sim", clock, SimIds(clock, random.Random("ids")), ALL_FEATURES)
        found = await _read(reader, clock)
        for partition in {place for place, _ in PLACES} | {LAKE.commits}:
            held = await last.scan_companions(partition, b"", None, 1_000)
            if {each.key for each in held} - found:
                problems.append("an event is there that no drain finds")
        await records.finish()
        await tasks.close()

    simulate(main, seed)
    return problems, statistics["journal: events of records"]


@STORES
@pytest.mark.parametrize("seed", range(8))
def test_each_change_of_a_record_has_its_event_and_a_drain_finds_it(store: str, seed: int) -> None:
    problems, events = race(store, seed)
    assert problems == []
    assert events > 5


def notices(store: str, text: str) -> bool:
    """Whether the rules report a problem in one of some races."""
    return any(text in found for seed in range(20) for found in race(store, seed)[0])


@STORES
@pytest.mark.parametrize("prefix", ["tags/", "settings", "pull/", "users/"])
def test_a_record_that_leaves_no_event_is_noticed(store: str, prefix: str) -> None:
    kind_of = JournaledKv._kind

    def forgetful(self: JournaledKv, partition: Partition, key: bytes) -> RecordKind | None:
        return None if key.startswith(prefix.encode()) else kind_of(self, partition, key)

    with mock.patch.object(JournaledKv, "_kind", forgetful):
        assert notices(store, "no event was written")


async def _unconditional(
    self: JournaledKv,
    partition: Partition,
    kind: RecordKind,
    row: Row,
    predicate: Predicate | None,
    companions: Sequence[Row],
) -> Predicate:
    """Writes the event before the compare-and-set, which may be refused."""
    key, value = row
    registration, event = self._event(partition, kind, key, value, predicate)
    await self._register([registration])
    beside = RepositoryKeys.UPLOAD_DAYS if partition is LAKE.refs else AuthKeys.OWNED
    if partition in (LAKE.refs, AUTH):
        group = Group(beside + b"x", ((beside + b"x", b""),), (event,))
        await self._kv.set_many(partition, [group])
        return await self._kv.set_if(partition, key, value, predicate, companions=companions)
    return await self._kv.set_if(partition, key, value, predicate, companions=[event])


@STORES
def test_an_event_without_the_condition_of_its_record_is_noticed(store: str) -> None:
    """The guard: the event of a record is applied by its compare-and-set."""
    with mock.patch.object(JournaledKv, "_set_record", _unconditional):
        assert notices(store, "of a change that was not made")


@STORES
def test_an_event_with_another_record_is_noticed(store: str) -> None:
    """Here that of the first change; the rule asks for payloads, too, and gets the right ones."""
    first: dict[bytes, bytes] = {}

    def told(self: RecordKind, value: bytes) -> bytes:
        is_event = sys._getframe(1).f_code.co_name == "_event"
        return first.setdefault(self.begins, value) if is_event else value

    with mock.patch.object(RecordKind, "told", told):
        assert notices(store, "is not what its newest event says")
        assert notices(store, "no event was written")


@STORES
def test_a_removal_that_looks_like_a_record_is_noticed(store: str) -> None:
    """A deletion has an event with an empty payload."""
    make = JournaledKv._event

    def event(
        self: JournaledKv,
        partition: Partition,
        kind: RecordKind,
        key: bytes,
        value: bytes | None,
        expected: Predicate | None,
    ) -> tuple[Registration, Row]:
        return make(self, partition, kind, key, b"gone" if value is None else value, expected)

    with mock.patch.object(JournaledKv, "_event", event):
        assert notices(store, "has a record that is not there")


@STORES
def test_a_change_that_is_sent_before_its_registration_is_noticed(store: str) -> None:
    """The guard: registered first."""

    async def never(self: JournaledKv, registrations: Sequence[Registration]) -> None:
        pass

    with mock.patch.object(JournaledKv, "_register", never):
        assert notices(store, "before it is registered")
        assert notices(store, "no drain finds")


@STORES
def test_a_registration_of_another_version_is_noticed(store: str) -> None:
    """The guard: for the record that is expected. Otherwise a drain forgets a change that may still be made."""
    register = JournaledKv._register

    async def wrong(self: JournaledKv, registrations: Sequence[Registration]) -> None:
        await register(self, [replace(each, expected=None) for each in registrations])

    with mock.patch.object(JournaledKv, "_register", wrong):
        assert notices(store, "before it is registered")
