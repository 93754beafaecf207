import asyncio
from dataclasses import replace
from typing import cast

import pytest
from compactor_lab import LIMITS, CompactorLab, running_mark, simulated
from tests.support.clock import SeededIds

from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.client.staging_events import StagingEventClient
from tarn.core.access.policy import Grant
from tarn.core.access.service import Service as ServiceName
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.access import Access
from tarn.gate.service_calls import ServiceCalls
from tarn.rpc.wire.call import Call
from tarn.telemetry.metric_table import TABLE
from tarn_proto.compactor.v1 import compactor_service_pb2 as pb
from tarn_proto.graveler.v1 import settings_service_pb2
from tarn_proto.graveler.v1 import staging_event_service_pb2 as event_pb


@simulated
async def test_deletes_without_a_commit_lead_to_a_compaction(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        await lab.service.put("kept", 1)
        await lab.put_and_delete(30)
        await lab.service.put("new", 1)
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)
        assert await lab.tombstones() == 0
        assert await lab.listed() == ["kept", "new"]
        assert compactor.compactor.totals.tombstones == 30


@simulated
async def test_a_branch_below_the_thresholds_costs_no_call(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        await lab.passes(5.0)
        before = lab.graveler.count("MeasureStaging")
        await lab.put_and_delete(19)
        await lab.passes(60.0)
        assert compactor.counts.view(("lake", "main"), 0.0).tombstones == 19
        assert lab.graveler.count("MeasureStaging") == before
        assert lab.graveler.count("CompactBranch") == 0


@simulated
async def test_deletes_through_two_replicas_add_up(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        await lab.put_and_delete(15, name="one")
        through_b = GravelerClient(lab.wires["b"])
        for number in range(15):
            await lab.service.put(f"two/{number}", 1)
        for number in range(15):
            await through_b.unstage(lab.service.admin, "lake", "main", f"two/{number}")
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)
        assert await lab.tombstones() == 0


@simulated
async def test_a_compactor_that_starts_later_finds_the_deletes(lab: CompactorLab) -> None:
    await lab.put_and_delete(30)
    for wire in lab.wires.values():
        wire.is_cut = True  # no replica tells what it counted
    async with lab.compactor() as compactor:
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)
    assert await lab.tombstones() == 0


@simulated
async def test_a_start_measures_each_staged_branch_once(lab: CompactorLab) -> None:
    admin = lab.service.admin
    for number in range(4):
        await lab.service.graveler.create_branch(admin, "lake", f"b{number}", "main")
        if number % 2:
            await lab.service.put("a", 1, f"b{number}")
    async with lab.compactor():
        await lab.passes(30.0)
        counts = [lab.graveler.count("MeasureStaging", f"b{number}") for number in range(4)]
        assert counts == [0, 1, 0, 1]


@simulated
async def test_a_branch_that_is_due_at_a_start_is_measured_once_before_its_compaction(
    lab: CompactorLab,
) -> None:
    await lab.put_and_delete(30)
    for wire in lab.wires.values():
        wire.is_cut = True  # only measurements tell of the deletes
    async with lab.compactor() as compactor:
        await lab.until(lambda: lab.graveler.count("CompactBranch") == 1)
        assert lab.graveler.count("MeasureStaging", "main") == 1
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)


