"""`MeteredKv` counts operations and does not change them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.support.clock import ManualClock, SeededIds

from tarn.config import load
from tarn.core.errors import TarnError
from tarn.kv.embedded import open_embedded
from tarn.kv.mem import MemKv
from tarn.kv.metered import MeteredKv
from tarn.kv.opening import open_kv
from tarn.kv.port import (
    KEY_BYTES_MAX,
    Group,
    Kv,
    ListingKv,
    Partition,
    PartitionKind,
    PredicateFailedError,
    RowFilter,
    SetsBeside,
)
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import TRACEPARENT
from tarn.testing.contract.kv_contract import KvContract, TogetherContract

PLAIN = Partition("p", PartitionKind.PLAIN)
REGISTER = Partition("r", PartitionKind.REGISTER)


class SteppingClock:
    """A clock that advances by `step` seconds with each reading."""

    def __init__(self, step: float) -> None:
        self._now = 0.0
        self._step = step

    def now_us(self) -> int:
        raise NotImplementedError

    def monotonic(self) -> float:
        self._now += self._step
        return self._now

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


@pytest.fixture
def meters() -> Meters:
    return Meters()


@asynccontextmanager
async def opened(meters: Meters, folder: Path) -> AsyncIterator[MeteredKv]:
    store = await open_embedded(folder / "tarn.db", durability="os")
    kv = MeteredKv(store, SteppingClock(0.001), meters)
    yield kv
    await kv.close()


@pytest.fixture
async def kv(meters: Meters, tmp_path: Path) -> AsyncIterator[MeteredKv]:
    async with opened(meters, tmp_path) as kv:
        yield kv


class TestMeteredKv(KvContract, TogetherContract):
    """`MeteredKv` keeps the contract of the port."""

    @pytest.fixture
    async def kv(self, meters: Meters, tmp_path: Path) -> AsyncIterator[Kv]:
        async with opened(meters, tmp_path) as kv:
            yield kv


def calls(meters: Meters) -> dict[str, float]:
    """Returns how often each operation was called, without those that never were."""
    found = meters.samples("kv.duration.count")
    return {labels["operation"]: count for labels, count in found if count}


def failures(meters: Meters) -> dict[tuple[str, str], float]:
    found = meters.samples("kv.failed")
    return {(labels["operation"], labels["reason"]): count for labels, count in found}


async def test_every_operation_is_counted_and_handed_on(kv: MeteredKv, meters: Meters) -> None:
    version = await kv.set_if(REGISTER, b"k", b"1", None)
    assert [listed.name async for listed in kv.partitions("")] == ["r"]
    (found,) = await kv.get_many(REGISTER, [b"k"], settle=True)
    assert found is not None
    assert found.predicate == version
    await kv.delete_if(REGISTER, b"k", version)
    assert await kv.set_many(PLAIN, [Group(b"a", ((b"a", b"1"), (b"b", b"2")))]) == [None]
    await kv.delete_many(PLAIN, [b"a"])
    assert await kv.scan(PLAIN, b"", None, 10) == [(b"b", b"2")]
    assert (await kv.scan_without(PLAIN, b"", None, 10, RowFilter(b"2"))).rows == []
    assert [batch.num_rows async for batch in kv.scan_arrow(PLAIN, b"", None)] == [1]
    await kv.drop_partition(PLAIN)
    one_each = (
        "get_many",
        "set_many",
        "set_if",
        "delete_many",
        "delete_if",
        "scan",
        "scan_without",
    )
    assert calls(meters) == dict.fromkeys(one_each, 1) | {"scan_arrow": 2, "drop_partition": 1}
    assert failures(meters) == {}


async def test_writes_that_tell_of_another_row_are_counted_as_all_others(
    kv: MeteredKv, meters: Meters
) -> None:
    """Also within a trace, and those that fail; a refused one was not begun."""
    assert isinstance(kv, SetsBeside)
    names = (REGISTER, b"k")
    group = Group(b"a", ((b"a", b"1"),))
    assert await kv.set_beside(PLAIN, group, names) is None
    trace = TRACEPARENT.set("00-of-the-service-01")
    assert await kv.set_beside(PLAIN, group, names) is None
    TRACEPARENT.reset(trace)
    with pytest.raises(TarnError):
        await kv.set_beside(PLAIN, Group(b"a", ()), names)
    assert calls(meters) == {"set_many": 2}
    assert failures(meters) == {}
    assert all(not value for _, value in meters.samples("kv.in_flight"))


async def test_failures_are_counted_by_their_reason(kv: MeteredKv, meters: Meters) -> None:
    await kv.set_if(REGISTER, b"k", b"1", None)
    with pytest.raises(PredicateFailedError):
        await kv.set_if(REGISTER, b"k", b"2", None)
    with pytest.raises(TarnError):
        await kv.set_if(PLAIN, b"k", b"2", None)
    too_long = (bytes(KEY_BYTES_MAX + 1), b"")
    groups = [Group(b"a", (row,)) for row in (too_long, (b"a", b""), too_long)]
    outcomes = await kv.set_many(PLAIN, groups)
    assert [outcome is None for outcome in outcomes] == [False, True, False]
    assert calls(meters) == {"set_if": 3, "set_many": 1}
    assert failures(meters) == {
        ("set_if", "REF_MOVED"): 1,
        ("set_if", "INVALID_ARGUMENT"): 1,
        ("set_many", "KEY_TOO_LONG"): 2,
    }


class HangingKv(MemKv):
    """Never answers a read."""

    async def get_many(self, *_: object, **__: object) -> list[None]:  # type: ignore[override]
        await asyncio.Event().wait()
        return []


async def test_a_cancelled_call_is_counted_and_stays_cancelled(meters: Meters) -> None:
    kv = MeteredKv(cast("ListingKv", HangingKv()), SteppingClock(0.001), meters)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await kv.get_many(PLAIN, [b"k"])
    assert failures(meters) == {("get_many", "OTHER"): 1}


async def test_a_scan_is_charged_for_batches_and_not_for_its_consumer(meters: Meters) -> None:
    clock = SteppingClock(0.001)
    kv = MeteredKv(cast("ListingKv", MemKv()), clock, meters)
    await kv.set_many(PLAIN, [Group(b"a", ((b"a", b"1"),))])
    async for _ in kv.scan_arrow(PLAIN, b"", None):
        for _ in range(1000):
            clock.monotonic()
    seconds = {labels["operation"]: s for labels, s in meters.samples("kv.duration.sum")}
    assert seconds["scan_arrow"] == pytest.approx(0.002)


async def test_closing_closes_the_store(kv: MeteredKv, meters: Meters) -> None:
    await kv.close()
    with pytest.raises(TarnError):
        await kv.get_many(PLAIN, [b"k"])
    assert sum(failures(meters).values()) == 1


async def test_a_store_that_is_opened_with_meters_counts_by_the_names_of_the_documentation(
    meters: Meters, tmp_path: Path
) -> None:
    clock = ManualClock()
    config = load(None, {"TARN_DATA_DIR": str(tmp_path)})
    kv = await open_kv(config, clock, SeededIds(clock), meters)
    await kv.get_many(PLAIN, [b"k"])
    await kv.close()
    assert calls(meters)["get_many"] == 1


async def test_the_sizes_of_group_commits_are_measured(meters: Meters, tmp_path: Path) -> None:
    clock = ManualClock()
    config = load(None, {"TARN_DATA_DIR": str(tmp_path)})
    kv = await open_kv(config, clock, SeededIds(clock), meters)

    def number(name: str) -> float:
        return next(value for _, value in meters.samples(name))

    count, total = number("kv.batch.count"), number("kv.batch.sum")
    # Requests of one tick of the loop share a transaction.
    async with asyncio.TaskGroup() as group:
        for n in range(7):
            group.create_task(kv.set_many(PLAIN, [Group(b"g", ((b"%d" % n, b"v"),))]))
    assert (number("kv.batch.count") - count, number("kv.batch.sum") - total) == (1, 7)
    await kv.close()
