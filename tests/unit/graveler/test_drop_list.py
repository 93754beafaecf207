"""The list of partitions to drop: none too early, none missed, and no queue of Cassandra tombstones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.support.clock import ManualClock
from tests.support.faults.gates import GatedKv

from tarn.core.errors import Kind, TarnError
from tarn.kv.drop_records import Drop
from tarn.kv.keys import InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, Partition, PartitionKind, PredicateFailedError, Row
from tarn_graveler.records.drop_list import DropList

KEYS = InstallationKeys("test")
HOUR_US = 3_600_000_000


class Watched(MemKv):
    """A KV that records scans and deletes."""

    def __init__(self) -> None:
        super().__init__()
        self.scans: list[tuple[str, bytes]] = []
        self.deletes = 0

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        self.scans.append((partition.name, start))
        return await super().scan(partition, start, end, limit)

    async def delete_many(self, partition: Partition, keys: object) -> None:
        self.deletes += 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kv() -> Watched:
    return Watched()


@pytest.fixture
def drops(kv: Watched, clock: ManualClock) -> DropList:
    return DropList(kv, KEYS, clock)


def drop(clock: ManualClock, name: str, seconds: float) -> Drop:
    when_us = clock.now_us() + int(seconds * 1e6)
    return Drop(Partition(name, PartitionKind.PLAIN), when_us)


async def work_off(drops: DropList) -> list[str]:
    """Runs one pass; returns the names that were due."""
    one_pass = await drops.begin()
    found = [each.partition.name async for _, each in one_pass.due()]
    await one_pass.finish()
    return found


async def test_only_due_names_are_returned_in_order_of_time(
    drops: DropList, clock: ManualClock
) -> None:
    await drops.add([drop(clock, "c", 7300), drop(clock, "b", 3700), drop(clock, "a", 1)])
    assert await work_off(drops) == []
    clock.advance(3701)
    assert await work_off(drops) == ["a", "b"]
    clock.advance(3600)
    assert "c" in await work_off(drops)


async def test_more_than_a_page_is_due(drops: DropList, clock: ManualClock) -> None:
    many = [drop(clock, f"{n:04}", n / 1000) for n in range(1000)]
    assert set(await drops.add(many)) == {None}
    clock.advance(2)
    assert await work_off(drops) == [each.partition.name for each in many]


async def test_a_registration_that_took_a_minute_is_not_missed(
    drops: DropList, clock: ManualClock
) -> None:
    await work_off(drops)
    late = drop(clock, "late", 0)
    clock.advance(100)
    await work_off(drops)
    await drops.add([late])
    clock.advance(1)
    assert await work_off(drops) == ["late"]


async def test_adding_again_changes_nothing(drops: DropList, clock: ManualClock) -> None:
    one = drop(clock, "a", 0)
    await drops.add([one])
    await drops.add([one])
    assert await work_off(drops) == ["a"]


async def test_hours_that_are_over_are_dropped_whole_and_never_read_again(
    drops: DropList, kv: Watched, clock: ManualClock
) -> None:
    await drops.add([drop(clock, "a", 0)])
    hour = clock.now_us() // HOUR_US
    clock.advance(3900)
    assert await work_off(drops) == ["a"]
    assert await kv.scan(KEYS.drops(hour), b"", None, 10) == []
    clock.advance(3900)
    kv.scans.clear()
    assert await work_off(drops) == []
    assert KEYS.drops(hour).name not in {name for name, _ in kv.scans}
    assert kv.deletes == 0


async def test_scans_begin_at_most_minutes_back(
    drops: DropList, kv: Watched, clock: ManualClock
) -> None:
    await work_off(drops)
    for _ in range(30):
        clock.advance(20)
        await work_off(drops)
    kv.scans.clear()
    await work_off(drops)
    earliest = KEYS.drop(clock.now_us() - 300_000_000, "")
    assert [start for _, start in kv.scans if start < earliest] == []


async def test_a_failed_drop_is_due_again(drops: DropList, clock: ManualClock) -> None:
    await drops.add([drop(clock, "a", 0)])
    clock.advance(7200)
    one_pass = await drops.begin()
    assert [each.partition.name async for _, each in one_pass.due()] == ["a"]
    # The replica dies here.
    assert await work_off(drops) == ["a"]
    assert await work_off(drops) == []


async def test_replicas_that_work_at_once_do_not_disturb_each_other(
    drops: DropList, clock: ManualClock
) -> None:
    await drops.add([drop(clock, "a", 0)])
    clock.advance(7200)
    first, second = await drops.begin(), await drops.begin()
    for one_pass in (first, second):
        assert [each.partition.name async for _, each in one_pass.due()] == ["a"]
    await first.finish()
    await second.finish()
    assert (
        await drops.begin()
    ).done_before_us == first.done_before_us + 86_400_000_000 - 180_000_000


async def test_a_list_that_cannot_be_written_says_which(clock: ManualClock) -> None:
    class Full(MemKv):
        async def set_many(self, partition: Partition, groups: object) -> list[TarnError | None]:
            return [PredicateFailedError(b"", None) for _ in list(groups)]  # type: ignore[call-overload]

    drops = DropList(Full(), KEYS, clock)
    one, other = drop(clock, "a", 0), drop(clock, "b", 3600)
    outcomes = await drops.add([one, other])
    assert [type(outcome) for outcome in outcomes] == [PredicateFailedError] * 2


async def test_the_list_of_another_installation_is_not_read(
    drops: DropList, kv: Watched, clock: ManualClock
) -> None:
    other = DropList(kv, InstallationKeys("other"), clock)
    await other.add([drop(clock, "a", 0)])
    clock.advance(10)
    assert await work_off(drops) == []


async def test_a_clock_that_was_a_day_ahead_hides_nothing_when_it_is_right_again(
    drops: DropList, kv: Watched, clock: ManualClock
) -> None:
    wrong = ManualClock(clock.now_us() + 86_400_000_000)
    await work_off(DropList(kv, KEYS, wrong))
    await drops.add([drop(clock, "a", 60)])
    clock.advance(600)
    assert await work_off(drops) == ["a"]
    assert (await drops.begin()).done_before_us == clock.now_us() - 180_000_000


async def test_a_finished_drop_is_not_returned_again(drops: DropList, clock: ManualClock) -> None:
    assert await drops.add([drop(clock, "a", 0), drop(clock, "b", 0)]) == [None, None]
    one_pass = await drops.begin()
    (first, _), (_, second) = [each async for each in one_pass.due()]
    assert [each async for _, each in one_pass.due({first})] == [second]


async def test_a_registration_by_a_process_that_paused_for_minutes_is_not_missed(
    drops: DropList, clock: ManualClock
) -> None:
    """Between the computation of its time and the write of its row."""
    await work_off(drops)
    late = drop(clock, "late", 2)
    clock.advance(400)
    await work_off(drops)
    await work_off(drops)  # by now the checkpoint is past the time
    assert await drops.add([late]) == [None]
    assert await work_off(drops) == ["late"]


@pytest.mark.parametrize("seconds", [110, 400])
async def test_a_row_that_waited_for_minutes_on_its_way_is_not_missed(
    clock: ManualClock, seconds: float
) -> None:
    gated = GatedKv(MemKv())
    drops, others = DropList(gated, KEYS, clock), DropList(gated, KEYS, clock)
    await work_off(others)
    row = gated.hold("set_many")
    async with asyncio.TaskGroup() as group:
        adding = group.create_task(drops.add([drop(clock, "a", 0), drop(clock, "b", 500)]))
        await row.reached.wait()
        for _ in range(4):
            clock.advance(seconds / 4)
            assert await work_off(others) == []
        row.open()
    assert adding.result() == [None, None]
    assert await work_off(others) == ["a"]


async def test_a_process_that_pauses_again_and_again_is_told_that_its_row_is_not_on_the_list(
    clock: ManualClock,
) -> None:
    class Slow(MemKv):
        async def set_many(
            self, partition: Partition, groups: Sequence[Group]
        ) -> list[TarnError | None]:
            clock.advance(200)
            return await super().set_many(partition, groups)

    (error,) = await DropList(Slow(), KEYS, clock).add([drop(clock, "a", 0)])
    assert error is not None
    assert error.kind is Kind.UNAVAILABLE
    assert "a was put on the drop list 3 times" in error.message
