"""Runs of tasks over the real service: replicas that die or pause, lost answers, cancellation."""

import asyncio
from typing import Any

import pytest
from graveler_service import Service, reason_of
from lake import reached
from lake_tasks import (
    LEASE_S,
    MAIN_KEY,
    a_merge,
    done,
    done_record,
    handler_of,
    head,
    kill,
    look,
    merges_of,
    repository_of,
    task_id,
    ticks,
)
from tests.support.faults.gates import HeldOperation, Late

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.task import RUN_US_MAX, RUNS_MAX, TaskState
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.records.branches import BranchVersion
from tarn_proto.graveler.v1 import task_service_pb2 as pb


@pytest.fixture
async def lake(service: Service) -> Service:
    """A repository with a branch `side` that has a commit more than `main`."""
    await service.graveler.create_branch(service.admin, "lake", "side", "main")
    await service.put("a", 1, "side")
    await service.graveler.create_commit(service.admin, "lake", "side", "a")
    return service


# ---- replicas that die


async def test_another_replica_ends_the_merge_of_one_that_died_before_it(lake: Service) -> None:
    name = task_id(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(gate)
    await kill(lake)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done(other, name)
    assert (task.state, task.run_count) == (pb.TASK_STATE_SUCCEEDED, 2)
    (made,) = await merges_of(lake, name)
    assert task.merge.commit.commit_id == made.commit_id == await head(lake)


async def test_a_merge_of_a_replica_that_died_after_it_is_found(lake: Service) -> None:
    """Although the branch is dirty by now, so that a second merge would be refused."""
    name = task_id(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY, after=True)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(gate)
    await kill(lake)
    made = await head(lake)
    await lake.put("b", 2)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done(other, name)
    assert task.state == pb.TASK_STATE_SUCCEEDED
    assert task.merge.commit.commit_id == made == await head(lake)


async def test_a_merge_is_found_after_a_reset_took_it_off_the_branch(lake: Service) -> None:
    name, before = task_id(lake), await head(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY, after=True)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(gate)
    await kill(lake)
    made = await head(lake)
    await lake.graveler.move_branch(
        lake.admin, "lake", "main", before, expected_commit_id=made, force=True
    )
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done(other, name)
    assert task.merge.commit.commit_id == made
    assert await head(lake) == before  # the user's reset stays


async def test_a_fast_forward_of_a_replica_that_died_after_it_is_found(lake: Service) -> None:
    name = task_id(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY, after=True)
    await lake.graveler.start_merge(lake.admin, a_merge(fast_forward_only=True), task_id=name)
    await reached(gate)
    await kill(lake)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done(other, name)
    assert task.state == pb.TASK_STATE_SUCCEEDED
    assert task.merge.commit.commit_id == await head(lake)


def after_request(late: Late) -> Any:
    """Fits the first read of the branch's record after a compare-and-set that waits in a queue."""

    def fits(operation: str, keys: Any) -> bool:
        return operation == "get_many" and MAIN_KEY in keys and late.request is not None

    return fits


async def test_a_merge_in_doubt_is_settled_before_its_repetition_is_refused(lake: Service) -> None:
    """Its compare-and-set waits in a queue, and the read that would settle it fails; the branch becomes dirty."""
    name, kv = task_id(lake), lake.replicas.kv
    late = kv.delay(MAIN_KEY)
    kv._losses.append((after_request(late), False))
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    while kv._losses:  # noqa: ASYNC110 - the KV has no event for it
        await asyncio.sleep(0.005)
    await lake.put("b", 2)
    for _ in range(20):  # its pause begins after some ticks
        await asyncio.sleep(0.01)
        lake.clock.advance(1)
    task = await done(lake, name)
    await late.land()
    assert late.landed == (task.state == pb.TASK_STATE_SUCCEEDED)
    assert task.run_count == 1


async def test_a_merge_that_was_made_is_not_told_as_cancelled_while_it_is_settled(
    lake: Service,
) -> None:
    name, kv = task_id(lake), lake.replicas.kv
    gate = kv.hold("set_if", MAIN_KEY, after=True)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(gate)
    await kill(lake)
    await lake.graveler.cancel_task(lake.admin, "lake", name)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        seal = kv.hold("set_if", MAIN_KEY)
        await look(other)
        await reached(seal)
        lake.clock.advance(5)
        await ticks()
        seal.open()
        task = await done(other, name)
    assert task.state == pb.TASK_STATE_SUCCEEDED
    assert task.merge.commit.commit_id == await head(lake)


async def test_a_queued_merge_of_a_dead_replica_is_not_told_as_refused(lake: Service) -> None:
    """Its compare-and-set waits in a queue; meanwhile the branch becomes dirty, which refuses a second merge."""
    name, kv = task_id(lake), lake.replicas.kv
    late = kv.delay(MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    # The replica dies before it reads whether its attempt was applied.
    gate = HeldOperation(after_request(late), after=False)
    kv._gates.append(gate)
    await reached(gate)
    await kill(lake)
    await lake.put("b", 2)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done(other, name)
    await late.land()
    assert late.landed == (task.state == pb.TASK_STATE_SUCCEEDED)
    assert len(await merges_of(lake, name)) == (task.state == pb.TASK_STATE_SUCCEEDED)


async def test_a_queued_merge_is_not_told_as_cancelled_by_a_replica_that_cannot_settle_it(
    lake: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails while it changes the record; the reflog, which it can read, has no merge yet."""
    name, kv = task_id(lake), lake.replicas.kv
    late = kv.delay(MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    gate = HeldOperation(after_request(late), after=False)
    kv._gates.append(gate)
    await reached(gate)
    await kill(lake)
    await lake.graveler.cancel_task(lake.admin, "lake", name)
    lake.clock.advance(LEASE_S + 1)
    failed = asyncio.Event()
    seal = BranchHandle.seal

    async def failing(handle: BranchHandle) -> BranchVersion:
        if failed.is_set():
            return await seal(handle)
        failed.set()
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store does not answer")

    monkeypatch.setattr(BranchHandle, "seal", failing)
    async with lake.another_replica() as other:
        await look(other)
        async with asyncio.timeout(5.0):
            await failed.wait()
        for _ in range(20):  # its pause begins after some ticks
            await ticks()
            lake.clock.advance(1)
        task = await done(other, name)
    await late.land()
    assert late.landed == (task.state == pb.TASK_STATE_SUCCEEDED)
    assert len(await merges_of(lake, name)) == (task.state == pb.TASK_STATE_SUCCEEDED)


async def test_a_paused_replica_does_not_merge_after_its_task_was_told_as_cancelled(
    lake: Service,
) -> None:
    name, kv, before = task_id(lake), lake.replicas.kv, await head(lake)
    publishing = kv.hold("set_if", MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(publishing)
    beat = kv.hold("get_many", RepositoryKeys.task(name))
    lake.clock.advance(5)
    await reached(beat)  # it does not renew its lease
    await lake.graveler.cancel_task(lake.admin, "lake", name)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done(other, name)
        assert (task.state, task.run_count) == (pb.TASK_STATE_CANCELLED, 2)
        publishing.open()
        await asyncio.sleep(0.05)  # its beat does not stop it
        assert await head(lake) == before
        beat.open()
        await ticks()
    assert await head(lake) == before
    assert (await done(lake, name)).state == pb.TASK_STATE_CANCELLED


async def test_a_replica_whose_task_was_taken_over_merges_nothing_again(lake: Service) -> None:
    name, kv = task_id(lake), lake.replicas.kv
    publishing = kv.hold("set_if", MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(allow_empty=True), task_id=name)
    await reached(publishing)
    beat = kv.hold("get_many", RepositoryKeys.task(name))
    lake.clock.advance(5)
    await reached(beat)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        await done(other, name)
        publishing.open()
        beat.open()
        await ticks()
    assert len(await merges_of(lake, name)) == 1


async def test_a_lease_keeps_other_replicas_away(lake: Service) -> None:
    name = task_id(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(gate)
    async with lake.another_replica() as other:
        for _ in range(20):
            lake.clock.advance(5)
            await ticks()
            await look(other)
            await ticks()
        assert (await lake.graveler.get_task(lake.admin, "lake", name)).run_count == 1
        gate.open()
        assert (await done(lake, name)).state == pb.TASK_STATE_SUCCEEDED


async def test_a_task_that_no_run_ends_is_given_up(lake: Service) -> None:
    name = task_id(lake)
    async with lake.another_replica() as other:
        for number in range(RUNS_MAX):
            gate = lake.replicas.kv.hold("set_if", MAIN_KEY)
            if number:
                lake.clock.advance(LEASE_S + 1)
                await look(other)
            else:
                await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
            await reached(gate)
            await kill(lake)
            gate.open()
        lake.clock.advance(LEASE_S + 1)
        await look(other)
        task = await done(other, name)
    assert task.state == pb.TASK_STATE_FAILED
    assert task.error.reason == Reason.OUTCOME_UNKNOWN
    assert await merges_of(lake, name) == []


async def test_a_damaged_task_does_not_stop_the_cleaner(lake: Service) -> None:
    name = task_id(lake)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await done(lake, name)
    repository = await repository_of(lake)
    keys = InstallationKeys("test").of_repository(repository.repository_id, repository.instance_uid)
    rows = keys.tasks(int(name[:12], 16) // 86_400_000)
    (found,) = await lake.replicas.kv.get_many(rows, [keys.task(name)])
    assert found is not None
    await lake.replicas.kv.set_if(rows, keys.task(name), b"\xff", found.predicate)
    lake.clock.advance(LEASE_S + 1)
    await look(lake)


# ---- cancellation


async def test_a_cancelled_merge_changes_nothing(lake: Service) -> None:
    name, before = task_id(lake), await head(lake)
    lake.replicas.kv.hold("get_many", RepositoryKeys.SETTINGS).open()  # that of the start
    building = lake.replicas.kv.hold("get_many", RepositoryKeys.SETTINGS)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(building)
    task = await lake.graveler.cancel_task(lake.admin, "lake", name)
    assert task.cancel_requested
    lake.clock.advance(5)
    assert (await done(lake, name)).state == pb.TASK_STATE_CANCELLED
    building.open()
    await ticks()
    assert await head(lake) == before


async def test_a_merge_that_is_being_published_is_not_told_as_cancelled(lake: Service) -> None:
    name = task_id(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(gate)
    await lake.graveler.cancel_task(lake.admin, "lake", name)
    lake.clock.advance(5)
    await ticks()
    gate.open()
    task = await done(lake, name)
    assert (task.state, task.cancel_requested) == (pb.TASK_STATE_SUCCEEDED, True)
    assert task.merge.commit.commit_id == await head(lake)


async def test_a_task_that_no_run_has_begun_is_cancelled_at_once(lake: Service) -> None:
    name = task_id(lake)
    handler_of(lake, ".TaskService")._runner.works.clear()
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await ticks()
    task = await lake.graveler.cancel_task(lake.admin, "lake", name)
    assert task.state == pb.TASK_STATE_CANCELLED
    async with lake.another_replica() as other:
        lake.clock.advance(LEASE_S + 1)
        await look(other)
        await ticks()
        assert (await done(other, name)).run_count == 0


async def test_a_task_ends_after_a_day(lake: Service) -> None:
    name = task_id(lake)
    handler_of(lake, ".TaskService")._runner.works.clear()
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await ticks()
    repository = await repository_of(lake)
    lake.clock.advance(RUN_US_MAX / 1_000_000)  # tokens of callers have expired, too
    async with lake.another_replica() as other:
        await look(other)
        task = await done_record(lake, repository, name)
    assert task.failure is not None
    assert (task.state, task.failure.reason) == (TaskState.FAILED, Reason.DEADLINE_EXCEEDED)
    assert task.epoch == 1


# ---- stores that fail, rules that change


async def test_a_merge_whose_answer_was_lost_is_made_once(lake: Service) -> None:
    name = task_id(lake)
    lake.replicas.kv.lose("set_if", MAIN_KEY, applied=True)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    assert (await done(lake, name)).state == pb.TASK_STATE_SUCCEEDED
    assert len(await merges_of(lake, name)) == 1


async def test_a_rule_that_was_set_after_the_start_blocks_the_merge(
    lake: Service,
) -> None:
    name, before = task_id(lake), await head(lake)
    handler_of(lake, ".TaskService")._runner.works.clear()
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await lake.graveler.set_read_only(lake.admin, "lake", True)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done(other, name)
    assert task.error.reason == Reason.REPOSITORY_READ_ONLY
    assert await head(lake) == before


async def test_a_task_does_not_reach_a_branch_that_took_over_the_name(lake: Service) -> None:
    graveler, admin, name = lake.graveler, lake.admin, task_id(lake)
    await graveler.set_default_branch(admin, "lake", "side")
    handler_of(lake, ".TaskService")._runner.works.clear()
    await graveler.start_merge(admin, a_merge(), task_id=name)
    await graveler.delete_branch(admin, "lake", "main")
    await graveler.create_branch(admin, "lake", "main", "side~1")
    before = await head(lake)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done(other, name)
    assert task.error.reason == Reason.BRANCH_NOT_FOUND
    assert await head(lake) == before


async def test_a_task_does_not_reach_a_repository_that_took_over_the_name(lake: Service) -> None:
    name = task_id(lake)
    handler_of(lake, ".TaskService")._runner.works.clear()
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    old = await repository_of(lake)
    await lake.graveler.delete_repository(lake.admin, "lake")
    await lake.graveler.create_repository(lake.admin, "lake")
    before = await head(lake)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
        task = await done_record(other, old, name)
    assert task.failure is not None
    assert task.failure.reason is Reason.REPOSITORY_NOT_FOUND
    assert await head(lake) == before
    assert (
        await reason_of(lake.graveler.get_task(lake.admin, "lake", name)) is Reason.TASK_NOT_FOUND
    )
