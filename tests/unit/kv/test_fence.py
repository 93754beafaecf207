"""The fence, and the leases that enforce it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.clock import ManualClock

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.fence import (
    LEASE_SECONDS,
    QUIET_SECONDS,
    Fence,
    FencedKv,
    FenceState,
    check_open,
    fence_partition,
    read_fence,
    write_fence,
)
from tarn.kv.mem import MemKv
from tarn.kv.metered import MeteredKv
from tarn.kv.port import (
    Group,
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    Predicate,
    Row,
    RowFilter,
    Versioned,
)
from tarn.telemetry.meters import Histogram, Meters

HELD = Fence(FenceState.HELD, "t", "r", "dump to /x", 1)
REGISTER = Partition("tarn/r", PartitionKind.REGISTER)
GROUP = Group(b"k", ((b"k", b"v"),))


class SlowKv(MemKv):
    """A KV that stores rows immediately and answers when the test says so."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        super().__init__()
        self.clock = clock
        self.seconds = seconds

    async def set_many(self, partition: Partition, groups: object) -> list[TarnError | None]:
        outcomes = await super().set_many(partition, groups)  # type: ignore[arg-type]  # passed on
        if partition != fence_partition("tarn"):
            self.clock.advance(self.seconds)
        return outcomes

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        if partition != fence_partition("tarn"):
            self.clock.advance(self.seconds)
        return await super().set_if(partition, key, value, predicate, companions=companions)


async def close(kv: MemKv) -> None:
    await write_fence(kv, "tarn", HELD, None)


class MeasuredKv(MemKv):
    """A KV that measures one write of three rows as soon as it is asked to."""

    def measure_batches(self, sizes: Histogram) -> None:
        sizes.record(3)


def test_the_store_behind_the_fence_measures_its_batches() -> None:
    clock, meters = ManualClock(), Meters()
    MeteredKv(FencedKv(MeasuredKv(), "tarn", clock), clock, meters)
    assert [*meters.samples("kv.batch.sum")] == [({}, 3)]
    MeteredKv(FencedKv(MemKv(), "tarn", clock), clock, meters)  # one that cannot


async def test_an_open_installation_is_used_as_if_there_were_no_fence() -> None:
    store = MemKv()
    kv = FencedKv(store, "tarn", ManualClock())
    version = await kv.set_if(REGISTER, b"k", b"v", None)
    assert await kv.set_many(REGISTER, [GROUP]) == [None]
    assert await kv.scan(REGISTER, b"", None, 10) == [(b"k", b"v")]
    assert (await kv.scan_without(REGISTER, b"", None, 10, RowFilter(b"x"))).rows == [(b"k", b"v")]
    assert [batch.num_rows async for batch in kv.scan_arrow(REGISTER, b"", None)] == [1]
    assert [each.name async for each in kv.partitions("tarn/")] == ["tarn/r"]
    with pytest.raises(TarnError) as lost:
        await kv.delete_if(REGISTER, b"k", version)
    assert lost.value.kind is Kind.CONFLICT
    await kv.delete_many(REGISTER, [b"k"])
    await kv.drop_partition(REGISTER)
    assert await kv.get_many(REGISTER, [b"k"]) == [None]


def operations(kv: FencedKv) -> dict[str, object]:
    async def arrow() -> None:
        async for _ in kv.scan_arrow(REGISTER, b"", None):
            pass

    async def names() -> None:
        async for _ in kv.partitions("tarn/"):
            pass

    return {
        "get": lambda: kv.get_many(REGISTER, [b"k"]),
        "settle": lambda: kv.get_many(REGISTER, [b"k"], settle=True),
        "scan": lambda: kv.scan(REGISTER, b"", None, 1),
        "scan_without": lambda: kv.scan_without(REGISTER, b"", None, 1, RowFilter(b"x")),
        "set": lambda: kv.set_many(REGISTER, [GROUP]),
        "set_if": lambda: kv.set_if(REGISTER, b"new", b"v", None),
        "conflict": lambda: kv.set_if(REGISTER, b"k", b"v", None),
        "delete": lambda: kv.delete_many(REGISTER, [b"x"]),
        "drop": lambda: kv.drop_partition(REGISTER),
        "arrow": arrow,
        "names": names,
    }


