"""Feature levels: who may use a store, and how the level is raised without a moment of doubt."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.clock import ManualClock, RestlessClock, SeededIds

from tarn.core import levels
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import LEVEL_MAX, Feature, FeatureGate, StoreLevel, unsupported
from tarn.kv import replicas as replica_rows
from tarn.kv.fence import (
    LEASE_SECONDS,
    QUIET_SECONDS,
    Fence,
    FencedKv,
    FenceState,
    check_open,
    read_fence,
    read_level,
    write_fence,
)
from tarn.kv.mem import MemKv
from tarn.kv.port import Group, OutcomeUnknownError, Partition, PartitionKind
from tarn.kv.replicas import BEAT_SECONDS, EXPIRY_SECONDS, LOOK_SECONDS, Replica, read_replicas
from tarn.kv.upgrading import begin_level, raise_level

ID = "tarn"
ROWS = Partition("tarn/auth", PartitionKind.REGISTER)
GROUP = Group(b"setup", ((b"setup", b"done"),))
RAISED = StoreLevel(LEVEL_MAX, LEVEL_MAX)
TOO_HIGH = StoreLevel(LEVEL_MAX + 1, LEVEL_MAX + 1)
HELD = Fence(FenceState.HELD, "t", "r", "dump to /x", 1)


async def set_level(kv: MemKv, level: StoreLevel) -> None:
    fence, predicate = await read_fence(kv, ID)
    await write_fence(kv, ID, fence, predicate, level=level)


async def used() -> MemKv:
    """A store that a release before levels has used."""
    kv = MemKv()
    assert await kv.set_many(ROWS, [GROUP]) == [None]
    return kv


async def asleep(clock: ManualClock) -> None:
    """Returns when another task waits on the clock."""
    while not clock.sleepers:  # noqa: ASYNC110 - the clock has no event for it
        await asyncio.sleep(0)


def replica(kv: MemKv | FencedKv, clock: ManualClock, stopped: list[str]) -> Replica:
    return Replica(
        kv,
        ID,
        service="graveler",
        version="1",
        clock=clock,
        ids=SeededIds(clock),
        stop=stopped.append,
    )


def test_a_release_runs_at_its_own_levels_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unsupported(StoreLevel(), ID) == ""
    assert unsupported(RAISED, ID) == ""
    assert "too old" in unsupported(TOO_HIGH, ID)
    assert "too old" in unsupported(StoreLevel(LEVEL_MAX, LEVEL_MAX + 1), ID)
    monkeypatch.setattr(levels, "LEVEL_MIN", 2)
    assert "too new" in unsupported(StoreLevel(), ID)


def test_a_feature_is_refused_below_its_level() -> None:
    feature = Feature.NEW_FIELDS
    allowing, refusing = FeatureGate.at(feature.level), FeatureGate.at(feature.level - 1)
    allowing.require(feature)
    assert allowing.allows(feature)
    assert not refusing.allows(feature)
    with pytest.raises(TarnError) as refused:
        refusing.require(feature)
    assert refused.value.reason is Reason.FEATURE_LEVEL
    assert "tarn upgrade finish" in refused.value.message


@pytest.mark.parametrize("level", [StoreLevel(1, 2), RAISED])
async def test_the_fence_keeps_the_level(level: StoreLevel) -> None:
    """A transfer closes and opens the store; the level stays."""
    kv = MemKv()
    await set_level(kv, level)
    _, predicate = await read_fence(kv, ID)
    await write_fence(kv, ID, HELD, predicate)
    assert await read_level(kv, ID) == level
    fence, predicate = await read_fence(kv, ID)
    assert fence == HELD
    await write_fence(kv, ID, None, predicate)
    assert await read_level(kv, ID) == level
    assert (await read_fence(kv, ID))[0] is None


async def test_a_store_of_a_higher_level_is_refused() -> None:
    kv = MemKv()
    await set_level(kv, TOO_HIGH)
    with pytest.raises(TarnError) as refused:
        await check_open(kv, ID)
    assert refused.value.reason is Reason.FEATURE_LEVEL


async def test_a_paused_process_gives_no_answer_once_the_level_is_too_high() -> None:
    """Its lease tells it, however long it was paused."""
    store, clock = await used(), ManualClock()
    kv = FencedKv(store, ID, clock)
    assert (await kv.get_many(ROWS, [b"setup"]))[0] is not None
    await set_level(store, TOO_HIGH)
    clock.advance(LEASE_SECONDS)
    with pytest.raises(TarnError) as refused:
        await kv.get_many(ROWS, [b"setup"])
    assert (refused.value.kind, "too old" in refused.value.message) == (Kind.UNAVAILABLE, True)


class PausedKv(MemKv):
    """Pauses the process while a write is under way, and lets the level be raised meanwhile."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    async def set_many(self, partition: Partition, groups: object) -> list[TarnError | None]:
        outcomes = await super().set_many(partition, groups)  # type: ignore[arg-type]  # passed on
        self.clock.advance(LEASE_SECONDS)
        await set_level(self, TOO_HIGH)
        return outcomes


