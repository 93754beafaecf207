"""Access to tasks: only the user who started one, and administrators, may see and cancel it.

The built-in roles cover all repositories; the user `eve` here may merge `side` into branches named `dev…`, and
nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from graveler_service import Service, reason_of
from lake_tasks import a_merge, done, task_id

from tarn.core.access import policy
from tarn.core.access.policy import Role, Statement
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId
from tarn.rpc.wire.call import Call
from tarn_auth import authorizer
from tarn_proto.graveler.v1 import task_service_pb2 as pb

STATEMENTS = (
    Statement(True, ("WriteRepo",), ("repository/lake/branch/dev*",)),
    Statement(True, ("ReadRepo",), ("repository/lake/ref/side",)),
)


@pytest.fixture
async def lake(service: Service) -> Service:
    """A repository with branches `side`, which has a commit more than `main`, and `dev`."""
    await service.graveler.create_branch(service.admin, "lake", "side", "main")
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    await service.put("a", 1, "side")
    await service.graveler.create_commit(service.admin, "lake", "side", "a")
    return service


@pytest.fixture
async def eve(lake: Service, monkeypatch: pytest.MonkeyPatch) -> Call:
    def scoped(roles: tuple[Role, ...], user_id: UserId) -> tuple[Statement, ...]:
        return STATEMENTS if user_id == "eve" else policy.statements_of(roles, user_id)

    monkeypatch.setattr(authorizer, "statements_of", scoped)
    return await lake.as_user("eve", "Analyst")


async def error_of(work: object) -> tuple[Kind, Reason, str, dict[str, str]]:
    with pytest.raises(TarnError) as raised:
        await work  # type: ignore[misc]
    error = raised.value
    return error.kind, error.reason, error.message, dict(error.metadata)


async def session(lake: Service, user_id: str, nonce: bytes) -> Call:
    """Logs a user in by a new key."""
    made = await lake.auth.create_credential(lake.admin, user_id=user_id)
    key, secret = made.credential.access_key_id, made.secret_access_key
    now_us = lake.clock.now_us()
    opened = await lake.auth.log_in(lake.anonymous, key, secret, now_us=now_us, nonce=nonce)
    return replace(lake.anonymous, caller_token=opened.grant.caller_token)


async def test_the_user_who_started_a_task_follows_it_without_reading_the_repository(
    lake: Service, eve: Call
) -> None:
    graveler, wish = lake.graveler, a_merge()
    wish.branch_id = "dev"
    name = (await graveler.start_merge(eve, wish)).task_id
    expected = await done(lake, name)
    assert expected.state == pb.TASK_STATE_SUCCEEDED
    for caller in (eve, await session(lake, "eve", b"a second session")):
        assert await graveler.wait_task(caller, "lake", name) == expected
        assert await graveler.get_task(caller, "lake", name) == expected
        assert await graveler.cancel_task(caller, "lake", name) == expected
    # Only by its id.
    assert await reason_of(graveler.list_tasks(eve, "lake")) is Reason.ACCESS_DENIED


async def test_a_later_user_of_the_same_name_has_not_started_it(lake: Service, eve: Call) -> None:
    graveler, wish = lake.graveler, a_merge()
    wish.branch_id = "dev"
    name = (await graveler.start_merge(eve, wish)).task_id
    await lake.auth.delete_user(lake.admin, "eve")
    await lake.auth.create_user(lake.admin, "eve", ["Analyst"])
    later = await session(lake, "eve", b"of a later life!")
    assert await reason_of(graveler.get_task(later, "lake", name)) is Reason.ACCESS_DENIED


async def test_a_caller_who_may_not_read_the_repository_learns_nothing(
    lake: Service, eve: Call
) -> None:
    """Not even whether the repository or the task exists."""
    graveler, name, unknown = lake.graveler, task_id(lake), task_id(lake, 2)
    await graveler.start_merge(lake.admin, a_merge(), task_id=name)
    for ask in (graveler.get_task, graveler.wait_task, graveler.cancel_task):
        of_other = await error_of(ask(eve, "lake", name))
        kind, reason, text, about = await error_of(ask(eve, "lake", unknown))
        assert (kind, reason) == (Kind.DENIED, Reason.ACCESS_DENIED)
        assert of_other == (kind, reason, text.replace(unknown, name), about)
        elsewhere = await error_of(ask(eve, "nowhere", unknown))
        moved = {key: value.replace("lake", "nowhere") for key, value in about.items()}
        assert elsewhere == (kind, reason, text.replace("lake", "nowhere"), moved)


async def test_the_task_of_another_user_is_like_one_that_does_not_exist(lake: Service) -> None:
    graveler, name, unknown = lake.graveler, task_id(lake), task_id(lake, 2)
    ann = await lake.as_user("ann", "Developer")
    await graveler.start_merge(lake.admin, a_merge(), task_id=name)
    for ask in (graveler.get_task, graveler.wait_task, graveler.cancel_task):
        kind, reason, text, about = await error_of(ask(ann, "lake", unknown))
        assert (kind, reason) == (Kind.NOT_FOUND, Reason.TASK_NOT_FOUND)
        expected = (kind, reason, text.replace(unknown, name), about | {"task": name})
        assert await error_of(ask(ann, "lake", name)) == expected
    assert await reason_of(graveler.list_tasks(ann, "lake", all_users=True)) is Reason.ACCESS_DENIED
    assert (await done(lake, name)).state == pb.TASK_STATE_SUCCEEDED  # nothing has cancelled it
    await graveler.start_merge(ann, a_merge(allow_empty=True), task_id=unknown)
    await graveler.get_task(ann, "lake", unknown)
    await graveler.get_task(lake.admin, "lake", unknown)