@pytest.mark.parametrize("name", sorted(operations(FencedKv(MemKv(), "tarn", ManualClock()))))
async def test_nothing_is_answered_once_the_lease_is_over(name: str) -> None:
    store, clock = MemKv(), ManualClock()
    kv = FencedKv(store, "tarn", clock)
    await kv.set_many(REGISTER, [GROUP])
    await close(store)
    clock.advance(LEASE_SECONDS)
    with pytest.raises(TarnError, match="tarn kv reopen") as caught:
        await operations(kv)[name]()  # type: ignore[operator]  # one of the above
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_the_lease_is_shorter_than_what_a_transfer_waits() -> None:
    assert LEASE_SECONDS * 1.5 < QUIET_SECONDS


async def test_a_write_that_comes_back_after_the_lease_is_not_acknowledged() -> None:
    """It was running when the fence was set; the transfer may already have read beyond its key."""
    clock = ManualClock()
    store = SlowKv(clock, LEASE_SECONDS)
    kv = FencedKv(store, "tarn", clock)
    await kv.get_many(REGISTER, [b"k"])
    await close(store)
    (outcome,) = await kv.set_many(REGISTER, [GROUP])
    assert isinstance(outcome, OutcomeUnknownError)


async def test_a_lost_comparison_that_comes_back_after_the_lease_is_no_answer_either() -> None:
    """It returns the stored value: a caller may find its own earlier write in it, and acknowledge that."""
    clock = ManualClock()
    store = SlowKv(clock, LEASE_SECONDS)
    await MemKv.set_if(store, REGISTER, b"k", b"v", None)
    kv = FencedKv(store, "tarn", clock)
    await kv.get_many(REGISTER, [b"k"])
    await close(store)
    with pytest.raises(TarnError) as caught:
        await kv.set_if(REGISTER, b"k", b"w", None)
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_lease_counts_from_before_the_read_that_grants_it() -> None:
    """The result may be as old as the start of the read: a fence may have been set right after."""
    clock = ManualClock()
    delays = [LEASE_SECONDS / 2]

    class SlowFence(MemKv):
        async def get_many(
            self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
        ) -> list[Versioned | None]:
            found = await super().get_many(partition, keys, settle=settle)
            if delays and partition == fence_partition("tarn"):
                clock.advance(delays.pop())
            return found

    store = SlowFence()
    kv = FencedKv(store, "tarn", clock)
    await kv.get_many(REGISTER, [b"k"])
    await close(store)
    clock.advance(LEASE_SECONDS / 2)
    with pytest.raises(TarnError, match="tarn kv reopen"):
        await kv.get_many(REGISTER, [b"k"])


async def test_a_slow_write_is_acknowledged_if_the_installation_is_still_open() -> None:
    clock = ManualClock()
    kv = FencedKv(SlowKv(clock, 10 * LEASE_SECONDS), "tarn", clock)
    assert await kv.set_many(REGISTER, [GROUP]) == [None]


async def test_it_is_used_again_soon_after_it_was_opened_again() -> None:
    store, clock = MemKv(), ManualClock()
    kv = FencedKv(store, "tarn", clock)
    await close(store)
    with pytest.raises(TarnError):
        await kv.get_many(REGISTER, [b"k"])
    _, predicate = await read_fence(store, "tarn")
    await write_fence(store, "tarn", None, predicate)
    clock.advance(1)
    assert await kv.get_many(REGISTER, [b"k"]) == [None]


async def test_the_fence_is_read_once_per_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = MemKv(), ManualClock()
    kv = FencedKv(store, "tarn", clock)
    read = 0
    get_many = store.get_many

    async def counted(partition: Partition, *args: object, **named: object) -> object:
        nonlocal read
        read += partition == fence_partition("tarn")
        return await get_many(partition, *args, **named)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(store, "get_many", counted)
    for _ in range(10):
        await kv.get_many(REGISTER, [b"k"])
        await kv.scan(REGISTER, b"", None, 1)
        clock.advance(LEASE_SECONDS / 5)
    assert read == 2


