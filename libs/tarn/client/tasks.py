"""Client of graveler's long work: tasks that go on without a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tarn.client.rpc_client import RpcClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pull_pb
from tarn_proto.graveler.v1 import task_service_pb2 as pb
from tarn_proto.graveler.v1.task_service_rpc import TaskServiceClient

__all__ = ["ENDED", "TaskClient"]


ENDED = frozenset({pb.TASK_STATE_SUCCEEDED, pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELLED})
"""States that are final."""

_FAILURES_MAX = 60
_START_TRIES = 5
_PAUSE_SECONDS = 1.0
_BETWEEN_SECONDS = 0.05
_AWAY = (Kind.UNAVAILABLE, Kind.DEADLINE)


class TaskClient(RpcClient):
    """Starts, follows and cancels tasks. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._task_service = TaskServiceClient(transport)

    async def start_merge(
        self,
        call: Call,
        merge: merge_pb.MergeRequest,
        *,
        task_id: str = "",
        timeout_ms: int = 0,
    ) -> pb.Task:
        """Starts a merge; returns its task.

        Args:
            call: context of the call.
            merge: the merge.
            task_id: id for the task (a new UUIDv7, 32 hex digits). With an id, a start whose answer was lost may be
                sent again: it starts no second merge. Empty: Tarn chooses one.
            timeout_ms: longest wait for the end of the task, at most 30 s; 0: none.

        Raises:
            TarnError: as `merge`, if the refusal does not need the work; ALREADY_EXISTS, TASK_EXISTS; EXHAUSTED,
                OVERLOADED.
        """
        request = pb.StartMergeRequest(task_id=task_id, merge=merge, timeout_ms=timeout_ms)
        answer = await self._task_service.StartMerge(request, call)
        return answer.task

    async def start_preview(
        self,
        call: Call,
        preview: merge_pb.PreviewMergeRequest,
        *,
        task_id: str = "",
        timeout_ms: int = 0,
    ) -> pb.Task:
        """Starts the preview of a merge; returns its task. Arguments and errors as for `start_merge`."""
        request = pb.StartPreviewRequest(task_id=task_id, preview=preview, timeout_ms=timeout_ms)
        answer = await self._task_service.StartPreview(request, call)
        return answer.task

    async def start_commit(
        self,
        call: Call,
        commit: commit_pb.CreateCommitRequest,
        *,
        task_id: str = "",
        timeout_ms: int = 0,
    ) -> pb.Task:
        """Starts a commit; returns its task. Arguments and errors as for `start_merge`."""
        request = pb.StartCommitRequest(task_id=task_id, commit=commit, timeout_ms=timeout_ms)
        return (await self._task_service.StartCommit(request, call)).task

    async def start_pull_request_merge(
        self,
        call: Call,
        merge: pull_pb.MergePullRequestRequest,
        *,
        task_id: str = "",
        timeout_ms: int = 0,
    ) -> pb.Task:
        """Starts the merge of a pull request; returns its task. Arguments and errors as for `start_merge`."""
        request = pb.StartPullRequestMergeRequest(
            task_id=task_id, merge=merge, timeout_ms=timeout_ms
        )
        return (await self._task_service.StartPullRequestMerge(request, call)).task

    async def start_revert(
        self,
        call: Call,
        revert: merge_pb.RevertRequest,
        *,
        task_id: str = "",
        timeout_ms: int = 0,
    ) -> pb.Task:
        """Starts a revert; returns its task. Arguments and errors as for `start_merge`."""
        request = pb.StartRevertRequest(task_id=task_id, revert=revert, timeout_ms=timeout_ms)
        return (await self._task_service.StartRevert(request, call)).task

    async def start_cherry_pick(
        self,
        call: Call,
        cherry_pick: merge_pb.CherryPickRequest,
        *,
        task_id: str = "",
        timeout_ms: int = 0,
    ) -> pb.Task:
        """Starts a cherry-pick; returns its task. Arguments and errors as for `start_merge`."""
        request = pb.StartCherryPickRequest(
            task_id=task_id, cherry_pick=cherry_pick, timeout_ms=timeout_ms
        )
        return (await self._task_service.StartCherryPick(request, call)).task

    async def start_once(
        self,
        start: Callable[[], Awaitable[pb.Task]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> pb.Task:
        """Starts a task by calls that are repeated while their outcome is unknown; returns the task.

        Args:
            start: makes one call of a start, always with the same id.
            sleep: waits for some seconds.

        Raises:
            TarnError: as the start. UNKNOWN_OUTCOME also for another error after a call whose outcome is unknown: that
                call may still be on its way.
        """
        is_doubtful = False
        for attempt in range(_START_TRIES):
            try:
                return await start()
            except TarnError as error:
                is_last = attempt == _START_TRIES - 1
                is_repeated = error.kind in (Kind.UNKNOWN_OUTCOME, *_AWAY)
                if (is_last or not is_repeated) and is_doubtful:
                    raise TarnError(
                        Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, error.message
                    ) from error
                if is_last or not is_repeated:
                    raise
                is_doubtful = is_doubtful or error.kind is not Kind.UNAVAILABLE
            await sleep(_PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    async def get_task(self, call: Call, repository_id: str, task_id: str) -> pb.Task:
        """Returns one task.

        Raises:
            TarnError: NOT_FOUND, TASK_NOT_FOUND: also for the task of another user. DENIED: the same, for a caller who
                may not read the repository.
        """
        request = pb.GetTaskRequest(repository_id=repository_id, task_id=task_id)
        answer = await self._task_service.GetTask(request, call)
        return answer.task

    async def list_tasks(
        self,
        call: Call,
        repository_id: str,
        *,
        all_users: bool = False,
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.ListTasksResponse:
        """Returns a page of tasks without their results, oldest first: `tasks`, `next_page_token`.

        A page may be short, or empty, although more pages follow.
        """
        request = pb.ListTasksRequest(
            repository_id=repository_id,
            all_users=all_users,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._task_service.ListTasks(request, call)

    async def cancel_task(self, call: Call, repository_id: str, task_id: str) -> pb.Task:
        """Asks for the end of a task; returns it as it is then. Raises as `get_task`."""
        request = pb.CancelTaskRequest(repository_id=repository_id, task_id=task_id)
        answer = await self._task_service.CancelTask(request, call)
        return answer.task

    async def wait_task(
        self, call: Call, repository_id: str, task_id: str, *, timeout_ms: int = 0
    ) -> pb.Task:
        """Returns a task once it has ended, or after `timeout_ms` as it is then. Raises as `get_task`."""
        request = pb.WaitTaskRequest(
            repository_id=repository_id, task_id=task_id, timeout_ms=timeout_ms
        )
        answer = await self._task_service.WaitTask(request, call)
        return answer.task

    async def follow_task(
        self,
        new_call: Callable[[], Call],
        repository_id: str,
        task_id: str,
        seen: Callable[[pb.Task], object],
        sleep: Callable[[float], Awaitable[None]],
        *,
        timeout_ms: int = 1_000,
    ) -> pb.Task:
        """Waits until a task has ended, by one call after the other; returns it.

        A call that fails because a replica is away is repeated, on another replica if there is one.

        Args:
            new_call: returns the context of one call.
            repository_id: the repository.
            task_id: the task.
            seen: called with the task after each call.
            sleep: waits for some seconds; after a failure.
            timeout_ms: longest wait of one call.

        Raises:
            TarnError: as `get_task`; UNAVAILABLE or DEADLINE after 60 such failures in a row.
        """
        failures = 0
        while True:
            try:
                task = await self.wait_task(
                    new_call(), repository_id, task_id, timeout_ms=timeout_ms
                )
            except TarnError as error:
                failures += 1
                if error.kind not in _AWAY or failures >= _FAILURES_MAX:
                    raise
                await sleep(_PAUSE_SECONDS)
                continue
            failures = 0
            seen(task)
            if task.state in ENDED:
                return task
            # A call with a short deadline waits for less than `timeout_ms`, or not at all.
            await sleep(_BETWEEN_SECONDS)
