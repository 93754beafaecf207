"""The pause of compactors: one row, which each replica reads when it is asked."""

from __future__ import annotations

import pytest
from lake import Lake

from tarn.core.compaction_pause import CompactionPause
from tarn.kv.compaction_records import decode_pause, encode_pause
from tarn_graveler.records.compaction_pauses import CompactionPauses


def pauses_of(lake: Lake) -> CompactionPauses:
    return CompactionPauses(lake.graveler.repositories, lake.clock)


async def test_a_pause_is_that_of_all_replicas_until_it_ends(lake: Lake, other: Lake) -> None:
    ours, theirs = pauses_of(lake), pauses_of(other)
    clock = lake.clock
    assert await theirs.get() is None
    begun = await ours.begin("ann", 60)
    assert await theirs.get() == begun
    assert begun.end_us - begun.time_us == 60_000_000
    clock.advance(59.0)
    assert await theirs.get() == begun
    clock.advance(1.0)
    assert await theirs.get() is None


async def test_a_pause_without_an_end_is_ended_by_any_user(lake: Lake) -> None:
    pauses = pauses_of(lake)
    await pauses.begin("ann", 60)
    await pauses.begin("bob", 0)
    lake.clock.advance(1e9)
    held = await pauses.get()
    assert held is not None
    assert (held.user_id, held.end_us) == ("bob", 0)
    await pauses.end("ann")
    assert await pauses.get() is None
    await pauses.end("ann")


@pytest.mark.parametrize("applied", [True, False])
async def test_a_change_whose_answer_was_lost_is_tried_until_it_is_known(
    lake: Lake, other: Lake, applied: bool
) -> None:
    lake.kv.lose("set_if", applied=applied)
    begun = await pauses_of(lake).begin("ann", 60)
    assert await pauses_of(other).get() == begun


def test_the_record_keeps_what_it_is_given() -> None:
    for pause in (CompactionPause("ann", 5, 7), CompactionPause("bob", 5, is_resumed=True)):
        assert decode_pause(encode_pause(pause)) == pause
