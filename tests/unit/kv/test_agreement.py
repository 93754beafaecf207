"""The first replica stores the settings that must be equal on all, and the others compare theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.kv.agreement import SETTINGS, agree, forget_settings, read_settings
from tarn.kv.embedded import open_embedded
from tarn.kv.fence import fence_partition
from tarn.kv.mem import MemKv
from tarn.kv.port import OutcomeUnknownError, Partition, Predicate, Row
from tarn.snapshot.store.layout import is_empty

MINUTE = {"graveler.drop_delay": "60000ms", "graveler.clock_skew": "5000ms"}
CENTRE = {"metadata.db.cassandra.local_datacenter": "berlin"}


async def test_the_first_process_notes_and_equal_ones_are_let_in() -> None:
    kv = MemKv()
    assert await read_settings(kv, "tarn") == {}
    for _ in range(3):
        await agree(kv, "tarn", MINUTE)
    assert await read_settings(kv, "tarn") == MINUTE


async def test_one_that_differs_is_refused_with_key_both_values_and_a_way_out() -> None:
    kv = MemKv()
    await agree(kv, "tarn", MINUTE)
    with pytest.raises(TarnError) as raised:
        await agree(kv, "tarn", {**MINUTE, "graveler.drop_delay": "10000ms"})
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    assert raised.value.message.startswith(
        "installation 'tarn': graveler.drop_delay is 10000ms here and 60000ms on the processes"
    )
    assert "`tarn kv settings --forget`" in raised.value.message
    assert "clock_skew" not in raised.value.message
    assert await read_settings(kv, "tarn") == MINUTE
    await agree(kv, "another", {"graveler.drop_delay": "10000ms"})


async def test_a_process_notes_new_settings_and_compares_only_those_it_uses() -> None:
    kv = MemKv()
    await agree(kv, "tarn", CENTRE)
    await agree(kv, "tarn", MINUTE)
    assert await read_settings(kv, "tarn") == CENTRE | MINUTE
    await agree(kv, "tarn", CENTRE)
    with pytest.raises(TarnError, match="is paris here and berlin on"):
        await agree(kv, "tarn", {"metadata.db.cassandra.local_datacenter": "paris"})


async def test_one_of_two_concurrent_processes_with_different_values_is_refused(
    tmp_path: Path,
) -> None:
    kv = await open_embedded(tmp_path / "tarn.db", durability="os")
    outcomes: list[Kind | None] = []

    async def start(delay: str) -> None:
        try:
            await agree(kv, "tarn", {"graveler.drop_delay": delay})
            outcomes.append(None)
        except TarnError as error:
            outcomes.append(error.kind)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(start(f"{number}ms"))
    assert outcomes.count(None) == 1
    assert outcomes.count(Kind.FAILED_PRECONDITION) == 7
    await kv.close()


@pytest.mark.parametrize("lands", [True, False])
async def test_a_note_of_unknown_outcome_is_read_again(lands: bool) -> None:
    class Uncertain(MemKv):
        left = 1

        async def set_if(
            self,
            partition: Partition,
            key: bytes,
            value: bytes,
            predicate: Predicate | None,
            *,
            companions: Sequence[Row] = (),
        ) -> Predicate:
            if not self.left:
                return await super().set_if(partition, key, value, predicate, companions=companions)
            self.left -= 1
            if lands:
                await super().set_if(partition, key, value, predicate, companions=companions)
            raise OutcomeUnknownError("timed out")

    kv = Uncertain()
    await agree(kv, "tarn", MINUTE)
    assert await read_settings(kv, "tarn") == MINUTE


async def test_a_forgotten_setting_is_noted_anew() -> None:
    kv = MemKv()
    await forget_settings(kv, "tarn")
    await agree(kv, "tarn", MINUTE)
    await forget_settings(kv, "tarn")
    await agree(kv, "tarn", {"graveler.drop_delay": "10000ms"})
    assert await read_settings(kv, "tarn") == {"graveler.drop_delay": "10000ms"}


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"graveler.drop_delay": 60}', b"\xff"])
async def test_a_damaged_record_is_told_as_such(value: bytes) -> None:
    kv = MemKv()
    await kv.set_if(fence_partition("tarn"), SETTINGS, value, None)
    with pytest.raises(TarnError) as raised:
        await agree(kv, "tarn", MINUTE)
    assert raised.value.kind is Kind.CORRUPT


async def test_the_record_belongs_to_the_store_and_is_not_moved() -> None:
    kv = MemKv()
    await agree(kv, "tarn", MINUTE)
    assert await is_empty(kv, "tarn")