@pytest.mark.parametrize("state", FenceState)
async def test_no_service_starts_behind_a_fence(state: FenceState) -> None:
    kv = MemKv()
    await check_open(kv, "tarn")
    await write_fence(kv, "tarn", Fence(state, "t", "r", "to somewhere", 1), None)
    with pytest.raises(TarnError, match="to somewhere") as caught:
        await check_open(kv, "tarn")
    assert caught.value.kind is Kind.FAILED_PRECONDITION
    await check_open(kv, "another")


async def test_the_holder_of_a_fence_stops_when_another_takes_over() -> None:
    store, clock = MemKv(), ManualClock()
    await close(store)
    kv = FencedKv(store, "tarn", clock, HELD)
    assert await kv.set_many(REGISTER, [GROUP]) == [None]
    _, predicate = await read_fence(store, "tarn")
    await write_fence(store, "tarn", replace(HELD, run_id="s"), predicate)
    clock.advance(LEASE_SECONDS)
    with pytest.raises(TarnError, match="is closed"):
        await kv.set_many(REGISTER, [GROUP])
    _, predicate = await read_fence(store, "tarn")
    await write_fence(store, "tarn", None, predicate)
    clock.advance(LEASE_SECONDS)
    with pytest.raises(TarnError, match="was opened again"):
        await kv.set_many(REGISTER, [GROUP])


async def test_a_fence_of_another_holder_is_not_replaced() -> None:
    kv = MemKv()
    await close(kv)
    with pytest.raises(TarnError) as caught:
        await write_fence(kv, "tarn", Fence(FenceState.MOVED, "u", "r", "", 2), None)
    assert caught.value.kind is Kind.CONFLICT
    assert (await read_fence(kv, "tarn"))[0] == HELD


async def test_an_unreadable_fence_admits_no_process() -> None:
    kv = MemKv()
    await kv.set_many(fence_partition("tarn"), [Group(b"fence", ((b"fence", b"{}"),))])
    with pytest.raises(TarnError) as caught:
        await check_open(kv, "tarn")
    assert caught.value.kind is Kind.CORRUPT


class LosingKv(MemKv):
    """Loses the answer to a compare-and-set, or refuses it."""

    def __init__(self, error: TarnError, *, applied: bool) -> None:
        super().__init__()
        self.error: TarnError | None = None
        self._will = error
        self._applied = applied

    def lose(self) -> None:
        self.error = self._will

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        if self.error is None:
            return await super().set_if(partition, key, value, predicate, companions=companions)
        if self._applied:
            await super().set_if(partition, key, value, predicate, companions=companions)
        raise self.error

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        if self.error is None or self._applied:
            await super().delete_if(partition, key, predicate, companions=companions)
        if self.error is not None:
            raise self.error


UNKNOWN = OutcomeUnknownError("no answer")
AWAY = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "away")


@pytest.mark.parametrize("fence", [HELD, None])
@pytest.mark.parametrize(
    ("error", "applied", "is_done"),
    [(UNKNOWN, True, True), (UNKNOWN, False, False), (AWAY, True, False), (AWAY, False, False)],
)
async def test_a_lost_answer_to_a_fence_is_decided_by_the_stored_fence(
    fence: Fence | None, error: TarnError, applied: bool, is_done: bool
) -> None:
    kv = LosingKv(error, applied=applied)
    predicate = None
    if fence is None:
        await close(kv)
        _, predicate = await read_fence(kv, "tarn")
    kv.lose()
    if is_done:
        await write_fence(kv, "tarn", fence, predicate)
    else:
        with pytest.raises(TarnError) as caught:
            await write_fence(kv, "tarn", fence, predicate)
        assert caught.value is error
    assert ((await read_fence(kv, "tarn"))[0] == fence) is applied