@simulated
async def test_a_restarted_replica_leads_to_one_listing(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        await lab.service.put("a", 1)
        await lab.passes(20.0)
        listings = lab.graveler.count("ListStagedBranches")
        async with lab.service.another_replica() as again:
            lab.wires["b"].transport = again.transport
            await lab.passes(40.0)
            assert compactor.sensor.replicas["b"].gaps == 1
            assert compactor.sensor.replicas["a"].gaps == 0
            assert lab.graveler.count("ListStagedBranches") == listings + 1
            assert lab.graveler.count("MeasureStaging", "main") == 1
            lab.wires["b"].is_cut = True


@simulated
async def test_a_broken_wire_loses_no_counts(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        await lab.passes(20.0)
        listings = lab.graveler.count("ListStagedBranches")
        for wire in lab.wires.values():
            wire.is_cut = True
        await lab.put_and_delete(30)
        await lab.passes(30.0)
        assert not compactor.sensor.replicas["a"].is_connected
        assert compactor.compactor.totals.compactions == 0
        for wire in lab.wires.values():
            wire.is_cut = False
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)
        assert lab.graveler.count("ListStagedBranches") == listings, "no gap: totals were repeated"


@simulated
async def test_a_commit_that_nobody_told_is_noticed_after_a_restart(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        await lab.put_and_delete(10)
        await lab.passes(20.0)
        assert compactor.counts.view(("lake", "main"), 0.0).tombstones == 10
        for wire in lab.wires.values():
            wire.is_cut = True
        await lab.service.graveler.create_commit(lab.service.admin, "lake", "main", "untold")
        await lab.passes(20.0)  # the calls that were under way have ended without an answer
        async with lab.service.another_replica() as again:
            for wire in lab.wires.values():
                wire.transport = again.transport
                wire.is_cut = False
            await lab.passes(60.0)
            assert compactor.counts.view(("lake", "main"), 0.0).tombstones == 0


@simulated
async def test_a_compaction_that_seems_to_run_is_not_disturbed_all_the_time(
    lab: CompactorLab,
) -> None:
    await lab.put_and_delete(30)
    await running_mark(lab)
    async with lab.compactor() as compactor:
        await lab.passes(300.0)
        assert compactor.compactor.totals.failures == 0
        assert 4 <= lab.graveler.count("CompactBranch") <= 8
        await lab.until(lambda: compactor.compactor.totals.compactions == 1, 2000.0)
        assert not lab.graveler.waited_for, "no user waits for the compactor's compactions"


@simulated
async def test_a_replica_that_is_gone_is_watched_no_more(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        await lab.until(lambda: len(compactor.sensor.replicas) == 2)
        wire = lab.wires.pop("b")
        await lab.until(lambda: list(compactor.sensor.replicas) == ["a"])
        asked = wire.count("WatchStaging")
        await lab.passes(60.0)
        assert wire.count("WatchStaging") == asked


@simulated
async def test_each_replica_tells_what_a_compactor_does(lab: CompactorLab) -> None:
    """Another compactor, and one that ends, are told apart; who is silent for a minute is left out."""
    admin = lab.service.admin
    clients = {name: GravelerClient(wire) for name, wire in lab.wires.items()}
    async with lab.compactor() as one, lab.compactor(seed=1) as two:
        await lab.put_and_delete(30)
        totals = one.compactor.totals, two.compactor.totals
        await lab.until(lambda: sum(each.compactions for each in totals) == 1)
        await lab.passes(40.0)
        found = {name: await client.list_compactors(admin) for name, client in clients.items()}
        for told in found.values():
            assert len({each.report.compactor_id for each in told}) == 2
            assert sorted(each.report.compactions for each in told) == [0, 1]
            assert {each.report.branch_count for each in told} == {1}
            assert all(not each.report.running for each in told)
        ids = [[each.report.compactor_id for each in told] for told in found.values()]
        assert ids[0] == ids[1] == sorted(ids[0])
    await lab.passes(70.0)
    assert await clients["a"].list_compactors(admin) == []


@simulated
async def test_a_report_names_the_branches_that_run(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        lab.graveler.failing.add("CompactBranch")
        await lab.put_and_delete(30)
        seen = []

        def works() -> bool:
            report = compactor.compactor.report("x", 1_000_000)
            seen.append([each.branch_id for each in report.running])
            return ["main"] in seen and report.failures > 0

        await lab.until(works)
        report = compactor.compactor.report("x", 1_000_000)
        assert (report.failing_count, report.due_count) == (1, 1)
        assert report.start_time.seconds == 1


@simulated
async def test_reports_are_bounded(lab: CompactorLab) -> None:
    admin, client = lab.service.admin, StagingEventClient(lab.wires["a"])
    for wrong in (
        event_pb.CompactorReport(),
        event_pb.CompactorReport(compactor_id="x" * 9000),
    ):
        with pytest.raises(TarnError) as caught:
            await client.watch_staging(admin, b"", 0, 0, wrong)
        assert caught.value.reason is Reason.INVALID_ARGUMENT
    for number in range(70):
        report = event_pb.CompactorReport(compactor_id=f"{number:02}")
        await client.watch_staging(admin, b"", 0, 0, report)
    told = await GravelerClient(lab.wires["a"]).list_compactors(admin)
    assert [each.report.compactor_id for each in told] == [f"{n:02}" for n in range(6, 70)]


@simulated
async def test_failures_are_repeated_with_growing_pauses(lab: CompactorLab) -> None:
    lab.graveler.failing.add("CompactBranch")
    async with lab.compactor() as compactor:
        await lab.put_and_delete(30)
        await lab.passes(120.0)
        attempts = lab.graveler.count("CompactBranch")
        assert 3 <= attempts <= 6, "5 + 10 + 20 + 40 s of pauses"
        assert compactor.compactor.totals.failures == attempts
        async with lab.client(compactor) as client:
            (found,) = (await client.status(lab.service.admin)).branches
            assert found.state == pb.BRANCH_STATE_WAITING
            assert "the test cut the wire" in found.reason
        lab.graveler.failing.clear()
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)


@simulated
async def test_a_branch_that_is_committed_all_the_time_is_left_alone(lab: CompactorLab) -> None:
    limits = replace(LIMITS, commit_interval_s=30.0)
    async with lab.compactor(limits) as compactor:
        for name in ("one", "two", "three"):
            await lab.put_and_delete(30, name=name)
            await lab.service.graveler.create_commit(lab.service.admin, "lake", "main", name)
            await lab.passes(3.0)
        before = compactor.compactor.totals.compactions
        await lab.put_and_delete(30, name="four")
        await lab.passes(20.0)
        assert compactor.compactor.totals.compactions == before
        async with lab.client(compactor) as client:
            (found,) = (await client.status(lab.service.admin)).branches
            assert found.state == pb.BRANCH_STATE_WAITING
            assert "commit" in found.reason
        await lab.until(lambda: compactor.compactor.totals.compactions == before + 1)


@simulated
async def test_a_compactor_that_stops_starts_nothing_more(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        compactor.compactor.stop()
        await lab.put_and_delete(30)
        await lab.passes(60.0)
        assert lab.graveler.count("CompactBranch") == 0


@simulated
async def test_two_compactors_share_the_branches(lab: CompactorLab) -> None:
    async with lab.compactor(seed=1) as one, lab.compactor(seed=2) as two:
        await lab.passes(5.0)
        await lab.branches_with_deletes({f"b{number}": 25 for number in range(6)})
        totals = (one.compactor.totals, two.compactor.totals)
        await lab.until(lambda: sum(each.compactions for each in totals) >= 6)
        await lab.passes(30.0)
        assert sum(each.compactions for each in totals) == 6, "each branch is compacted once"
        assert sum(each.failures for each in totals) == 0
        for number in range(6):
            assert await lab.tombstones(f"b{number}") == 0


@simulated
async def test_a_deleted_branch_is_forgotten(lab: CompactorLab) -> None:
    admin = lab.service.admin
    await lab.service.graveler.create_branch(admin, "lake", "short", "main")
    async with lab.compactor() as compactor:
        lab.graveler.failing.add("CompactBranch")
        await lab.put_and_delete(30, "short")
        await lab.until(lambda: compactor.compactor.totals.failures > 0)
        await lab.service.graveler.delete_branch(admin, "lake", "short")
        lab.graveler.failing.clear()
        await lab.passes(60.0)
        assert compactor.counts.view(("lake", "short"), 0.0).rows == 0
        assert ("lake", "short") not in compactor.compactor.work or (
            not compactor.compactor.work["lake", "short"].is_running
        )


@simulated
async def test_writes_go_on_during_compactions(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:

        async def write() -> None:
            for number in range(60):
                await lab.service.put(f"live/{number:03}", number)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(lab.put_and_delete(30))
            group.create_task(write())
            group.create_task(lab.until(lambda: compactor.compactor.totals.compactions >= 1))
        assert [each for each in await lab.listed() if each.startswith("live/")] == [
            f"live/{number:03}" for number in range(60)
        ]
        assert await lab.service.size("main", "live/059") == 59


@simulated
async def test_failures_of_a_branch_that_is_clean_again_are_forgotten(lab: CompactorLab) -> None:
    """Else old failures fill the list of branches that are worked on, and no other branch gets a place."""
    lab.graveler.failing.add("CompactBranch")
    async with lab.compactor() as compactor:
        await lab.put_and_delete(30)
        await lab.until(lambda: compactor.compactor.totals.failures == 2)
        await lab.service.graveler.create_commit(lab.service.admin, "lake", "main", "clean")
        await lab.passes(60.0)
        assert list(compactor.compactor.work) == []


@simulated
async def test_a_lost_file_is_a_failure_and_not_a_deleted_branch(lab: CompactorLab) -> None:
    lab.graveler.failing.add("CompactBranch")
    lab.graveler.error = TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, "no block r1")
    async with lab.compactor() as compactor:
        await lab.put_and_delete(30)
        await lab.until(lambda: compactor.compactor.totals.failures == 2)
        assert compactor.counts.view(("lake", "main"), 0.0).tombstones == 30
        assert compactor.compactor.work["lake", "main"].error == "no block r1"


@simulated
async def test_a_replica_that_restarted_while_it_was_not_resolved_leads_to_a_listing(
    lab: CompactorLab,
) -> None:
    """The counts of its earlier run in the meantime never arrived."""
    async with lab.compactor() as compactor:
        await lab.until(lambda: len(compactor.sensor.replicas) == 2)
        wire = lab.wires.pop("b")
        wires = dict(lab.wires)
        await lab.until(lambda: list(compactor.sensor.replicas) == ["a"])
        await lab.passes(60.0)
        lab.wires["a"].is_cut = True
        async with lab.service.another_replica() as again:
            through_b = GravelerClient(wire.transport)
            for number in range(30):
                await lab.service.put(f"two/{number}", 1)
            await lab.service.graveler.create_commit(lab.service.admin, "lake", "main", "put")
            for number in range(30):
                await through_b.unstage(lab.service.admin, "lake", "main", f"two/{number}")
            wire.transport = again.transport
            lab.wires.update(wires, b=wire)
            await lab.until(lambda: compactor.compactor.totals.compactions == 1)
            assert compactor.sensor.replicas["b"].gaps == 1
            wire.is_cut = True


@simulated
async def test_a_branch_that_cannot_be_measured_delays_no_other(lab: CompactorLab) -> None:
    await lab.branches_with_deletes({"b1": 30, "b2": 30, "b3": 30})
    for wire in lab.wires.values():
        wire.is_cut = True
    lab.graveler.failing.add("MeasureStaging")
    lab.graveler.failing_branch = "b1"
    async with lab.compactor() as compactor:
        await lab.until(lambda: compactor.compactor.totals.compactions == 2, 20.0)
        await lab.passes(300.0)
        assert 5 <= lab.graveler.count("MeasureStaging", "b1") <= 20, "30 s of pauses at last"
        lab.graveler.failing.clear()
        await lab.until(lambda: compactor.compactor.totals.compactions == 3, 60.0)


@simulated
async def test_a_listing_that_remembers_few_measurements_comes_to_an_end(lab: CompactorLab) -> None:
    admin = lab.service.admin
    for number in range(4):
        await lab.service.graveler.create_branch(admin, "lake", f"b{number}", "main")
        await lab.service.put("a", 1, f"b{number}")
    async with lab.compactor() as compactor:
        compactor.sensor._measured_at._size_max = 2
        await lab.passes(60.0)
        assert len(compactor.sensor._measured_at) <= 2
        assert len(compactor.counts.unmeasured) == 0
        for number in range(4):
            rows = compactor.counts.view(("lake", f"b{number}"), 0.0).rows
            assert rows in (1, 2), "what replicas report during a measurement is added to it"


@simulated
async def test_an_object_that_is_deleted_again_and_again_is_one_delete(lab: CompactorLab) -> None:
    """The counts of the replicas add up all of them; the measurement before a compaction tells the truth."""
    graveler, admin = lab.service.graveler, lab.service.admin
    async with lab.compactor() as compactor:
        await lab.service.put("a", 1)
        await graveler.create_commit(admin, "lake", "main", "a")
        for _ in range(30):
            await lab.service.put("a", 2)
            await graveler.unstage(admin, "lake", "main", "a")
        await lab.passes(60.0)
        assert lab.graveler.count("MeasureStaging", "main") >= 1
        assert lab.graveler.count("CompactBranch") == 0
        assert compactor.counts.view(("lake", "main"), 0.0).tombstones == 1


@simulated
async def test_the_branches_with_the_most_deletes_are_compacted_first(lab: CompactorLab) -> None:
    admin = lab.service.admin
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        await client.pause(admin, 600)
        await lab.branches_with_deletes({f"b{number}": 21 + number for number in range(5)})
        await lab.passes(10.0)
        await client.resume(admin)
        await lab.until(lambda: compactor.compactor.totals.compactions == 5)
        compacted = [branch for method, branch in lab.graveler.calls if method == "CompactBranch"]
        assert set(compacted[:2]) == {"b4", "b3"}
        assert set(compacted[2:4]) == {"b2", "b1"}


@simulated
async def test_no_more_compactions_run_at_a_time_than_are_allowed(lab: CompactorLab) -> None:
    admin = lab.service.admin
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        await client.pause(admin, 600)
        await lab.branches_with_deletes({f"b{number}": 25 for number in range(5)})
        await lab.passes(10.0)
        await client.resume(admin)
        await lab.until(lambda: compactor.compactor.totals.compactions == 5)
        assert lab.graveler.compactions_most == 2


@simulated
async def test_branches_that_find_no_place_are_compacted_later(lab: CompactorLab) -> None:
    import tarn_compactor.compactor as module

    admin, most, places = lab.service.admin, 0, module._WORK_MAX
    async with lab.compactor() as compactor, lab.client(compactor) as client:
        await client.pause(admin, 600)
        await lab.branches_with_deletes({f"b{number}": 25 for number in range(3)})

        def all_compacted() -> bool:
            nonlocal most
            most = max(most, len(compactor.compactor.work))
            return compactor.compactor.totals.compactions == 3

        compactor.compactor.work.clear()
        compactor.compactor._due.clear()
        module._WORK_MAX = 1
        try:
            await client.resume(admin)
            await lab.until(all_compacted)
        finally:
            module._WORK_MAX = places
        assert most == 1


@simulated
async def test_a_token_that_auth_refuses_is_asked_for_again(lab: CompactorLab) -> None:
    """Another error does not make the compactor ask again."""
    clock = lab.service.clock
    asked = 0

    class Counted:
        async def authorize_service(self, call: Call, service: str) -> Grant:
            nonlocal asked
            asked += 1
            return await lab.service.auth.authorize_service(call, service)

    access = Access(cast("AuthClient", Counted()), clock)
    calls = ServiceCalls(access, ServiceName.COMPACTOR, clock, SeededIds(clock, seed=1))
    await calls.call(1.0)
    assert asked == 1
    calls.failed(TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "down"))
    await calls.call(1.0)
    assert asked == 1
    calls.failed(TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, "another secret"))
    await calls.call(1.0)
    assert asked == 2


@simulated
async def test_a_protected_branch_of_a_read_only_repository_is_compacted(lab: CompactorLab) -> None:
    graveler, admin = lab.service.graveler, lab.service.admin
    await lab.service.put("kept", 1)
    await lab.put_and_delete(30)
    kinds = ["CHANGE_KIND_WRITE", "CHANGE_KIND_COMMIT", "CHANGE_KIND_DELETE", "CHANGE_KIND_FORCE"]
    rule = settings_service_pb2.Protection(pattern="main", blocked=kinds)
    etag = (await graveler.get_settings(admin, "lake")).etag
    await graveler.set_rules(admin, "lake", protections=[rule], hidden_patterns=[], if_match=etag)
    await graveler.set_read_only(admin, "lake", True)
    async with lab.compactor() as compactor:
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)
    assert await lab.tombstones() == 0
    assert await lab.listed() == ["kept"]
    with pytest.raises(TarnError):
        await graveler.create_commit(admin, "lake", "main", "still blocked")


@simulated
async def test_the_metrics_of_the_operators_page_count_the_work(lab: CompactorLab) -> None:
    async with lab.compactor() as compactor:
        for number in range(10):
            await lab.service.put(f"kept/{number}", 1)
        await lab.put_and_delete(30)
        await lab.service.put("new", 1)
        for _ in range(3):
            await lab.listed()
        await lab.until(lambda: compactor.compactor.totals.compactions == 1)
        await lab.passes(2.0)
        totals = compactor.compactor.totals
    names = [metric.name for metric in TABLE if metric.name.startswith(("compaction.", "listing."))]
    names.remove("compaction.duration")
    names += ["compaction.duration.count", "compaction.duration.sum"]
    found = {name: sum(value for _, value in lab.meters.samples(name)) for name in names}
    attempts = [each for each in lab.meters.samples("compaction.attempts") if each[1]]
    assert attempts == [({"outcome": "compacted"}, 1)]
    assert found["compaction.duration.count"] == 1
    assert found["compaction.rows_read"] == totals.rows_read == 31
    assert found["compaction.tombstones"] == totals.tombstones == 30
    assert found["compaction.sealed_tokens"] == totals.sealed_tokens == 1
    # For 11 objects, each of the three listings read 30 tombstones and the entries that they hide.
    assert found["listing.rows_returned"] == 3 * 11
    assert found["listing.rows_read"] >= 3 * (11 + 30 + 30)
    assert all(count > 0 for name, count in found.items() if name != "compaction.duration.sum")
