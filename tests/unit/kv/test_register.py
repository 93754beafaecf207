"""Changes of one record: lost answers are settled, refusals are true, and the returned record holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.mem import MemKv
from tarn.kv.port import (
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    Predicate,
    PredicateFailedError,
    Row,
    Versioned,
)
from tarn.kv.register import Register, write_once

PLACE = Partition("place", PartitionKind.REGISTER)
KEY = b"numbers"

Write = Callable[[], Awaitable[Predicate]]


class Faulty(MemKv):
    """A store that plays one step instead of, or after, each write that is listed."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[Callable[[Write], Awaitable[Predicate]]] = []
        self.reads: list[bool] = []

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        self.reads.append(settle)
        return await super().get_many(partition, keys, settle=settle)

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        write = super().set_if

        async def go() -> Predicate:
            return await write(partition, key, value, predicate)

        return await (self.faults.pop(0)(go) if self.faults else go())


def decoded(value: bytes | None) -> list[int]:
    return [] if value is None else list(map(int, value.decode().split()))


def encoded(numbers: list[int]) -> bytes | None:
    return " ".join(map(str, numbers)).encode() if numbers else None


@pytest.fixture
def kv() -> Faulty:
    return Faulty()


def register(kv: Faulty) -> Register[list[int]]:
    return Register(kv, PLACE, KEY, decoded, encoded, "the list of numbers")


async def lost(write: Write) -> Predicate:
    await write()
    raise OutcomeUnknownError("lost")


async def never_made(write: Write) -> Predicate:
    raise OutcomeUnknownError("lost")


async def test_a_change_is_made_and_an_unchanged_record_is_not_written(kv: Faulty) -> None:
    numbers = register(kv)
    assert await numbers.read() == []
    assert await numbers.change(lambda now: [*now, 1]) == [1]
    kv.faults = [never_made] * 16
    assert await numbers.change(lambda now: now) == [1]
    assert await numbers.read() == [1]


async def test_an_empty_record_removes_the_row(kv: Faulty) -> None:
    numbers = register(kv)
    assert await numbers.change(lambda _: []) == []
    await numbers.change(lambda _: [1])
    assert await numbers.change(lambda _: []) == []
    assert await kv.get_many(PLACE, [KEY]) == [None]


async def test_a_lost_answer_is_settled_by_what_holds(kv: Faulty) -> None:
    kv.faults = [lost]
    assert await register(kv).change(lambda now: [*now, 7], lambda now: 7 in now) == [7]
    assert all(kv.reads), "only settling reads decide"


async def test_a_change_is_found_beneath_a_later_one(kv: Faulty) -> None:
    """Not by the last value: the record that holds is a later one than the one that was written."""

    async def lost_and_changed(write: Write) -> Predicate:
        await write()
        await register(kv).change(lambda now: [*now, 8])
        raise OutcomeUnknownError("lost")

    kv.faults = [lost_and_changed]
    assert await register(kv).change(lambda now: [*now, 7], lambda now: 7 in now) == [7, 8]
    assert await register(kv).read() == [7, 8]


async def test_a_change_that_was_not_made_is_made(kv: Faulty) -> None:
    kv.faults = [never_made, never_made]
    assert await register(kv).change(lambda now: [*now, 7], lambda now: 7 in now) == [7]


async def test_a_newer_record_is_decided_again(kv: Faulty) -> None:
    async def overtaken(write: Write) -> Predicate:
        await register(kv).change(lambda now: [*now, 8])
        return await write()

    kv.faults = [overtaken]
    assert await register(kv).change(lambda now: [*now, 7]) == [8, 7]


async def test_a_refusal_is_told_as_it_is_until_something_may_be_written(kv: Faulty) -> None:
    def refuse(now: list[int]) -> list[int]:
        raise TarnError(Kind.CONFLICT, Reason.SETTINGS_CHANGED, "no")

    with pytest.raises(TarnError) as refused:
        await register(kv).change(refuse)
    assert refused.value.reason is Reason.SETTINGS_CHANGED

    def once(now: list[int]) -> list[int]:
        return refuse(now) if kv.reads[1:] else [*now, 7]

    kv.reads.clear()
    kv.faults = [never_made]
    with pytest.raises(OutcomeUnknownError):
        await register(kv).change(once, lambda now: 7 in now)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_record_that_never_rests_ends_the_change(kv: Faulty, is_lost: bool) -> None:
    async def overtaken(write: Write) -> Predicate:
        raise PredicateFailedError(KEY, None)

    kv.faults = [never_made if is_lost else overtaken, *[overtaken] * 15]
    with pytest.raises(TarnError) as ended:
        await register(kv).change(lambda now: [*now, 7], lambda now: 7 in now)
    assert isinstance(ended.value, OutcomeUnknownError) is is_lost
    assert is_lost or ended.value.reason is Reason.TOO_MANY_RETRIES
    assert "the list of numbers changed 16 times" in ended.value.message


@pytest.mark.parametrize("stored", [b"", b"first"])
async def test_a_row_that_is_written_once_keeps_its_first_value(kv: Faulty, stored: bytes) -> None:
    """Also an empty one."""
    assert await write_once(kv, PLACE, KEY, lambda: stored, "the row") == stored
    assert await write_once(kv, PLACE, KEY, lambda: b"second", "the row") == stored


@pytest.mark.parametrize("fault", [lost, never_made])
async def test_a_row_that_is_written_once_is_there_after_a_lost_answer(
    kv: Faulty, fault: Callable[[Write], Awaitable[Predicate]]
) -> None:
    kv.faults = [fault]
    values = iter([b"1", b"2"])
    made = await write_once(kv, PLACE, KEY, lambda: next(values), "the row")
    (row,) = await kv.get_many(PLACE, [KEY])
    assert row is not None
    assert row.value == made == (b"1" if fault is lost else b"2")
