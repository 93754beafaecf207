"""The simulated stores in calm weather are stores like the others; in bad weather, bad within their rules."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tarn.kv.port import (
    Group,
    Kv,
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    PredicateFailedError,
)
from tarn.rpc.tasks import TaskSet
from tarn.testing.sim.clock import SimClock
from tarn.testing.sim.kv_cassandra import SimCassandra
from tarn.testing.sim.kv_sqlite import SimSqlite
from tarn.testing.sim.link import KvLink, Wire
from tarn.testing.sim.loop import SimLoop, simulate
from tarn.testing.sim.weather import CALM, Sky, Weather

ROWS = Partition("rows", PartitionKind.PLAIN, 4)
RECORDS = Partition("records", PartitionKind.REGISTER)

Scene = Callable[[list[KvLink], list[SimClock]], Coroutine[Any, Any, None]]


def play(store: str, scene: Scene, weather: Weather = CALM, seed: int = 0) -> None:
    """Runs a scene with two replicas of one store."""

    async def main(loop: SimLoop) -> None:
        tasks = TaskSet()
        sky = Sky(weather, random.Random(seed))
        made = SimCassandra(sky, tasks) if store == "cassandra" else SimSqlite(sky)
        clocks = [SimClock(loop, skew) for skew in (0, -2_000_000)]
        links: list[KvLink] = []
        for number, clock in enumerate(clocks):
            kv: Kv = made.open(clock)
            links.append(KvLink(kv, Wire(f"r{number}", tasks, None), 2))
        await scene(links, clocks)
        await tasks.close()

    simulate(main, seed)


def row(key: bytes, value: bytes) -> Group:
    return Group(key, ((key, value),))


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_a_write_is_seen_by_the_next_read_of_anybody(store: str) -> None:
    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        one, two = links
        for turn in range(10):
            writer, reader = (one, two) if turn % 2 else (two, one)
            value = b"%d" % turn
            assert await writer.set_many(ROWS, [row(b"k", value)]) == [None]
            (found,) = await reader.get_many(ROWS, [b"k"])
            assert found is not None
            assert found.value == value  # although one clock is two seconds behind

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
        assert [found.value] == won == lost  # the loser was told who won

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


def test_an_undecided_change_is_decided_by_a_settling_read_and_stays_so() -> None:
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
        play("cassandra", scene, Weather(late_rate=1.0), seed)
    assert seen == {True, False}


def test_a_lost_change_may_be_missed_by_quorum_reads_but_never_again_once_it_was_seen() -> None:
    missed = 0

    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        nonlocal missed
        with pytest.raises(OutcomeUnknownError):
            await links[0].set_if(RECORDS, b"k", b"v", None)
        reads = [(await links[1].get_many(RECORDS, [b"k"]))[0] is not None for _ in range(20)]
        assert reads == sorted(reads)
        missed += not reads[0] and reads[-1]

    for seed in range(20):
        play("cassandra", scene, Weather(lost_rate=1.0, linger_rate=1.0), seed)
    assert missed


def test_what_a_dead_process_had_not_committed_never_lands() -> None:
    async def scene(links: list[KvLink], clocks: list[SimClock]) -> None:
        store = SimSqlite(Sky(Weather(hop_seconds=0.1), random.Random(1)))
        process, other = store.open(clocks[0]), store.open(clocks[0])
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(process.set_many(ROWS, [row(b"k", b"v")]))
            await asyncio.sleep(0)
            process.crash()
        (error,) = writing.result()
        assert error is not None
        assert await other.get_many(ROWS, [b"k"]) == [None]

    play("sqlite", scene)
