"""The simulated stores: without faults they keep the contract; with faults they stay within their rules."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.sim.clock import SimClock
from tests.support.sim.faults import CALM, FaultInjector, FaultProfile
from tests.support.sim.kv_cassandra import SimCassandra
from tests.support.sim.kv_sqlite import SimSqlite
from tests.support.sim.link import KvLink, Wire
from tests.support.sim.loop import SimLoop, simulate
from tests.support.sim.pauses import STRAND, Process, Strand

from tarn.aio.task_set import TaskSet
from tarn.core.errors import Kind, TarnError
from tarn.kv.port import (
    Group,
    Kv,
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    PredicateFailedError,
    RowFilter,
)

ROWS = Partition("rows", PartitionKind.PLAIN, 4)
RECORDS = Partition("records", PartitionKind.REGISTER)

QUEUED = FaultProfile(queued_rate=1.0, queue_seconds=2.0)

Scene = Callable[[list[KvLink], list[SimClock]], Coroutine[Any, Any, None]]

_skies: dict[int, FaultInjector] = {}


def injector_of(link: KvLink) -> FaultInjector:
    """Returns the fault injector of a scene, so that the scene can change the profile."""
    return _skies[id(link)]


def play(store: str, scene: Scene, profile: FaultProfile = CALM, seed: int = 0) -> None:
    """Runs a scene with two replicas of one store."""

    async def main(loop: SimLoop) -> None:
        tasks = TaskSet()
        faults = FaultInjector(profile, random.Random(seed))
        made = SimCassandra(faults, tasks) if store == "cassandra" else SimSqlite(faults)
        clocks = [SimClock(loop, skew) for skew in (0, -2_000_000)]
        links: list[KvLink] = []
        for number, clock in enumerate(clocks):
            kv: Kv = made.open(clock)
            links.append(KvLink(kv, Wire(f"r{number}", tasks, None), 2))
            _skies[id(links[-1])] = faults
        await scene(links, clocks)
        _skies.clear()
        await tasks.close()

    simulate(main, seed)


def row(key: bytes, value: bytes) -> Group:
    return Group(key, ((key, value),))


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_a_write_is_seen_by_the_next_read_of_any_process(store: str) -> None:
    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        one, two = links
        for turn in range(10):
            writer, reader = (one, two) if turn % 2 else (two, one)
            value = b"%d" % turn
            assert await writer.set_many(ROWS, [row(b"k", value)]) == [None]
            (found,) = await reader.get_many(ROWS, [b"k"])
            assert found is not None
            assert found.value == value  # even if one clock is two seconds behind

    for seed in range(10):
        play(store, scene, seed=seed)


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_one_of_two_compare_and_sets_wins(store: str) -> None:
    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        first = await links[0].set_if(RECORDS, b"k", b"0", None)
        won: list[bytes] = []
        lost: list[bytes] = []

        async def change(link: KvLink, value: bytes) -> None:
            try:
                await link.set_if(RECORDS, b"k", value, first)
            except PredicateFailedError as error:
                lost.append(error.current.value if error.current else b"")
            else:
                won.append(value)

        async with asyncio.TaskGroup() as group:
            group.create_task(change(links[0], b"a"))
            group.create_task(change(links[1], b"b"))
        (found,) = await links[0].get_many(RECORDS, [b"k"])
        assert found is not None
        assert [found.value] == won == lost  # the loser was told the winner's value

    for seed in range(20):
        play(store, scene, seed=seed)


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_a_scan_in_pages_is_in_order_and_a_dropped_partition_is_empty(store: str) -> None:
    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        keys = [b"%03d" % n for n in range(9)]
        await links[0].set_many(ROWS, [row(key, key) for key in keys])
        batches = [batch async for batch in links[1].scan_arrow(ROWS, b"", None)]
        assert [k for batch in batches for k in batch.column("key").to_pylist()] == keys
        await links[1].drop_partition(ROWS)
        assert await links[0].scan(ROWS, b"", None, 100) == []

    play(store, scene)


def test_a_settling_read_decides_an_undecided_change_for_good() -> None:
    seen: set[bool] = set()

    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        with pytest.raises(OutcomeUnknownError):
            await links[0].set_if(RECORDS, b"k", b"late", None)
        (settled,) = await links[1].get_many(RECORDS, [b"k"], settle=True)
        seen.add(settled is not None)
        for _ in range(20):
            await asyncio.sleep(1)
            assert await links[0].get_many(RECORDS, [b"k"]) == [settled]

    for seed in range(20):
        play("cassandra", scene, FaultProfile(late_rate=1.0), seed)
    assert seen == {True, False}


def test_quorum_reads_may_miss_a_change_with_a_lost_answer_but_not_after_one_saw_it() -> None:
    missed = 0

    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        nonlocal missed
        with pytest.raises(OutcomeUnknownError):
            await links[0].set_if(RECORDS, b"k", b"v", None)
        reads = [(await links[1].get_many(RECORDS, [b"k"]))[0] is not None for _ in range(20)]
        assert reads == sorted(reads)
        missed += not reads[0] and reads[-1]

    for seed in range(20):
        play("cassandra", scene, FaultProfile(lost_rate=1.0, linger_rate=1.0), seed)
    assert missed


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_a_row_that_a_read_has_returned_is_there_for_later_reads(store: str) -> None:
    """Listings rely on it (docs/design/tombstones.md). On Cassandra, the reads repair a row that one node has."""
    slow = FaultProfile(hop_seconds=0.001, slow_seconds=0.2, slow_what=frozenset({"write rows"}))

    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        writing = asyncio.ensure_future(links[0].set_many(ROWS, [Group(b"k", ((b"k", b"value"),))]))
        was_seen = False
        for number in range(90):
            kv = links[number % 2]
            if number % 3 == 0:
                is_seen = (await kv.get_many(ROWS, [b"k"]))[0] is not None
            elif number % 3 == 1:
                is_seen = bool(await kv.scan(ROWS, b"", None, 10))
            else:
                is_seen = bool((await kv.scan_without(ROWS, b"", None, 10, RowFilter(b"x"))).rows)
            assert is_seen or not was_seen
            was_seen = is_seen
        await writing
        assert was_seen

    for seed in range(20):
        play(store, scene, slow, seed)


def test_queued_writes_of_a_dead_process_never_land() -> None:
    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        store = SimSqlite(FaultInjector(FaultProfile(hop_seconds=0.1), random.Random(1)))
        process, other = store.open(clocks[0]), store.open(clocks[0])
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(process.set_many(ROWS, [row(b"k", b"v")]))
            await asyncio.sleep(0)
            process.crash()
        (error,) = writing.result()
        assert error is not None
        assert await other.get_many(ROWS, [b"k"]) == [None]

    play("sqlite", scene)


def test_a_queued_compare_and_set_runs_after_the_read_that_settles_it_if_nothing_came_between() -> (
    None
):
    seen: set[tuple[bool, bool]] = set()
    mine = 0

    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        with pytest.raises(OutcomeUnknownError):
            await links[0].set_if(RECORDS, b"k", b"late", None)
        (settled,) = await links[1].get_many(RECORDS, [b"k"], settle=True)
        await asyncio.sleep(3)
        (after,) = await links[1].get_many(RECORDS, [b"k"], settle=True)
        seen.add((settled is not None, after is not None))

    async def overtaken(links: list[KvLink], clocks: list[SimClock]) -> None:
        nonlocal mine
        injector_of(links[0]).profile = QUEUED
        with pytest.raises(OutcomeUnknownError):
            await links[0].set_if(RECORDS, b"k", b"late", None)
        injector_of(links[0]).profile = CALM
        (settled,) = await links[1].get_many(RECORDS, [b"k"], settle=True)
        if settled is not None:
            return  # the late write ran before the read
        with contextlib.suppress(PredicateFailedError):
            await links[1].set_if(RECORDS, b"k", b"mine", None)
            mine += 1
        (before,) = await links[1].get_many(RECORDS, [b"k"], settle=True)
        await asyncio.sleep(3)
        (after,) = await links[1].get_many(RECORDS, [b"k"], settle=True)
        assert after == before, "its predicate no longer holds"

    for seed in range(20):
        play("cassandra", scene, QUEUED, seed)
        play("cassandra", overtaken, CALM, seed)
    assert seen == {(False, True), (True, True)}
    assert mine > 0


def test_a_queued_row_comes_late_with_the_timestamp_it_was_sent_with() -> None:
    kept: set[bytes] = set()

    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        injector_of(links[0]).profile = QUEUED
        (error,) = await links[0].set_many(ROWS, [row(b"k", b"late")])
        assert isinstance(error, OutcomeUnknownError)
        injector_of(links[0]).profile = CALM
        # The newer row was read before it was written, so its timestamp is above the rows that have landed.
        assert await links[0].set_many(ROWS, [row(b"k", b"newer")]) == [None]
        await asyncio.sleep(3)
        (found,) = await links[0].get_many(ROWS, [b"k"])
        assert found is not None
        kept.add(found.value)

    for seed in range(10):
        play("cassandra", scene, CALM, seed)
    assert kept == {b"newer"}, "both rows have timestamps of one clock, so the later one is greater"


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_a_store_that_cannot_begin_raises_and_has_done_nothing(store: str) -> None:
    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        faults = injector_of(links[0])
        for call in (
            lambda: links[0].set_many(ROWS, [row(b"k", b"v")]),
            lambda: links[0].set_if(RECORDS, b"k", b"v", None),
            lambda: links[0].get_many(ROWS, [b"k"]),
            lambda: links[0].scan(ROWS, b"", None, 10),
            lambda: links[0].drop_partition(ROWS),
        ):
            faults.profile = FaultProfile(raised_rate=1.0)
            with pytest.raises(TarnError) as raised:
                await call()
            assert raised.value.kind is Kind.UNAVAILABLE
        faults.profile = CALM
        assert await links[0].get_many(ROWS, [b"k"]) == [None]
        assert await links[0].get_many(RECORDS, [b"k"], settle=True) == [None]

    play(store, scene)


def test_a_process_stands_still_between_two_steps_and_what_it_sent_goes_on() -> None:
    async def main(loop: SimLoop) -> tuple[int, float]:
        faults = FaultInjector(FaultProfile(pause_rate=0.2, pause_seconds=5.0), random.Random(1))
        process = Process(faults, random.Random(1))
        tasks = TaskSet()
        wire = Wire("r0", tasks, None)
        arrived: list[float] = []

        async def arrive() -> None:
            arrived.append(loop.time())

        async def run() -> None:
            for _ in range(50):
                begun = loop.time()
                await wire.send("x", arrive)
                assert arrived[-1] == begun, "a pause of the sender must not stop its sent requests"

        outside = STRAND.set(Strand(process, may_stop=True))
        running = loop.create_task(run())
        STRAND.reset(outside)
        await running
        await tasks.close()
        return process.pauses, loop.time()

    pauses, seconds = simulate(main, 3)
    assert pauses >= 5
    assert seconds > 2.0


@pytest.mark.parametrize("seed", range(20))
def test_a_process_that_is_killed_ends_at_once_although_it_stands_still(seed: int) -> None:
    async def main(loop: SimLoop) -> tuple[bool, float]:
        faults = FaultInjector(
            FaultProfile(pause_rate=0.2, pause_seconds=30.0), random.Random(seed)
        )
        process = Process(faults, random.Random(seed))
        tasks = TaskSet()

        async def run() -> None:
            await asyncio.sleep(1.0)

        outside = STRAND.set(Strand(process, may_stop=True))
        for _ in range(10):
            tasks.spawn(run())
        STRAND.reset(outside)
        await asyncio.sleep(1.0)
        stands_still = len(tasks) > 0
        loop.kill(process)
        await tasks.close()
        return stands_still, loop.time()

    stands_still, seconds = simulate(main, seed)
    assert stands_still
    assert seconds == 1.0


@pytest.mark.parametrize("kind", PartitionKind)
def test_rows_beside_their_anchor_are_found_by_scans_only(kind: PartitionKind) -> None:
    """On real nodes, too, they are stored in the bucket of the anchor."""

    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        one, two = links
        spread = Partition("spread", kind, 64)
        assert await one.set_many(spread, [Group(b"k", ((b"k", b"1"), (b"note", b"")))]) == [None]
        (found, note) = await two.get_many(spread, [b"k", b"note"])
        assert found is not None
        assert (found.value, note) == (b"1", None)
        assert await two.scan(spread, b"note", b"note\0", 1) == [(b"note", b"")]

    play("cassandra", scene)
