"""Tasks over the real service: starts, results, waiting, lists."""

import pytest
from graveler_service import Service, reason_of
from lake import Running, reached
from lake_tasks import (
    LEASE_S,
    MAIN_KEY,
    a_merge,
    done,
    handler_of,
    head,
    look,
    merges_of,
    repository_of,
    task_id,
    ticks,
)

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId
from tarn.core.task import RETENTION_US
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn_graveler.handlers.task_works import MADE_BY_TASK, RESULT_BYTES_MAX, _fitting
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import task_service_pb2 as pb


@pytest.fixture
async def lake(service: Service) -> Service:
    """A repository with a branch `side` that has a commit more than `main`."""
    await service.graveler.create_branch(service.admin, "lake", "side", "main")
    await service.put("a", 1, "side")
    await service.graveler.create_commit(service.admin, "lake", "side", "a")
    return service


async def test_a_merge_as_a_task_gives_the_commit(lake: Service) -> None:
    task = await lake.graveler.start_merge(lake.admin, a_merge(message="m"))
    task = await done(lake, task.task_id)
    assert task.state == pb.TASK_STATE_SUCCEEDED
    head = await lake.graveler.get_commit(lake.admin, "lake", "main")
    assert (task.merge.commit.commit_id, head.message) == (head.commit_id, "m")
    assert head.metadata[MADE_BY_TASK] == task.task_id
    assert task.run_count == 1
    assert await lake.size("main", "a") == 1
    assert (task.done_count, task.total_count) == (1, 1)


async def test_a_refused_merge_fails_its_task_with_the_same_reason(lake: Service) -> None:
    await lake.graveler.merge(lake.admin, "lake", "main", "side")
    before = await head(lake)
    task = await lake.graveler.start_merge(lake.admin, a_merge())
    task = await done(lake, task.task_id)
    assert task.state == pb.TASK_STATE_FAILED
    assert task.error.reason == Reason.NOTHING_TO_MERGE
    assert await head(lake) == before


async def test_a_preview_as_a_task_equals_the_preview(lake: Service) -> None:
    expected = await lake.graveler.preview_merge(lake.admin, "lake", "main", "side")
    wish = merge_pb.PreviewMergeRequest(
        repository_id="lake", destination_ref="main", source_ref="side"
    )
    task = await lake.graveler.start_preview(lake.admin, wish)
    task = await done(lake, task.task_id)
    assert task.preview == expected
    assert expected.counts.added_count == 1


# ---- starts that are sent again


@pytest.mark.parametrize("applied", [True, False])
async def test_a_start_whose_answer_was_lost_starts_one_merge(lake: Service, applied: bool) -> None:
    name = task_id(lake)
    lake.replicas.kv.lose("set_if", RepositoryKeys.task(name), applied=applied)
    first = await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await done(lake, name)
    again = await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    assert first.task_id == again.task_id == name
    assert again.state == pb.TASK_STATE_SUCCEEDED
    assert len(await merges_of(lake, name)) == 1


async def test_a_start_is_found_again_after_its_refs_are_gone(lake: Service) -> None:
    name = task_id(lake)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await done(lake, name)
    await lake.graveler.delete_branch(lake.admin, "lake", "side")
    lake.clock.advance(3600)  # the id is not of now any more
    again = await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    assert again.state == pb.TASK_STATE_SUCCEEDED


async def test_a_task_id_starts_one_task_only(lake: Service) -> None:
    name = task_id(lake)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    other_work = lake.graveler.start_merge(lake.admin, a_merge(squash=True), task_id=name)
    assert await reason_of(other_work) is Reason.TASK_EXISTS
    ann = await lake.as_user("ann", "Developer")
    assert (
        await reason_of(lake.graveler.start_merge(ann, a_merge(), task_id=name))
        is Reason.TASK_EXISTS
    )


async def test_a_start_that_was_given_up_cannot_land(lake: Service, running: Running) -> None:
    """Otherwise the task would exist without a look at it, and nothing would end it if its replica died."""
    name = task_id(lake)
    gate = lake.replicas.kv.hold("set_if", RepositoryKeys.task(name))
    start = running.start(lake.graveler.start_merge(lake.admin, a_merge(), task_id=name))
    await reached(gate)
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)
    gate.open()
    assert await reason_of(start) is Reason.UNAVAILABLE
    assert (
        await reason_of(lake.graveler.get_task(lake.admin, "lake", name)) is Reason.TASK_NOT_FOUND
    )
    assert not (await lake.graveler.list_tasks(lake.admin, "lake")).tasks


