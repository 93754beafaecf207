"""A compare-and-set of a staged row reports its true outcome, even if its answer is lost."""

from __future__ import annotations

import pytest
from lake import Lake

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import OutcomeUnknownError, Partition, PredicateFailedError, Versioned
from tarn_graveler.records.settling import set_settled

KEY = Lake.row_key("k")


@pytest.fixture
async def rows(lake: Lake) -> Partition:
    """A register partition in which `KEY` has no row."""
    keys = lake.graveler.repositories.keys_of(lake.repository)
    return keys.refs


async def stored(lake: Lake, rows: Partition) -> Versioned | None:
    (found,) = await lake.kv.get_many(rows, [KEY], settle=True)
    return found


async def test_a_lost_answer_is_settled_by_a_read(lake: Lake, rows: Partition) -> None:
    lake.kv.lose("set_if", KEY, applied=True)
    await set_settled(lake.kv, rows, KEY, b"1", None)
    found = await stored(lake, rows)
    assert found is not None
    assert found.value == b"1"


async def test_an_answer_that_the_read_does_not_settle_stays_unknown(
    lake: Lake, rows: Partition
) -> None:
    lake.kv.lose("set_if", KEY, applied=False)
    with pytest.raises(OutcomeUnknownError):
        await set_settled(lake.kv, rows, KEY, b"1", None)
    await lake.kv.set_if(rows, KEY, b"2", None)
    found = await stored(lake, rows)
    assert found is not None
    lake.kv.lose("set_if", KEY, applied=False)
    with pytest.raises(OutcomeUnknownError):  # the row of another writer proves nothing
        await set_settled(lake.kv, rows, KEY, b"1", found.predicate)


async def test_a_settling_read_that_is_refused_makes_no_refusal_of_the_write(
    lake: Lake,
    rows: Partition,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def get_many(*_: object, **__: object) -> list[Versioned | None]:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "refused")

    lake.kv.lose("set_if", KEY, applied=True)
    monkeypatch.setattr(lake.kv, "get_many", get_many)
    with pytest.raises(OutcomeUnknownError):
        await set_settled(lake.kv, rows, KEY, b"1", None)


async def test_a_row_of_another_writer_is_brought_along(lake: Lake, rows: Partition) -> None:
    await lake.kv.set_if(rows, KEY, b"2", None)
    with pytest.raises(PredicateFailedError) as raised:
        await set_settled(lake.kv, rows, KEY, b"1", None)
    assert raised.value.current is not None
    assert raised.value.current.value == b"2"
