"""All replicas use one key, whichever of them creates it and whichever answer is lost."""

from __future__ import annotations

import pytest
from lake import Lake

from tarn.core.errors import Kind, TarnError
from tarn.kv.keys import InstallationKeys
from tarn.rpc.wire.pagination import PAGE_KEY_BYTES

KEYS = InstallationKeys("test")


async def token(lake: Lake) -> str:
    return (await lake.graveler.page_keys.tokens("ann", "Entries")).encode("key")


async def test_replicas_read_each_other_s_tokens(lake: Lake, other: Lake) -> None:
    assert (await other.graveler.page_keys.tokens("ann", "Entries")).decode(
        await token(lake)
    ) == "key"
    (found,) = await lake.kv.get_many(KEYS.graveler, [KEYS.PAGE_KEY])
    assert found is not None
    assert len(found.value) == PAGE_KEY_BYTES


async def test_the_key_is_read_once(lake: Lake) -> None:
    await token(lake)
    calls = len(lake.kv.calls)
    await token(lake)
    assert len(lake.kv.calls) == calls


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
async def test_a_lost_answer_makes_no_second_key(lake: Lake, other: Lake, applied: bool) -> None:
    lake.kv.lose("set_if", KEYS.PAGE_KEY, applied=applied)
    assert await token(lake) == await token(other)


async def test_a_replica_that_comes_second_takes_the_key_of_the_first(
    lake: Lake,
    other: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both find no key; the key of the other replica lands first."""
    real = lake.kv.set_if

    async def set_if(*args: object) -> object:
        monkeypatch.setattr(lake.kv, "set_if", real)
        await token(other)
        return await real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.kv, "set_if", set_if)
    assert await token(lake) == await token(other)


async def test_a_damaged_key_is_reported(lake: Lake) -> None:
    await lake.kv.set_if(KEYS.graveler, KEYS.PAGE_KEY, b"short", None)
    with pytest.raises(TarnError) as raised:
        await token(lake)
    assert raised.value.kind is Kind.CORRUPT
