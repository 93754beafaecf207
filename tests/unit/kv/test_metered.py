"""`MeteredKv` counts and changes nothing."""

from __future__ import annotations

import pytest

from tarn.core.errors import TarnError
from tarn.kv.mem import MemKv
from tarn.kv.metered import BUCKET_BOUNDS_SECONDS, MeteredKv
from tarn.kv.port import (
    KEY_BYTES_MAX,
    Group,
    Partition,
    PartitionKind,
    PredicateFailedError,
)

PLAIN = Partition("p", PartitionKind.PLAIN)
REGISTER = Partition("r", PartitionKind.REGISTER)


class SteppingClock:
    """Each look at the clock takes `step` seconds."""

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


def metered(step: float = 0.001) -> MeteredKv:
    return MeteredKv(MemKv(), SteppingClock(step))


async def test_every_operation_is_counted_and_handed_on() -> None:
    kv = metered()
    version = await kv.set_if(REGISTER, b"k", b"1", None)
    (found,) = await kv.get_many(REGISTER, [b"k"], settle=True)
    assert found is not None
    assert found.predicate == version
    await kv.delete_if(REGISTER, b"k", version)
    assert await kv.set_many(PLAIN, [Group(b"a", ((b"a", b"1"), (b"b", b"2")))]) == [None]
    await kv.delete_many(PLAIN, [b"a"])
    assert await kv.scan(PLAIN, b"", None, 10) == [(b"b", b"2")]
    assert [batch.num_rows async for batch in kv.scan_arrow(PLAIN, b"", None)] == [1]
    await kv.drop_partition(PLAIN)
    counts = {name: meter.calls for name, meter in kv.snapshot().items()}
    assert counts == {
        "get_many": 1,
        "set_many": 1,
        "set_if": 1,
        "delete_many": 1,
        "delete_if": 1,
        "scan": 1,
        "scan_arrow": 2,
        "drop_partition": 1,
    }
    assert sum(meter.errors + meter.conflicts for meter in kv.snapshot().values()) == 0


async def test_conflicts_are_no_errors_and_failed_groups_are() -> None:
    kv = metered()
    await kv.set_if(REGISTER, b"k", b"1", None)
    with pytest.raises(PredicateFailedError):
        await kv.set_if(REGISTER, b"k", b"2", None)
    with pytest.raises(TarnError):
        await kv.set_if(PLAIN, b"k", b"2", None)
    too_long = (bytes(KEY_BYTES_MAX + 1), b"")
    groups = [Group(b"a", (row,)) for row in (too_long, (b"a", b""), too_long)]
    await kv.set_many(PLAIN, groups)
    meters = kv.snapshot()
    assert (meters["set_if"].calls, meters["set_if"].conflicts, meters["set_if"].errors) == (
        3,
        1,
        1,
    )
    assert (meters["set_many"].calls, meters["set_many"].errors) == (1, 2)


@pytest.mark.parametrize(
    "seconds", [0.0, 0.9e-6, 1.5e-6, 100e-6, 0.0041, 1.0, 16.0, 17.0, 40.0, 1e6]
)
async def test_latency_falls_between_the_bounds_of_its_bucket(seconds: float) -> None:
    kv = metered(seconds)
    await kv.get_many(PLAIN, [b"k"])
    meter = kv.snapshot()["get_many"]
    assert meter.seconds == pytest.approx(seconds)
    bucket = meter.buckets.index(1)
    bounds = [0.0, *BUCKET_BOUNDS_SECONDS, float("inf")]
    assert len(meter.buckets) == len(BUCKET_BOUNDS_SECONDS) + 1
    assert bounds[bucket] <= meter.seconds < bounds[bucket + 1]


async def test_closing_closes_the_store() -> None:
    kv = metered()
    await kv.close()
    with pytest.raises(TarnError):
        await kv.get_many(PLAIN, [b"k"])
    assert kv.snapshot()["get_many"].errors == 1
