"""A forced hard move to an expiring commit, beside a compaction, a mark and a sweep: no object of its head is lost."""

from __future__ import annotations

from pathlib import Path

from collector_lab import NO_LIMITS, collector_lab
from expiring_lab import commit, forget_reflog, set_rules
from lake import MAIN, Lake, Replicas, Running, reached
from settled_later import lose_and_hold

from tarn.core.ids import RepositoryId
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.records.branches import BranchName


async def test_a_forced_move_whose_pin_another_operation_removed_loses_no_object(
    tmp_path: Path, running: Running
) -> None:
    async with collector_lab(tmp_path) as lab:
        shared = lab.service.replicas
        first, block = await commit(lab, "main", "a")
        await commit(lab, "main", "a")
        head, _ = await commit(lab, "main", "a")
        await forget_reflog(lab)  # as after its retention
        await set_rules(lab, '{"branches": [{"match": "main", "keep_days": 1}]}')
        await lab.put("main", "uncommitted")
        # The replica of the move has its own gates over the shared store.
        slow = Replicas(tmp_path / "slow", kv=shared.kv)
        slow.directory.mkdir()
        slow.clock, slow.blocks, slow.tasks, slow.count = (
            shared.clock,
            shared.blocks,
            shared.tasks,
            50,
        )
        async with shared.replica() as graveler, slow.replica() as moving:
            repository = await graveler.repositories.read(RepositoryId("lake"))
            main = BranchName(repository, MAIN)
            lake = Lake(moving, repository, slow.kv, slow.clock)
            new = NewHead(first, await moving.commits.get(repository, first))
            move, settling = await lose_and_hold(
                lake, running, moving.moves.move_to(main, new, head, force=True)
            )
            await graveler.compacting.compact(main)  # clears all pins, leaves the head
            pinned = slow.kv.hold("set_if", lake.branch_key, after=True)
            settling.open()
            await reached(pinned)
            publish = slow.kv.hold("set_if", lake.branch_key)
            pinned.open()
            await reached(publish)  # the move has looked for expired rows; its process pauses
            await lab.pass_days(3)
            await lab.collector.mark("lake")
            await lab.pass_days(1)
            await lab.collector.sweep("lake", NO_LIMITS)
            publish.open()
            assert (await move).commit_id == first
            assert await lab.readable("main") == {"a": block}
            assert block in await lab.blocks()
