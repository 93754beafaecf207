"""The state of a compactor, as its rpc tells it."""

from __future__ import annotations

from compactor_lab import CompactorLab, simulated
from graveler_service import reason_of

from tarn_proto.compactor.v1 import compactor_service_pb2 as pb


@simulated
async def test_the_status_needs_a_permission(lab: CompactorLab) -> None:
    developer = await lab.service.as_user("dev", "Developer")
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        # GetCompactorStatus, PauseCompactor and ResumeCompactor.
        for call in (client.status(developer), client.pause(developer), client.resume(developer)):
            assert await reason_of(call) == "ACCESS_DENIED"
        assert await reason_of(client.status(lab.service.anonymous)) == "CALLER_TOKEN_INVALID"


@simulated
async def test_the_status_shows_branches_replicas_and_work(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        await lab.put_and_delete(10)
        await lab.passes(2.0)
        status = await client.status(lab.service.admin)
        (branch,) = status.branches
        assert (branch.repository_id, branch.branch_id) == ("lake", "main")
        assert (branch.rows, branch.tombstones) == (10, 10)
        assert branch.state == pb.BRANCH_STATE_IDLE
        assert [each.address for each in status.replicas] == ["a", "b"]
        assert all(each.is_connected for each in status.replicas)


@simulated
async def test_the_status_shows_the_branches_with_the_most_deletes_first(lab: CompactorLab) -> None:
    admin = lab.service.admin
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        began_us = lab.service.clock.now_us()
        await lab.branches_with_deletes({"few": 3, "most": 12, "many": 7})
        await lab.passes(5.0)
        status = await client.status(admin)
        assert [each.branch_id for each in status.branches] == ["most", "many", "few"]
        for branch in status.branches:
            assert began_us <= branch.since_time.ToMicroseconds() <= lab.service.clock.now_us()
            assert (branch.size_bytes > 0, branch.sealed_tokens) == (True, 0)
        assert sum(each.changes for each in status.replicas) >= 3
        status = await client.status(admin, page_size=2)
        assert [each.branch_id for each in status.branches] == ["most", "many"]
        assert status.branch_count == 3


@simulated
async def test_the_status_adds_up_the_work(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        await lab.put_and_delete(30)
        await lab.service.put("new", 1)
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)
        status = await client.status(lab.service.admin)
        assert (status.compactions, status.failures, status.measure_queue) == (1, 0, 0)
        assert (status.rows_read, status.rows_written) == (31, 1)
        assert (status.tombstones_removed, status.sealed_tokens_removed) == (30, 1)
        assert status.duration_ms == int(compactor.compactor.totals.seconds * 1000)
        lab.graveler.failing.add("CompactBranch")
        await lab.put_and_delete(30, name="again")
        await lab.until(lambda: compactor.compactor.totals.failures == 1)
        assert (await client.status(lab.service.admin)).failures == 1
