"""Tasks with the client library, over a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from served_service import served_service

from tarn.client import AsyncClient, Client, Task, TaskState
from tarn.client.errors import (
    AccessDeniedError,
    NothingToMergeError,
    TaskExistsError,
    TaskNotFoundError,
)
from tarn.core.access import policy
from tarn.core.access.policy import Role, Statement
from tarn.core.ids import UserId
from tarn_auth import authorizer


async def ended(tarn: AsyncClient, task: Task) -> Task:
    for _ in range(
        1_000
    ):  # the server's clock stands still, so a wait that begins before the end does not end
        if (await tarn.get_task("lake", task.task_id)).state.is_ended:
            return await tarn.wait_task("lake", task.task_id)
        await asyncio.sleep(0.01)
    raise AssertionError("it has not ended")


async def test_merges_and_previews_as_tasks(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        await tarn.create_branch("lake", "dev", "main")
        await served.service.put("a", 1, "dev")
        made = await tarn.create_commit("lake", "dev", "load")

        preview = await ended(tarn, await tarn.start_preview("lake", "main", "dev"))
        assert preview.state is TaskState.SUCCEEDED
        assert preview.preview == await tarn.preview_merge("lake", "main", "dev")

        task_id = tarn.new_task_id()
        merge = {"message": "take it", "metadata": {"job": "nightly"}, "task_id": task_id}
        started = await tarn.start_merge("lake", "main", "dev", **merge)  # type: ignore[arg-type]
        again = await tarn.start_merge("lake", "main", "dev", **merge)  # type: ignore[arg-type]
        assert started.task_id == again.task_id == task_id
        with pytest.raises(TaskExistsError):
            await tarn.start_merge("lake", "main", "dev", task_id=task_id)
        merged = await ended(tarn, started)
        assert merged.commit == await tarn.get_commit("lake", "main")
        assert merged.commit is not None
        assert merged.commit.parent_ids[1] == made.commit.commit_id
        assert (merged.commit.message, merged.commit.metadata["job"]) == ("take it", "nightly")
        assert (merged.user_id, merged.run_count, merged.error) == ("root", 1, None)
        assert merged.end_time is not None
        assert (await tarn.cancel_task("lake", task_id)).state is TaskState.SUCCEEDED  # too late

        refused = await ended(tarn, await tarn.start_merge("lake", "main", "dev"))
        assert (refused.state, type(refused.error)) == (TaskState.FAILED, NothingToMergeError)
        listed = [each async for each in tarn.list_tasks("lake", page_size=1)]
        assert {each.task_id for each in listed} == {
            preview.task_id,
            task_id,
            refused.task_id,
        }
        assert all(each.commit is None for each in listed)
        with pytest.raises(TaskNotFoundError):
            await tarn.get_task("lake", tarn.new_task_id())

        with Client(served.address, **served.options()) as blocking:
            found = await asyncio.to_thread(blocking.wait_task, "lake", task_id)
            assert found == merged
            assert len(blocking.new_task_id()) == 32
            await asyncio.to_thread(blocking.close)


async def test_a_user_with_rights_to_one_branch_follows_their_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = (
        Statement(True, ("WriteRepo",), ("repository/lake/branch/dev*",)),
        Statement(True, ("ReadRepo",), ("repository/lake/ref/main",)),
    )

    def scoped(roles: tuple[Role, ...], user_id: UserId) -> tuple[Statement, ...]:
        return statements if user_id == "eve" else policy.statements_of(roles, user_id)

    monkeypatch.setattr(authorizer, "statements_of", scoped)
    async with served_service(tmp_path) as served, served.client() as root:
        service = served.service
        await root.create_branch("lake", "dev", "main")
        await service.put("a", 1, "main")
        await root.create_commit("lake", "main", "load")
        other = await root.start_merge("lake", "dev", "main")
        await ended(root, other)
        await service.auth.create_user(service.admin, "eve", ["Analyst"])
        made = await service.auth.create_credential(service.admin, user_id="eve")
        keys = {
            "access_key_id": made.credential.access_key_id,
            "secret_access_key": made.secret_access_key,
        }
        async with AsyncClient(served.address, **served.options(**keys)) as eve:
            merged = await ended(
                eve, await eve.start_merge("lake", "dev", "main", allow_empty=True)
            )
            assert (merged.state, merged.user_id) == (TaskState.SUCCEEDED, "eve")
            with pytest.raises(AccessDeniedError):
                await eve.wait_task("lake", other.task_id)