async def test_a_write_during_the_raise_is_not_acknowledged() -> None:
    clock = ManualClock()
    kv = FencedKv(PausedKv(clock), ID, clock)
    (outcome,) = await kv.set_many(ROWS, [GROUP])
    assert isinstance(outcome, OutcomeUnknownError)


async def test_a_new_installation_begins_at_the_highest_level() -> None:
    kv = MemKv()
    await begin_level(kv, ID)
    assert await read_level(kv, ID) == RAISED
    await begin_level(kv, ID)
    assert await read_level(kv, ID) == RAISED


async def test_an_installation_of_an_earlier_release_keeps_its_level() -> None:
    kv = await used()
    await begin_level(kv, ID)
    assert await read_level(kv, ID) == StoreLevel()
    assert await read_fence(kv, ID) == (None, None)  # an older release finds what it left


async def test_the_level_is_raised_in_two_steps() -> None:
    """While old leases last, the level is announced and no process writes at it."""
    kv, clock, said = await used(), ManualClock(), list[str]()
    raising = asyncio.ensure_future(raise_level(kv, ID, clock, is_shared=True, said=said.append))
    await asleep(clock)
    assert await read_level(kv, ID) == StoreLevel(1, LEVEL_MAX)
    clock.advance(QUIET_SECONDS - 0.1)
    await asyncio.sleep(0)
    assert not raising.done()
    clock.advance(0.2)
    assert await raising == StoreLevel()
    assert await read_level(kv, ID) == RAISED
    assert len(said) == 2


async def test_an_interrupted_raise_is_continued() -> None:
    kv, said = await used(), list[str]()
    await set_level(kv, StoreLevel(1, LEVEL_MAX))
    await raise_level(kv, ID, RestlessClock(), is_shared=True, said=said.append)
    assert await read_level(kv, ID) == RAISED
    await raise_level(kv, ID, RestlessClock(), is_shared=True, said=said.append)
    assert len(said) == 1


async def test_the_level_is_not_raised_over_an_old_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kv, clock = await used(), RestlessClock()
    monkeypatch.setattr(replica_rows, "LEVEL_MAX", LEVEL_MAX - 1)
    async with replica(kv, clock, []):
        with pytest.raises(TarnError) as refused:
            await raise_level(kv, ID, clock, is_shared=True, said=lambda _: None)
    assert "graveler 1 on" in refused.value.message
    assert await read_level(kv, ID) == StoreLevel()
    await raise_level(kv, ID, clock, is_shared=True, said=lambda _: None)
    assert await read_level(kv, ID) == RAISED


async def test_the_level_is_not_raised_behind_a_transfer() -> None:
    kv = await used()
    _, predicate = await read_fence(kv, ID)
    await write_fence(kv, ID, HELD, predicate)
    with pytest.raises(TarnError) as refused:
        await raise_level(kv, ID, RestlessClock(), is_shared=True, said=lambda _: None)
    assert refused.value.kind is Kind.FAILED_PRECONDITION


async def test_a_running_replica_is_listed_until_it_ends() -> None:
    kv, clock = await used(), ManualClock()
    async with replica(kv, clock, []):
        (row,) = await read_replicas(kv, ID, clock.now_us())
        assert (row.service, row.level_max) == ("graveler", LEVEL_MAX)
        for _ in range(int((EXPIRY_SECONDS + BEAT_SECONDS) / LOOK_SECONDS)):
            await asleep(clock)
            clock.advance(LOOK_SECONDS)
        assert len(await read_replicas(kv, ID, clock.now_us())) == 1
    assert await read_replicas(kv, ID, clock.now_us()) == []


async def test_the_row_of_a_killed_replica_expires() -> None:
    kv, clock = await used(), ManualClock()
    killed = replica(kv, clock, [])
    await killed.__aenter__()
    await killed._tasks.close()
    clock.advance(EXPIRY_SECONDS - 1)
    assert len(await read_replicas(kv, ID, clock.now_us())) == 1
    clock.advance(2)
    assert await read_replicas(kv, ID, clock.now_us()) == []


async def test_a_replica_follows_the_level_and_stops_above_its_own() -> None:
    kv, clock, stopped = await used(), ManualClock(), list[str]()
    async with replica(kv, clock, stopped) as running:
        with pytest.raises(TarnError):
            running.features.require(Feature.NEW_FIELDS)
        for level in (RAISED, TOO_HIGH):
            await set_level(kv, level)
            await asleep(clock)
            clock.advance(LOOK_SECONDS)
            await asleep(clock)
            running.features.require(Feature.NEW_FIELDS)
            assert bool(stopped) is (level is TOO_HIGH)
    assert "too old" in stopped[0]