@pytest.mark.parametrize("bad", ["x", "0" * 32, "F" * 32, "0" * 12 + "7" + "0" * 19])
async def test_an_id_must_be_a_uuid_of_now(lake: Service, bad: str) -> None:
    start = lake.graveler.start_merge(lake.admin, a_merge(), task_id=bad)
    assert await reason_of(start) is Reason.INVALID_ARGUMENT


# ---- waiting, lists (permissions: `test_task_access.py`, limits: `test_task_quotas.py`)


async def test_a_wait_ends_with_the_task(lake: Service, running: Running) -> None:
    name = task_id(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(gate)
    wait = running.start(lake.graveler.wait_task(lake.admin, "lake", name, timeout_ms=20_000))
    await ticks()
    gate.open()
    await ticks()
    lake.clock.advance(1)
    assert (await wait).state == pb.TASK_STATE_SUCCEEDED


async def test_a_wait_ends_after_its_time(lake: Service, running: Running) -> None:
    name = task_id(lake)
    gate = lake.replicas.kv.hold("set_if", MAIN_KEY)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    await reached(gate)
    wait = running.start(lake.graveler.wait_task(lake.admin, "lake", name, timeout_ms=2_000))
    for _ in range(30):
        await ticks(20)
        lake.clock.advance(0.1)
    assert (await wait).state == pb.TASK_STATE_RUNNING
    gate.open()
    await done(lake, name)


async def test_an_ended_task_is_kept_for_a_day_and_its_rows_are_dropped_later(
    lake: Service,
) -> None:
    task = await lake.graveler.start_merge(lake.admin, a_merge())
    await done(lake, task.task_id)
    runner, repository = handler_of(lake, ".TaskService")._runner, await repository_of(lake)
    lake.clock.advance(RETENTION_US / 1_000_000 - 1)
    await runner.get(repository, task.task_id)
    assert len((await runner.page(repository, None, "", 10)).tasks) == 1
    lake.clock.advance(2)
    assert await reason_of(runner.get(repository, task.task_id)) is Reason.TASK_NOT_FOUND
    assert not (await runner.page(repository, None, "", 10)).tasks
    day = int(task.task_id[:12], 16) // 86_400_000
    keys = InstallationKeys("test").of_repository(RepositoryId("lake"), repository.instance_uid)
    rows = keys.tasks(day)
    assert await lake.replicas.kv.scan(rows, b"", None, 10)
    for _ in range(4):
        await look(lake)
        lake.clock.advance(86_400)
    await look(lake)
    assert not await lake.replicas.kv.scan(rows, b"", None, 10)


async def test_a_list_has_pages_and_only_the_tasks_of_the_caller(lake: Service) -> None:
    ann = await lake.as_user("ann", "Developer")
    mine = []
    for number in range(3):
        mine.append(task_id(lake, number))
        await lake.graveler.start_merge(lake.admin, a_merge(), task_id=mine[-1])
    other = task_id(lake, 9)
    await lake.graveler.start_merge(ann, a_merge(), task_id=other)
    found, token = [], ""
    while True:
        page = await lake.graveler.list_tasks(lake.admin, "lake", page_size=2, page_token=token)
        found += [each.task_id for each in page.tasks]
        token = page.next_page_token
        if not token:
            break
    assert found == mine
    everything = await lake.graveler.list_tasks(lake.admin, "lake", all_users=True)
    assert [each.task_id for each in everything.tasks] == [*mine, other]


async def test_a_list_holds_no_requests_and_results_and_leaves_out_a_damaged_task(
    lake: Service,
) -> None:
    """A user's thousand tasks would fill the memory; a damaged one would stop every list for days."""
    for number in (1, 2):
        await lake.graveler.start_merge(lake.admin, a_merge(), task_id=task_id(lake, number))
        await done(lake, task_id(lake, number))
    repository = await repository_of(lake)
    keys = InstallationKeys("test").of_repository(repository.repository_id, repository.instance_uid)
    rows, key = keys.tasks(int(task_id(lake)[:12], 16) // 86_400_000), keys.task(task_id(lake))
    (found,) = await lake.replicas.kv.get_many(rows, [key])
    assert found is not None
    await lake.replicas.kv.set_if(rows, key, b"\xff", found.predicate)
    runner = handler_of(lake, ".TaskService")._runner
    (task,) = (await runner.page(repository, None, "", 10)).tasks
    assert (task.task_id, task.request, task.result) == (task_id(lake, 2), b"", b"")
    assert task.failure is not None  # nothing to merge
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=task_id(lake, 3))


def test_a_preview_that_is_too_long_is_shortened_and_says_where_it_goes_on() -> None:
    conflicts = [
        merge_pb.MergeConflict(path=f"{n:04}", base_entry=b"x" * 1_000) for n in range(999)
    ]
    answer = merge_pb.PreviewMergeResponse(conflicts=conflicts, conflict_count=999)
    answer.prefixes.add(prefix="kept/")
    kept = _fitting(answer)
    assert 0 < kept.ByteSize() <= RESULT_BYTES_MAX
    assert kept.next_after == kept.conflicts[-1].path
    assert (kept.conflict_count, len(kept.prefixes)) == (999, 1)


async def test_a_start_that_waits_returns_the_ended_task(lake: Service) -> None:
    """Although the clock stands still: the wait does not end by a pause, but with the task."""
    started = await lake.graveler.start_merge(lake.admin, a_merge(), timeout_ms=1_000)
    assert started.state == pb.TASK_STATE_SUCCEEDED
    assert started.merge.commit.commit_id == await head(lake)
    wish = merge_pb.PreviewMergeRequest(
        repository_id="lake", destination_ref="main", source_ref="side"
    )
    previewed = await lake.graveler.start_preview(lake.admin, wish, timeout_ms=1_000)
    assert previewed.preview.source_commit_id
    refused = lake.graveler.start_merge(lake.admin, a_merge(), timeout_ms=-1)
    assert await reason_of(refused) is Reason.INVALID_ARGUMENT


async def test_a_start_whose_wait_fails_is_told_as_started(
    lake: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNAVAILABLE would mean that no merge is made."""
    runner = handler_of(lake, ".TaskService")._runner

    async def wait(*_: object) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is away")

    monkeypatch.setattr(runner, "wait", wait)
    started = await lake.graveler.start_merge(lake.admin, a_merge(), timeout_ms=1_000)
    assert (await done(lake, started.task_id)).state == pb.TASK_STATE_SUCCEEDED


async def test_a_long_request_and_its_result_have_rows_of_their_own(lake: Service) -> None:
    """Every list reads the records of three days."""
    name, graveler, wish = task_id(lake), lake.graveler, a_merge(message="m" * 10_000)
    made = await graveler.start_merge(lake.admin, wish, task_id=name, timeout_ms=1_000)
    assert made.merge.commit.message == wish.message
    repository = await repository_of(lake)
    keys = InstallationKeys("test").of_repository(repository.repository_id, repository.instance_uid)
    rows = keys.tasks(int(name[:12], 16) // 86_400_000)
    (record,) = await lake.replicas.kv.get_many(rows, [keys.task(name)])
    assert record is not None
    assert len(record.value) < 1_000
    others = [
        await graveler.start_merge(lake.admin, wish, task_id=name),
        await graveler.get_task(lake.admin, "lake", name),
        await graveler.wait_task(lake.admin, "lake", name),
        await graveler.cancel_task(lake.admin, "lake", name),
    ]
    assert others == [made] * 4


async def test_a_task_whose_result_is_damaged_is_corrupt(lake: Service) -> None:
    name, wish = task_id(lake), a_merge(message="m" * 10_000)
    await lake.graveler.start_merge(lake.admin, wish, task_id=name, timeout_ms=1_000)
    repository = await repository_of(lake)
    keys = InstallationKeys("test").of_repository(repository.repository_id, repository.instance_uid)
    rows, kv = keys.tasks(int(name[:12], 16) // 86_400_000), lake.replicas.kv
    for key, _ in await kv.scan(rows, b"body/", None, 10):
        if not key.startswith(b"body/"):
            continue
        (found,) = await kv.get_many(rows, [key])
        assert found is not None
        await kv.set_if(rows, key, b"other", found.predicate)
    read = lake.graveler.get_task(lake.admin, "lake", name)
    assert await reason_of(read) is Reason.DATA_CORRUPT
