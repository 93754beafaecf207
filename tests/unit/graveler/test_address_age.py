"""Rule 11: an entry is acknowledged only while its block's address is young."""

from __future__ import annotations

import pytest
from lake import Lake, Running, entry, reached
from lake_upload import Upload

from tarn.core.collection import LIMITS
from tarn.core.condition import WriteCondition
from tarn.core.entry import FLAG_EXTERNAL, TOMBSTONE, Entry, address_of, pack
from tarn.core.errors import Kind, Reason, TarnError

LIMIT_S = LIMITS.staging_us // 1_000_000
AHEAD_S = LIMITS.ahead_us // 1_000_000
ABSENT = WriteCondition(if_none_match=True)


def made_now(lake: Lake, operation_id: str = "", *, ahead_s: int = 0) -> bytes:
    """An entry whose address is made now; the time of the clock is a whole number of milliseconds."""
    address = (lake.clock.now_us() // 1000 + ahead_s * 1000).to_bytes(6, "big") + bytes(9) + b"\1"
    return pack(Entry(1, 0, address, bytes(16), operation_id=operation_id))


async def stage(lake: Lake, packed: bytes, condition: WriteCondition | None) -> None:
    if condition is None:
        await lake.graveler.staging.stage(lake.main, "a", packed)
    else:
        await lake.graveler.conditional.stage(lake.main, "a", packed, condition)


@pytest.mark.parametrize("condition", [None, ABSENT])
async def test_an_old_address_is_refused_before_anything_is_written(
    lake: Lake, condition: WriteCondition | None
) -> None:
    packed = made_now(lake, "op")
    lake.clock.advance(LIMIT_S)
    with pytest.raises(TarnError) as raised:
        await stage(lake, packed, condition)
    refusal = raised.value
    assert (refusal.kind, refusal.reason) == (Kind.FAILED_PRECONDITION, Reason.ADDRESS_TOO_OLD)
    assert await lake.get("a") is None


@pytest.mark.parametrize("condition", [None, ABSENT])
async def test_an_address_from_the_future_is_refused_before_anything_is_written(
    lake: Lake, condition: WriteCondition | None
) -> None:
    """The clock of its gateway is a day ahead: it would stay young until a collection judges its block."""
    packed = made_now(lake, "op", ahead_s=AHEAD_S + 1)
    with pytest.raises(TarnError) as raised:
        await stage(lake, packed, condition)
    refusal = raised.value
    assert (refusal.kind, refusal.reason) == (Kind.FAILED_PRECONDITION, Reason.ADDRESS_IN_FUTURE)
    assert "clocks" in refusal.message
    assert await lake.get("a") is None
    await stage(lake, made_now(lake, "op", ahead_s=AHEAD_S), condition)
    assert await lake.get("a") == 1


@pytest.mark.parametrize("condition", [None, ABSENT])
async def test_an_address_below_the_limit_is_taken(
    lake: Lake, condition: WriteCondition | None
) -> None:
    packed = made_now(lake, "op")
    lake.clock.advance(LIMIT_S - 1)
    await stage(lake, packed, condition)
    assert await lake.get("a") == 1


@pytest.mark.parametrize(
    ("condition", "operation"), [(None, "set_many"), (ABSENT, "set_if")], ids=["put", "create"]
)
async def test_a_row_that_was_on_its_way_for_hours_is_not_acknowledged(
    lake: Lake, running: Running, condition: WriteCondition | None, operation: str
) -> None:
    """The age is judged after the row is durable: a collection may have judged the block meanwhile."""
    held = lake.kv.hold(operation, lake.row_key("a"))
    writing = running.start(stage(lake, made_now(lake, "op"), condition))
    await reached(held)
    lake.clock.advance(LIMIT_S)
    held.open()
    with pytest.raises(TarnError) as raised:
        await writing
    assert raised.value.kind is Kind.UNKNOWN_OUTCOME
    assert "collection" in raised.value.message


async def test_a_writer_that_slept_before_its_re_check_is_not_acknowledged(
    lake: Lake, running: Running
) -> None:
    held = lake.kv.hold("set_many", lake.row_key("a"), after=True)
    writing = running.start(stage(lake, made_now(lake), None))
    await reached(held)
    lake.clock.advance(LIMIT_S)
    held.open()
    with pytest.raises(TarnError) as raised:
        await writing
    assert raised.value.kind is Kind.UNKNOWN_OUTCOME


async def test_a_repeated_creation_does_not_acknowledge_an_earlier_row_that_is_too_old(
    lake: Lake,
) -> None:
    await stage(lake, made_now(lake, "op"), ABSENT)
    lake.clock.advance(LIMIT_S)
    with pytest.raises(TarnError) as raised:
        await stage(lake, made_now(lake, "op"), ABSENT)
    assert raised.value.kind is Kind.UNKNOWN_OUTCOME


async def test_an_upload_keeps_its_address_young(lake: Lake, upload: Upload) -> None:
    """Its record is a root of every collection that begins before the completion ends."""
    lake.clock.advance(200)
    await upload.finish()
    assert await lake.get("k") == 1


def test_only_a_block_of_its_own_has_an_age() -> None:
    address = bytes(range(16))
    packed = pack(Entry(1, 0, address, bytes(16)))
    external = pack(Entry(1, 0, bytes(16), bytes(16), external_address="s3://elsewhere/key"))
    assert external[1] & FLAG_EXTERNAL
    assert address_of(packed) == address
    assert [address_of(each) for each in (TOMBSTONE, external, entry(1))] == [None] * 3
