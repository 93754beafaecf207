"""Commits, reverts, cherry-picks and merges of pull requests as tasks: made once, whichever replica dies when."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from graveler_service import Service, reason_of
from lake import reached
from lake_tasks import LEASE_S, MAIN_KEY, done, head, kill, look, task_id, ticks
from tests.support.faults.gates import HeldOperation

from tarn.core.errors import Reason
from tarn.kv.keys import RepositoryKeys
from tarn_graveler.handlers.task_works import MADE_BY_TASK
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pull_pb
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb
from tarn_proto.graveler.v1 import task_service_pb2 as pb


@dataclass(frozen=True)
class Case:
    """A kind of task that gives `main` a commit with the object `a`.

    Attributes:
        start: starts it under an id.
        seals: compare-and-sets of the branch record before the one that publishes.
    """

    start: Callable[[Service, str], Awaitable[pb.Task]]
    seals: int

    def publishing(self, lake: Service, *, after: bool = False) -> HeldOperation:
        """Returns a gate at the compare-and-set that publishes."""
        return lake.replicas.kv.hold("set_if", MAIN_KEY, after=after, number=self.seals + 1)


async def start_commit(service: Service, name: str, timeout_ms: int = 0) -> pb.Task:
    wish = commit_pb.CreateCommitRequest(repository_id="lake", branch_id="main", message="m")
    return await service.graveler.start_commit(
        service.admin, wish, task_id=name, timeout_ms=timeout_ms
    )


async def start_merge(service: Service, name: str, timeout_ms: int = 0) -> pb.Task:
    wish = pull_pb.MergePullRequestRequest(
        repository_id="lake", pull_request_id="1", message="m", metadata={MADE_BY_TASK: name}
    )
    return await service.graveler.start_pull_request_merge(
        service.admin, wish, task_id=name, timeout_ms=timeout_ms
    )


async def start_revert(service: Service, name: str, **more: Any) -> pb.Task:
    wish = a_revert(message="m", **more)
    return await service.graveler.start_revert(service.admin, wish, task_id=name)


async def start_squash(service: Service, name: str) -> pb.Task:
    return await start_revert(service, name, since_ref="main~1", squash=True)


async def start_pick(service: Service, name: str, **more: Any) -> pb.Task:
    wish = a_pick(message="m", **more)
    return await service.graveler.start_cherry_pick(service.admin, wish, task_id=name)


def a_revert(**more: Any) -> merge_pb.RevertRequest:
    return merge_pb.RevertRequest(repository_id="lake", branch_id="main", ref="main", **more)


def a_pick(**more: Any) -> merge_pb.CherryPickRequest:
    return merge_pb.CherryPickRequest(repository_id="lake", branch_id="main", ref="side", **more)


CASES = {
    "commit": Case(start_commit, 1),
    "pull": Case(start_merge, 0),
    "revert": Case(start_revert, 0),
    "squash": Case(start_squash, 0),
    "pick": Case(start_pick, 0),
}


@pytest.fixture(params=CASES)
async def case(request: pytest.FixtureRequest, service: Service) -> Case:
    """What is to be committed is uncommitted on `main`; or on another branch, with a pull request; or undone there."""
    graveler, admin, kind = service.graveler, service.admin, request.param
    if kind == "commit":
        await service.put("a", 1)
    elif kind in ("revert", "squash"):
        await changed_twice(service)
    else:
        await graveler.create_branch(admin, "lake", "side", "main")
        await service.put("a", 1, "side")
        await graveler.create_commit(admin, "lake", "side", "a")
    if kind == "pull":
        await graveler.create_pull_request(admin, "lake", "side", "main", "A")
    return CASES[kind]


async def changed_twice(service: Service, branch: str = "main") -> None:
    """Gives a branch a commit with the object `a`, and one that changes it."""
    for size in (1, 2):
        await service.put("a", size, branch)
        await service.graveler.create_commit(service.admin, "lake", branch, f"a is {size}")


async def made_by(service: Service, name: str) -> list[str]:
    """Returns the commits of `main` that a task has made."""
    page = await service.graveler.list_commits(service.admin, "lake", "main")
    return [each.commit_id for each in page.commits if each.metadata.get(MADE_BY_TASK) == name]


async def test_short_work_is_answered_with_its_commit(service: Service, case: Case) -> None:
    name = task_id(service)
    await case.start(service, name)
    task = await done(service, name)
    assert task.state == pb.TASK_STATE_SUCCEEDED
    assert (task.commit.message, task.commit.commit_id) == ("m", await head(service))
    assert await service.size("main", "a") == 1
    # A start that is sent again starts nothing.
    assert (await case.start(service, name)).commit.commit_id == task.commit.commit_id
    assert await made_by(service, name) == [task.commit.commit_id]


@pytest.mark.parametrize("is_made", [False, True])
async def test_another_replica_ends_the_work_of_one_that_died(
    service: Service, case: Case, *, is_made: bool
) -> None:
    name = task_id(service)
    gate = case.publishing(service, after=is_made)
    await case.start(service, name)
    await reached(gate)
    await kill(service)
    service.clock.advance(LEASE_S + 1)
    async with service.another_replica() as other:
        await look(other)
        task = await done(other, name)
    assert (task.state, task.run_count) == (pb.TASK_STATE_SUCCEEDED, 2)
    assert await made_by(service, name) == [task.commit.commit_id]
    assert await service.size("main", "a") == 1


async def test_a_paused_replica_makes_nothing_after_its_task_was_told_as_cancelled(
    service: Service, case: Case
) -> None:
    name, before = task_id(service), await head(service)
    gate = case.publishing(service)
    await case.start(service, name)
    await reached(gate)
    beat = service.replicas.kv.hold("get_many", RepositoryKeys.task(name))
    service.clock.advance(5)
    await reached(beat)  # it does not renew its lease
    await service.graveler.cancel_task(service.admin, "lake", name)
    service.clock.advance(LEASE_S + 1)
    async with service.another_replica() as other:
        await look(other)
        task = await done(other, name)
        assert (task.state, task.run_count) == (pb.TASK_STATE_CANCELLED, 2)
        gate.open()
        await asyncio.sleep(0.05)  # its beat does not stop it
        assert await head(service) == before
        beat.open()
        await ticks()
    assert await head(service) == before
    assert (await done(service, name)).state == pb.TASK_STATE_CANCELLED


async def test_a_rule_that_was_set_since_the_start_refuses_it(service: Service, case: Case) -> None:
    name = task_id(service)
    # The run waits for its place until the rule is there.
    claim = service.replicas.kv.hold("set_if", RepositoryKeys.task(name), after=True, number=2)
    await case.start(service, name)
    await reached(claim)
    kinds = [settings_pb.CHANGE_KIND_COMMIT, settings_pb.CHANGE_KIND_MERGE]
    blocked = settings_pb.Protection(pattern="main", blocked=kinds)
    graveler, admin = service.graveler, service.admin
    etag = (await graveler.get_settings(admin, "lake")).etag
    await graveler.set_rules(
        admin, "lake", protections=[blocked], hidden_patterns=[], if_match=etag
    )
    before = await head(service)
    claim.open()
    task = await done(service, name)
    assert (task.state, task.error.reason) == (pb.TASK_STATE_FAILED, Reason.BRANCH_PROTECTED)
    assert await head(service) == before


async def test_a_commit_does_not_go_to_a_later_branch_of_the_name(service: Service) -> None:
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    await service.put("a", 1, "dev")
    name = task_id(service)
    claim = service.replicas.kv.hold("set_if", RepositoryKeys.task(name), after=True, number=2)
    wish = commit_pb.CreateCommitRequest(repository_id="lake", branch_id="dev", message="m")
    await service.graveler.start_commit(service.admin, wish, task_id=name)
    await reached(claim)
    await service.graveler.delete_branch(service.admin, "lake", "dev")
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    await service.put("b", 1, "dev")
    claim.open()
    task = await done(service, name)
    assert (task.state, task.error.reason) == (pb.TASK_STATE_FAILED, Reason.BRANCH_NOT_FOUND)


async def test_a_revert_does_not_go_to_a_later_branch_of_the_name(service: Service) -> None:
    graveler, admin, name = service.graveler, service.admin, task_id(service)
    await changed_twice(service)
    await graveler.create_branch(admin, "lake", "dev", "main")
    claim = service.replicas.kv.hold("set_if", RepositoryKeys.task(name), after=True, number=2)
    wish = merge_pb.RevertRequest(repository_id="lake", branch_id="dev", ref="main")
    await graveler.start_revert(admin, wish, task_id=name)
    await reached(claim)
    await graveler.delete_branch(admin, "lake", "dev")
    await graveler.create_branch(admin, "lake", "dev", "main")
    claim.open()
    task = await done(service, name)
    assert (task.state, task.error.reason) == (pb.TASK_STATE_FAILED, Reason.BRANCH_NOT_FOUND)
    assert await service.size("dev", "a") == 2


async def test_a_range_is_reverted_by_a_commit_each_with_the_commits_of_the_start(
    service: Service,
) -> None:
    graveler, admin, name = service.graveler, service.admin, task_id(service)
    await changed_twice(service)
    await graveler.create_tag(admin, "lake", "v1", "main~2")
    claim = service.replicas.kv.hold("set_if", RepositoryKeys.task(name), after=True, number=2)
    await start_revert(service, name, since_ref="v1")
    await reached(claim)
    await graveler.delete_tag(admin, "lake", "v1")  # the refs of the start were resolved
    await service.put("b", 1)
    await graveler.create_commit(admin, "lake", "main", "b")
    claim.open()
    task = await done(service, name)
    assert (task.state, task.subject) == (pb.TASK_STATE_SUCCEEDED, "Revert v1..main on main")
    made = await made_by(service, name)
    assert (len(made), made[0]) == (2, task.commit.commit_id)
    assert await reason_of(service.size("main", "a")) is Reason.ENTRY_NOT_FOUND
    assert await service.size("main", "b") == 1


async def test_what_cannot_be_done_is_refused_before_it_becomes_a_task(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "side", "main")
    wrong = {
        "ref": ("nowhere", Reason.REF_NOT_FOUND),
        "branch_id": ("nowhere", Reason.BRANCH_NOT_FOUND),
        "expected_commit_id": ("x", Reason.INVALID_ARGUMENT),
        "default_side": (7, Reason.INVALID_ARGUMENT),
    }
    for field, (value, reason) in wrong.items():
        revert, pick = a_revert(), a_pick()
        setattr(revert, field, value)
        setattr(pick, field, value)
        assert await reason_of(graveler.start_revert(admin, revert)) is reason
        assert await reason_of(graveler.start_cherry_pick(admin, pick)) is reason
    no_range = graveler.start_revert(admin, a_revert(squash=True))
    assert await reason_of(no_range) is Reason.INVALID_ARGUMENT
    assert not (await graveler.list_tasks(admin, "lake")).tasks


@pytest.mark.parametrize("is_decided", [False, True])
async def test_a_conflict_fails_the_task_unless_its_start_decides_it(
    service: Service, *, is_decided: bool
) -> None:
    await changed_twice(service)
    await service.put("a", 3)
    await service.graveler.create_commit(service.admin, "lake", "main", "a is 3")
    side = merge_pb.MERGE_SIDE_SOURCE
    choices = [merge_pb.ConflictChoice(pattern="a", side=side)] if is_decided else []
    name = task_id(service)
    wish = a_revert(choices=choices)
    wish.ref = "main~1"
    await service.graveler.start_revert(service.admin, wish, task_id=name)
    task = await done(service, name)
    assert task.error.reason == ("" if is_decided else Reason.MERGE_CONFLICT)
    assert await service.size("main", "a") == (1 if is_decided else 3)


async def test_who_may_not_change_the_branch_starts_nothing(service: Service, case: Case) -> None:
    reader = await service.as_user("eve", "Analyst")
    asked = case.start(replace(service, admin=reader), task_id(service))
    assert await reason_of(asked) is Reason.ACCESS_DENIED
