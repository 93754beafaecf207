"""A branch whose changes a compaction folded, in another store."""

from __future__ import annotations

from pathlib import Path

from lake import Lake, Replicas
from lake_parts import listing
from tests.support.clock import ManualClock, RestlessClock, SeededIds
from tests.support.faults.gates import GatedKv

from tarn.kv.mem import MemKv
from tarn.snapshot.store import OpenStore, RateLimiter, TransferOptions, migrate
from tarn_graveler.compaction.compacting import CompactionOutcome


async def test_a_compacted_branch_moves_to_another_store_as_it_is(
    replicas: Replicas, lake: Lake, tmp_path: Path
) -> None:
    """A migration copies the record and the tokens; the folded listing lies in the block store."""
    for number in range(30):
        await lake.put(f"a/{number:02}", 1)
    await lake.commit()
    await lake.delete("a/03")
    await lake.put("folded", 2)
    assert (await lake.graveler.compacting.compact(lake.main)).compacted is not None
    await lake.put("staged", 3)
    await lake.delete("a/05")
    before = await listing(lake)
    source = replicas.kv._kv
    assert isinstance(source, MemKv)
    target, clock = MemKv(), RestlessClock()
    await migrate(
        OpenStore(source, "test", "source", is_shared=False),
        OpenStore(target, "test", "target", is_shared=False),
        SeededIds(ManualClock()),
        TransferOptions(clock, RateLimiter(clock), 2),
    )
    there = Replicas(tmp_path / "there")
    there.kv, there.blocks, there.clock = GatedKv(target), replicas.blocks, replicas.clock
    async with there.replica() as graveler:
        moved = Lake(graveler, lake.repository, there.kv, there.clock)
        assert list(await listing(moved)) == [
            *(f"a/{number:02}" for number in range(30) if number not in {3, 5}),
            "folded",
            "staged",
        ]
        assert await listing(moved) == before
        done = await moved.graveler.compacting.compact(moved.main)
        assert (done.outcome, done.rows_read) == (CompactionOutcome.COMPACTED, 2)
        await moved.commit()
        assert await listing(moved) == before
        assert await moved.get("folded", "main~0") == 2
    await there.tasks.close()
    await target.close()
