"""Registrations of events: none is lost to a pause, and each is over only when its event is there or cannot come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.clock import ManualClock
from tests.support.record_events import registered

from tarn.core.branch import Token, TokenKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import TokenId
from tarn.kv.keys import InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import COMPANION_KEYS, Group, Partition, PartitionKind, Predicate
from tarn.kv.registrations import (
    HOUR_US,
    Registration,
    Registrations,
    find_event,
    hour_of,
    is_complete,
)

KEYS = InstallationKeys("tarn")
REFS = Partition("tarn/lake-1", PartitionKind.REGISTER, 8)
COMMITS = Partition("tarn/lake-1/commits", PartitionKind.PLAIN)
TOKEN = Token(TokenId("t1"), TokenKind.CONDITIONAL, 4, 7)
_DAY_SECONDS = 86_400


def made(
    clock: ManualClock,
    expected: Predicate | None = None,
    *,
    number: int = 0,
    place: Partition = REFS,
) -> Registration:
    event_key = COMPANION_KEYS + clock.now_us().to_bytes(8, "big") + number.to_bytes(8, "big")
    return Registration(place, b"branches/main", event_key, expected, TOKEN)


async def test_what_was_registered_is_read_by_its_hour_until_it_is_finished() -> None:
    kv, clock = MemKv(), ManualClock()
    registrations = Registrations(kv, KEYS, clock)
    hour = hour_of(clock.now_us())
    one = made(clock, Predicate(b"\0"))
    clock.advance(1)
    other = made(clock, place=COMMITS)
    await registrations.register([other, one])
    await registrations.register([one])
    assert await registered(registrations, hour) == [one, other], "by time, each once"
    assert one.time_us == other.time_us - 1_000_000
    await registrations.finish(hour, [one])
    assert await registered(registrations, hour) == [other]
    assert await registered(registrations, hour + 1) == []


async def test_a_drained_one_is_yielded_until_it_is_finished() -> None:
    """So that an event which a crash has left is removed."""
    kv, clock = MemKv(), ManualClock()
    registrations = Registrations(kv, KEYS, clock)
    hour = hour_of(clock.now_us())
    one = made(clock, Predicate(b"\0"))
    await registrations.register([one])
    await registrations.mark_drained(hour, [one])
    assert await registered(registrations, hour) == [replace(one, is_drained=True)]
    await registrations.finish(hour, [one])
    assert await registered(registrations, hour) == []


async def test_those_of_one_root_are_read_alone() -> None:
    """Of a repository, of one whose name begins so, and of what belongs to none."""
    kv, clock = MemKv(), ManualClock()
    registrations = Registrations(kv, KEYS, clock)
    hour = hour_of(clock.now_us())
    places = {
        "tarn": Partition("tarn/graveler", PartitionKind.REGISTER),
        "tarn/lake-1": REFS,
        "tarn/lake-10": Partition("tarn/lake-10/pulls", PartitionKind.REGISTER, 8),
    }
    all_ = {
        root: made(clock, number=number, place=place)
        for number, (root, place) in enumerate(places.items())
    }
    await registrations.register([*all_.values(), made(clock, number=9, place=COMMITS)])
    for root in ("tarn", "tarn/lake-10"):
        assert [each async for each in registrations.registered(hour, root)] == [all_[root]]
    assert len([each async for each in registrations.registered(hour, "tarn/lake-1")]) == 2
    assert len(await registered(registrations, hour)) == 4


class PausedKv(MemKv):
    """Each write lasts as long as the next number says, in seconds; then no time."""

    def __init__(self, clock: ManualClock, *pauses: float) -> None:
        super().__init__()
        self._clock = clock
        self._pauses = list(pauses)

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        if self._pauses:
            self._clock.advance(self._pauses.pop(0))
        return await super().set_many(partition, groups)


async def test_a_row_that_is_late_counts_in_the_hour_in_which_its_process_goes_on() -> None:
    clock = ManualClock()
    kv = PausedKv(clock, 2 * HOUR_US / 1_000_000)
    registrations = Registrations(kv, KEYS, clock)
    began = hour_of(clock.now_us())
    await registrations.register([made(clock)])
    assert is_complete(began, clock.now_us()), "so a drain may have dropped it before the row came"
    await registrations.forget(began)
    assert len(await registered(registrations, began + 2)) == 1


async def test_a_process_that_is_stopped_again_and_again_does_not_change_its_record() -> None:
    clock = ManualClock()
    registrations = Registrations(PausedKv(clock, 120, 120, 120), KEYS, clock)
    with pytest.raises(TarnError) as caught:
        await registrations.register([made(clock)])
    assert (caught.value.kind, caught.value.reason) == (Kind.UNAVAILABLE, Reason.UNAVAILABLE)


async def test_a_failed_write_is_no_registration() -> None:
    class FailingKv(MemKv):
        async def set_many(
            self, partition: Partition, groups: Sequence[Group]
        ) -> list[TarnError | None]:
            await super().set_many(partition, groups[1:])
            return [TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "no"), None]

    clock = ManualClock()
    registrations = Registrations(FailingKv(), KEYS, clock)
    with pytest.raises(TarnError, match="no"):
        await registrations.register([made(clock), made(clock, number=1)])


async def test_an_hour_is_dropped_only_when_no_row_that_counts_can_come() -> None:
    kv, clock = MemKv(), ManualClock()
    registrations = Registrations(kv, KEYS, clock)
    hour = hour_of(clock.now_us())
    await registrations.register([made(clock)])
    end = (hour + 1) * HOUR_US
    clock.advance((end - clock.now_us()) / 1_000_000 + 179)
    with pytest.raises(TarnError, match="not complete"):
        await registrations.forget(hour)
    assert len(await registered(registrations, hour)) == 1
    clock.advance(1)
    await registrations.forget(hour)
    assert await registered(registrations, hour) == []


async def test_a_damaged_registration_is_no_other_one() -> None:
    kv, clock = MemKv(), ManualClock()
    key = KEYS.registration("tarn/lake-1", bytes(16))
    await kv.set_many(KEYS.registrations(5), [Group(key, ((key, b"\xff"),))])
    with pytest.raises(TarnError) as caught:
        await registered(Registrations(kv, KEYS, clock), 5)
    assert caught.value.kind is Kind.CORRUPT


async def test_an_event_is_awaited_while_its_change_may_be_made() -> None:
    kv, clock = MemKv(), ManualClock()
    first = await kv.set_if(REFS, b"branches/main", b"1", None)
    registered = made(clock, first)

    async def look(each: Registration) -> tuple[bytes | None, bool]:
        state = await find_event(kv, each, clock.now_us())
        return None if state.event is None else state.event.value, state.is_over

    clock.advance(2 * _DAY_SECONDS)
    assert await look(registered) == (None, False), "its process is paused, for any time"
    event = (registered.event_key, b"told")
    # Keys beside its own are other events.
    beside = [(registered.event_key + b"\0", b"x"), (registered.event_key[:-1], b"x")]
    await kv.set_if(REFS, b"branches/main", b"2", first, companions=[event, *beside])
    assert await look(registered) == (b"told", True)
    lost = made(clock, first, number=1)
    assert await look(lost) == (None, True), "another change won: this one is never made"


async def test_a_change_that_expects_no_record_is_given_up_after_a_day() -> None:
    kv, clock = MemKv(), ManualClock()
    registered = made(clock)
    clock.advance(_DAY_SECONDS - 1)
    assert not (await find_event(kv, registered, clock.now_us())).is_over
    clock.advance(1)
    assert (await find_event(kv, registered, clock.now_us())).is_over
    fresh = made(clock)
    assert not (await find_event(kv, fresh, clock.now_us())).is_over
    version = await kv.set_if(REFS, b"branches/main", b"1", None)
    assert (await find_event(kv, fresh, clock.now_us())).is_over, "another one made it"
    assert not (await find_event(kv, made(clock, version), clock.now_us())).is_over
    await kv.delete_if(REFS, b"branches/main", version)
    assert (await find_event(kv, made(clock, version), clock.now_us())).is_over


async def test_the_event_of_a_plain_row_is_awaited_for_a_day() -> None:
    kv, clock = MemKv(), ManualClock()
    registered = made(clock, place=COMMITS)
    assert not (await find_event(kv, registered, clock.now_us())).is_over
    row = (b"expired/c", b"1")
    await kv.set_many(COMMITS, [Group(row[0], (row,), ((registered.event_key, b"told"),))])
    found = await find_event(kv, registered, clock.now_us())
    assert found.is_over
    assert found.event is not None
    assert found.event.value == b"told"
    clock.advance(_DAY_SECONDS)
    assert (await find_event(kv, made(clock, number=1), clock.now_us())).event is None
    late = Registration(COMMITS, b"expired/d", registered.event_key[:-1] + b"\1")
    assert await find_event(kv, late, clock.now_us()) == type(found)(None, is_over=True)
