"""Limits on the tasks of one user: what they count, what a start reads for them, starts that are lost or at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from graveler_service import Service, reason_of
from lake import Running, reached
from lake_tasks import (
    LEASE_S,
    a_merge,
    done,
    handler_of,
    kill,
    look,
    repository_of,
    task_id,
)

from tarn.core.errors import Reason
from tarn.core.ids import TaskId, UserId
from tarn.core.task import OPEN_MAX, STARTS_MAX, Quota, Task, TaskState, day_of_task
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import Partition
from tarn.kv.task_records import decode_quota, encode_quota, encode_task

DAY_S = 86_400


@pytest.fixture
async def lake(service: Service) -> Service:
    """A repository with a branch `side` that has a commit more than `main`. Nothing runs its tasks."""
    await service.graveler.create_branch(service.admin, "lake", "side", "main")
    await service.put("a", 1, "side")
    await service.graveler.create_commit(service.admin, "lake", "side", "a")
    handler_of(service, ".TaskService")._runner.works.clear()
    return service


async def place(lake: Service) -> tuple[Partition, bytes]:
    """Returns the partition of today's tasks, and the key of the admin's register in it."""
    repository = await repository_of(lake)
    keys = InstallationKeys("test").of_repository(repository.repository_id, repository.instance_uid)
    day = day_of_task(task_id(lake))
    assert day is not None
    root = await lake.auth.get_user(lake.admin, "root")
    return keys.tasks(day), keys.task_quota(root.user_uid)


async def quota(lake: Service) -> Quota:
    rows, key = await place(lake)
    (found,) = await lake.replicas.kv.get_many(rows, [key])
    assert found is not None
    return decode_quota(found.value)


async def start(lake: Service, number: int) -> str:
    name = task_id(lake, number)
    await lake.graveler.start_merge(lake.admin, a_merge(), task_id=name)
    return name


async def calls_of_start(lake: Service, number: int) -> Counter[tuple[str, str]]:
    """Returns how often a start calls each operation of the store on each partition."""
    lake.replicas.kv.calls.clear()
    await start(lake, number)
    return Counter(lake.replicas.kv.calls)


async def test_a_start_reads_no_records_of_other_users_and_of_ended_tasks(lake: Service) -> None:
    """Its cost follows the tasks that the user has open, not what was done in three days."""
    before = await calls_of_start(lake, 1)
    await lake.graveler.cancel_task(lake.admin, "lake", task_id(lake, 1))
    rows, key = await place(lake)
    kv, now_us = lake.replicas.kv, lake.clock.now_us()
    repository = await repository_of(lake)
    for number in range(100, 400):
        name = TaskId(task_id(lake, number))
        ended = Task(
            name, repository.repository_id, repository.instance_uid, UserId("root"), b"", (),
            "merge", "", b"", b"", now_us, state=TaskState.SUCCEEDED, end_time_us=now_us,
        )  # fmt: skip
        await kv.set_if(rows, RepositoryKeys.task(name), encode_task(ended), None)
    again = await calls_of_start(lake, 2)
    assert not [call for call in again if call[0].startswith("scan") and "/tasks/" in call[1]]
    # One read more: the task that was open at the start before.
    assert again - before == Counter({("get_many", rows.name): 1})
    assert key in [row for row, _ in await kv.scan(rows, b"user/", b"user0", 10)]


async def test_a_user_has_a_limited_number_of_open_tasks(lake: Service) -> None:
    names = [await start(lake, number) for number in range(OPEN_MAX)]
    assert await reason_of(start(lake, 99)) is Reason.OVERLOADED
    await lake.graveler.cancel_task(lake.admin, "lake", names[3])
    await start(lake, 100)
    assert await reason_of(start(lake, 101)) is Reason.OVERLOADED
    ann = await lake.as_user("ann", "Developer")
    await lake.graveler.start_merge(ann, a_merge(), task_id=task_id(lake, 102))


async def test_open_tasks_of_yesterday_count(lake: Service) -> None:
    names = [await start(lake, number) for number in range(OPEN_MAX)]
    made = await lake.auth.create_credential(lake.admin, user_id="root")
    key, secret = made.credential.access_key_id, made.secret_access_key
    lake.clock.advance(DAY_S - 60)
    now_us = lake.clock.now_us()
    session = await lake.auth.log_in(lake.anonymous, key, secret, now_us=now_us, nonce=b"n" * 16)
    later = replace(lake, admin=replace(lake.anonymous, caller_token=session.grant.caller_token))
    # In the last minutes of the day, an id may be of the next one.
    milliseconds = now_us // 1000 + 120_000
    name = f"{milliseconds:012x}7{99:019x}"
    assert day_of_task(name) != day_of_task(names[0])
    begin = later.graveler.start_merge(later.admin, a_merge(), task_id=name)
    assert await reason_of(begin) is Reason.OVERLOADED
    await lake.graveler.cancel_task(later.admin, "lake", names[0])
    await later.graveler.start_merge(later.admin, a_merge(), task_id=name)
    # And the other way round: a clock that is behind counts tasks of tomorrow.
    assert await reason_of(start(later, 100)) is Reason.OVERLOADED


async def test_a_user_has_a_limited_number_of_starts_on_one_day(lake: Service) -> None:
    rows, key = await place(lake)
    value = encode_quota(Quota(STARTS_MAX - 1))
    await lake.replicas.kv.set_if(rows, key, value, None)
    await start(lake, 1)
    await lake.graveler.cancel_task(lake.admin, "lake", task_id(lake, 1))
    assert await reason_of(start(lake, 2)) is Reason.OVERLOADED
    ann = await lake.as_user("ann", "Developer")
    await lake.graveler.start_merge(ann, a_merge(), task_id=task_id(lake, 3))


async def test_a_refused_start_writes_nothing(lake: Service) -> None:
    rows, key = await place(lake)
    await lake.replicas.kv.set_if(rows, key, encode_quota(Quota(STARTS_MAX)), None)
    lake.replicas.kv.calls.clear()
    assert await reason_of(start(lake, 1)) is Reason.OVERLOADED
    assert {operation for operation, _ in lake.replicas.kv.calls} == {"get_many"}


async def test_a_start_is_counted_after_its_look_and_the_drop_of_its_day_are_registered(
    lake: Service,
) -> None:
    """A crash in between would leave rows that nothing drops, and a start that counts although it never lands."""
    rows, _ = await place(lake)
    lake.replicas.kv.calls.clear()
    await start(lake, 1)
    operations = [
        "row" if name == rows.name else "registered"
        for operation, name in lake.replicas.kv.calls
        if (operation, name) == ("set_if", rows.name) or operation == "set_many"
    ]
    registered = operations.index("row")
    assert operations[:registered] == ["registered"] * registered
    assert operations[registered:] == ["row", "row"]  # the count, then the record


async def test_two_starts_at_once_do_not_exceed_the_limit(lake: Service, running: Running) -> None:
    """The second one counts the first one, although its record does not exist when the second one looked."""
    for number in range(OPEN_MAX - 1):
        await start(lake, number)
    _, key = await place(lake)
    gate = lake.replicas.kv.hold("set_if", key)
    late = running.start(start(lake, 50))
    await reached(gate)
    await start(lake, 51)
    gate.open()
    assert await reason_of(late) is Reason.OVERLOADED
    assert len((await quota(lake)).open_ids) == OPEN_MAX


@pytest.mark.parametrize("applied", [False, True])
async def test_a_start_is_counted_once(lake: Service, applied: bool) -> None:
    _, key = await place(lake)
    lake.replicas.kv.lose("set_if", key, applied=applied)
    name = await start(lake, 1)
    assert await quota(lake) == Quota(1, (TaskId(name),))
    await start(lake, 1)
    assert await quota(lake) == Quota(1, (TaskId(name),))


async def test_a_start_that_dies_before_its_record_is_forgotten(
    lake: Service, running: Running
) -> None:
    name = task_id(lake, 1)
    gate = lake.replicas.kv.hold("set_if", RepositoryKeys.task(name))
    dying = running.start(start(lake, 1))
    await reached(gate)
    dying.cancel()
    await kill(lake)
    await start(lake, 2)
    assert (await quota(lake)).open_ids == (name, task_id(lake, 2))
    lake.clock.advance(LEASE_S + 1)
    async with lake.another_replica() as other:
        await look(other)  # occupies the key of the record
    await start(lake, 3)
    assert name not in (await quota(lake)).open_ids


async def test_a_damaged_register_or_record_stops_no_start(lake: Service) -> None:
    rows, key = await place(lake)
    kv, name = lake.replicas.kv, await start(lake, 1)
    (record,) = await kv.get_many(rows, [RepositoryKeys.task(name)])
    assert record is not None
    await kv.set_if(rows, RepositoryKeys.task(name), b"\xff", record.predicate)
    second = await start(lake, 2)
    assert (await quota(lake)).open_ids == (second,)
    (found,) = await kv.get_many(rows, [key])
    assert found is not None
    await kv.set_if(rows, key, b"\xff", found.predicate)
    third = await start(lake, 3)
    assert await quota(lake) == Quota(1, (TaskId(third),))


async def test_an_ended_task_is_read_once_more_and_then_forgotten(service: Service) -> None:
    await service.graveler.create_branch(service.admin, "lake", "side", "main")
    for number in (1, 2, 3):
        name = await start(service, number)
        await done(service, name)
        assert await quota(service) == Quota(number, (TaskId(name),))
