"""TaskService: long work that goes on without its caller."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
from google.protobuf.message import Message

from tarn.core.access.policy import Grant
from tarn.core.branch import Branch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import TaskId, parse_branch_id
from tarn.core.pull_request import parse_pull_id
from tarn.core.task import Start, Task, TaskKind, TaskState
from tarn.gate.permits import Caller, RepositoryPermit
from tarn.kv.records import Repository
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import error_to_operation
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.commits import commit_request
from tarn_graveler.handlers.merges import Picks, choice_of, expected_of, refuse_contradiction
from tarn_graveler.handlers.pull_requests import wish_of
from tarn_graveler.handlers.requests import (
    RepositoryRequest,
    checked_metadata,
    paging,
    timestamp,
)
from tarn_graveler.handlers.task_works import (
    CherryPickWork,
    CommitWork,
    MergeWork,
    PreviewWork,
    PullRequestMergeWork,
    RevertWork,
)
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import task_service_pb2 as pb

__all__ = ["TaskHandler"]


_REQUEST_BYTES_MAX = 192 * 1024
_WAIT_MS_DEFAULT = 10_000
_WAIT_MS_MAX = 30_000
_MARGIN_SECONDS = 0.5
"""Left of a call's deadline for its answer."""

_KINDS = {
    TaskKind.MERGE.value: pb.TASK_KIND_MERGE,
    TaskKind.PREVIEW.value: pb.TASK_KIND_PREVIEW,
    TaskKind.COMMIT.value: pb.TASK_KIND_COMMIT,
    TaskKind.PULL_REQUEST_MERGE.value: pb.TASK_KIND_PULL_REQUEST_MERGE,
    TaskKind.REVERT.value: pb.TASK_KIND_REVERT,
    TaskKind.CHERRY_PICK.value: pb.TASK_KIND_CHERRY_PICK,
}
_COMMITS = frozenset(
    each.value
    for each in (
        TaskKind.COMMIT,
        TaskKind.PULL_REQUEST_MERGE,
        TaskKind.REVERT,
        TaskKind.CHERRY_PICK,
    )
)
"""Kinds whose result is the new head of a branch."""
_STATES = {
    TaskState.PENDING: pb.TASK_STATE_PENDING,
    TaskState.RUNNING: pb.TASK_STATE_RUNNING,
    TaskState.SUCCEEDED: pb.TASK_STATE_SUCCEEDED,
    TaskState.FAILED: pb.TASK_STATE_FAILED,
    TaskState.CANCELLED: pb.TASK_STATE_CANCELLED,
}

_log = structlog.get_logger()


class _TaskRequest(RepositoryRequest, Protocol):
    """A request about one task."""

    @property
    def task_id(self) -> str:
        """Id of the task."""
        ...


class _StartRequest(Protocol):
    """A request that starts a task."""

    @property
    def task_id(self) -> str:
        """Chosen by the client; empty: Tarn chooses one."""
        ...

    @property
    def timeout_ms(self) -> int:
        """How long the call waits for the end."""
        ...


_Prepared = tuple[str, Message, Branch | None]
"""What a task is about, the work with its refs resolved, and the branch that it changes."""


class TaskHandler:
    """Answers `tarn.graveler.v1.TaskService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._repositories = graveler.repositories
        self._branches = graveler.branches
        self._refs = graveler.refs
        self._page_keys = graveler.page_keys
        self._runner = graveler.task_runner
        self._clock = graveler.clock
        self._pulls = graveler.pulls
        self._picks = Picks(graveler)
        self._runner.serve(TaskKind.MERGE, MergeWork(graveler))
        self._runner.serve(TaskKind.PREVIEW, PreviewWork(graveler))
        self._runner.serve(TaskKind.COMMIT, CommitWork(graveler))
        self._runner.serve(TaskKind.PULL_REQUEST_MERGE, PullRequestMergeWork(graveler))
        self._runner.serve(TaskKind.REVERT, RevertWork(graveler))
        self._runner.serve(TaskKind.CHERRY_PICK, CherryPickWork(graveler))

    async def StartMerge(
        self, request: pb.StartMergeRequest, permit: RepositoryPermit
    ) -> pb.StartMergeResponse:
        """Starts a merge."""
        wish, repository = request.merge, permit.repository
        _check_timeout(request.timeout_ms)
        branch_id = parse_branch_id(wish.branch_id)

        async def prepare() -> _Prepared:
            refuse_contradiction(wish)
            checked_metadata(wish)
            choice_of(wish)
            expected_of(wish)
            before = (await self._branches.fresh(BranchName(repository, branch_id))).branch
            about = f"Merge {wish.source_ref} into {branch_id}"
            resolved = merge_pb.MergeRequest()
            resolved.CopyFrom(wish)
            resolved.message = wish.message or about
            resolved.source_ref = await self._refs.commit_of(repository, wish.source_ref)
            return about, resolved, before

        task = await self._begin(request, permit, wish, TaskKind.MERGE, prepare)
        return pb.StartMergeResponse(task=task)

    async def StartPreview(
        self, request: pb.StartPreviewRequest, permit: RepositoryPermit
    ) -> pb.StartPreviewResponse:
        """Starts the preview of a merge."""
        wish, repository = request.preview, permit.repository
        _check_timeout(request.timeout_ms)

        async def prepare() -> _Prepared:
            if wish.after:
                text = "a task previews the whole merge: `after` must be empty"
                raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="after")
            choice_of(wish)
            paging(wish.page_size)
            about = f"Preview the merge of {wish.source_ref} into {wish.destination_ref}"
            resolved = merge_pb.PreviewMergeRequest()
            resolved.CopyFrom(wish)
            resolved.source_ref = await self._refs.commit_of(repository, wish.source_ref)
            resolved.destination_ref = await self._refs.commit_of(repository, wish.destination_ref)
            return about, resolved, None

        task = await self._begin(request, permit, wish, TaskKind.PREVIEW, prepare)
        return pb.StartPreviewResponse(task=task)

    async def StartCommit(
        self, request: pb.StartCommitRequest, permit: RepositoryPermit
    ) -> pb.StartCommitResponse:
        """Starts a commit."""
        wish, repository = request.commit, permit.repository
        _check_timeout(request.timeout_ms)
        branch_id = parse_branch_id(wish.branch_id)

        async def prepare() -> _Prepared:
            commit_request(wish, permit.grant.user_id)
            before = (await self._branches.fresh(BranchName(repository, branch_id))).branch
            return f"Commit the changes of {branch_id}", wish, before

        task = await self._begin(request, permit, wish, TaskKind.COMMIT, prepare)
        return pb.StartCommitResponse(task=task)

    async def StartPullRequestMerge(
        self, request: pb.StartPullRequestMergeRequest, permit: RepositoryPermit
    ) -> pb.StartPullRequestMergeResponse:
        """Starts the merge of a pull request."""
        wish, repository = request.merge, permit.repository
        _check_timeout(request.timeout_ms)
        pull = await self._pulls.get(repository, parse_pull_id(wish.pull_request_id))
        permit.require_further("destination", destination=pull.destination)
        permit.require_further("source", source=pull.source)

        async def prepare() -> _Prepared:
            wish_of(wish)
            return (
                f"Merge pull request {pull.pull_id} into {pull.destination.branch_id}",
                wish,
                None,
            )

        task = await self._begin(request, permit, wish, TaskKind.PULL_REQUEST_MERGE, prepare)
        return pb.StartPullRequestMergeResponse(task=task)

    async def StartRevert(
        self, request: pb.StartRevertRequest, permit: RepositoryPermit
    ) -> pb.StartRevertResponse:
        """Starts a revert of one commit, or of a range of commits."""
        wish, repository = request.revert, permit.repository
        _check_timeout(request.timeout_ms)
        branch_id = parse_branch_id(wish.branch_id)

        async def prepare() -> _Prepared:
            before = (await self._branches.fresh(BranchName(repository, branch_id))).branch
            resolved = await self._picks.resolved_revert(repository, wish)
            what = f"{wish.since_ref}..{wish.ref}" if wish.since_ref else wish.ref
            return f"Revert {what} on {branch_id}", resolved, before

        task = await self._begin(request, permit, wish, TaskKind.REVERT, prepare)
        return pb.StartRevertResponse(task=task)

    async def StartCherryPick(
        self, request: pb.StartCherryPickRequest, permit: RepositoryPermit
    ) -> pb.StartCherryPickResponse:
        """Starts a cherry-pick."""
        wish, repository = request.cherry_pick, permit.repository
        _check_timeout(request.timeout_ms)
        branch_id = parse_branch_id(wish.branch_id)

        async def prepare() -> _Prepared:
            before = (await self._branches.fresh(BranchName(repository, branch_id))).branch
            resolved = await self._picks.resolved_cherry_pick(repository, wish)
            return f"Apply {wish.ref} to {branch_id}", resolved, before

        task = await self._begin(request, permit, wish, TaskKind.CHERRY_PICK, prepare)
        return pb.StartCherryPickResponse(task=task)

    async def _begin(
        self,
        request: _StartRequest,
        permit: RepositoryPermit,
        wish: Message,
        kind: TaskKind,
        prepare: Callable[[], Awaitable[_Prepared]],
    ) -> pb.Task:
        """Starts a task, or finds that of an earlier attempt; returns it as it is after the wait of the request.

        Args:
            request: the start.
            permit: of the call.
            wish: the work, as the caller said it.
            kind: of the task.
            prepare: checks the work. Not called if an earlier attempt has started the task: its refs may be gone.
        """
        repository, task_id = permit.repository, request.task_id
        start = _start(wish, kind, permit.grant)
        task = await self._runner.started(repository, task_id, start) if task_id else None
        if task is None:
            task = await self._start(repository, task_id, start, permit.grant, *await prepare())
        task = await self._wait_for_started(repository, task, request.timeout_ms, permit.call)
        return _message(task)

    async def _start(
        self,
        repository: Repository,
        task_id: str,
        start: Start,
        grant: Grant,
        about: str,
        resolved: Message,
        branch: Branch | None,
    ) -> Task:
        """Starts a task that changes `branch`, or none."""
        task = Task(
            task_id=TaskId(task_id) if task_id else self._runner.new_id(),
            repository_id=repository.repository_id,
            instance_uid=repository.instance_uid,
            user_id=grant.user_id,
            user_uid=grant.user_uid,
            roles=grant.roles,
            kind=start.kind,
            subject=about,
            request=resolved.SerializeToString(deterministic=True),
            digest=start.digest,
            create_time_us=self._clock.now_us(),
            begin_sequence=branch.head_sequence if branch else 0,
            incarnation=branch.incarnation if branch else b"",
            session_key_id=grant.session_key_id,
        )
        return await self._runner.start(repository, task)

    async def GetTask(self, request: pb.GetTaskRequest, permit: Caller) -> pb.GetTaskResponse:
        """Returns one task."""
        _, task = await self._enter(request, permit)
        return pb.GetTaskResponse(task=_message(task))

    async def ListTasks(
        self, request: pb.ListTasksRequest, permit: RepositoryPermit
    ) -> pb.ListTasksResponse:
        """Returns one page of tasks; a page may be short although more follow."""
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "TaskService.ListTasks",
            repository=repository.instance_uid,
            all_users=request.all_users,
        )
        after, limit = tokens.decode(request.page_token), paging(request.page_size)
        user = None if request.all_users else (grant.user_id, grant.user_uid)
        page = await self._runner.page(repository, user, after, limit)
        return pb.ListTasksResponse(
            tasks=[_message(task, with_result=False) for task in page.tasks],
            next_page_token=tokens.encode(page.after) if page.after else "",
        )

    async def CancelTask(
        self, request: pb.CancelTaskRequest, permit: Caller
    ) -> pb.CancelTaskResponse:
        """Asks for the end of a task."""
        repository, task = await self._enter(request, permit)
        task = await self._runner.cancel(repository, task.task_id)
        return pb.CancelTaskResponse(task=_message(task))

    async def WaitTask(self, request: pb.WaitTaskRequest, permit: Caller) -> pb.WaitTaskResponse:
        """Waits until a task has ended, or for some time."""
        _check_timeout(request.timeout_ms)
        repository, task = await self._enter(request, permit)
        seconds = self._seconds(request.timeout_ms or _WAIT_MS_DEFAULT, permit.call)
        task = await self._runner.wait(repository, task.task_id, seconds)
        return pb.WaitTaskResponse(task=_message(task))

    async def _wait_for_started(
        self, repository: Repository, task: Task, timeout_ms: int, call: Call
    ) -> Task:
        """Returns a task that was started once it has ended, or after `timeout_ms` as it is then."""
        if not timeout_ms:
            return task
        try:
            return await self._runner.wait(
                repository, task.task_id, self._seconds(timeout_ms, call)
            )
        except TarnError as error:
            # An error would say that the task was not started.
            _log.warning("cannot wait for a task", task=task.task_id, error=error.message)
            return task

    def _seconds(self, timeout_ms: int, call: Call) -> float:
        """Returns how long a call may wait that asked for `timeout_ms`."""
        wanted = min(timeout_ms, _WAIT_MS_MAX) / 1000
        return min(wanted, call.remaining(self._clock) - _MARGIN_SECONDS)

    async def _enter(self, request: _TaskRequest, caller: Caller) -> tuple[Repository, Task]:
        """Returns a task that the caller started, or may see because the caller administers the repository.

        The rights of the user who started the task may cover one branch of the repository only.

        Raises:
            TarnError: UNAUTHENTICATED. TASK_NOT_FOUND also for the tasks of others. ACCESS_DENIED for a caller who may
                not read the repository and started no such task; it does not tell whether the repository or the task
                exists. REPOSITORY_NOT_FOUND.
        """
        denied = None
        try:
            caller.require(caller.resource())
        except TarnError as error:
            if error.kind is not Kind.DENIED:
                raise
            denied = _denied(error, request.task_id)
        sees_all = denied is None and caller.has_further("others")
        user = None if sees_all else (caller.grant.user_id, caller.grant.user_uid)
        try:
            repository = await self._repositories.get(request.repository_id)
            task = await self._runner.get(repository, request.task_id, user)
        except TarnError as error:
            if denied is not None and error.kind is Kind.NOT_FOUND:
                raise denied from None
            raise
        return repository, task


def _denied(error: TarnError, task_id: str) -> TarnError:
    text = f"{error.message}, and has no task {task_id[:64]!r}; tasks are kept for one day after their end"
    return TarnError(error.kind, error.reason, text, **error.metadata)


def _check_timeout(timeout_ms: int) -> None:
    if timeout_ms < 0:
        text = f"timeout_ms must not be negative, not {timeout_ms}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="timeout_ms")


def _start(request: Message, kind: TaskKind, grant: Grant) -> Start:
    sent = request.SerializeToString(deterministic=True)
    if len(sent) > _REQUEST_BYTES_MAX:
        text = f"the request has {len(sent)} bytes; a task keeps at most {_REQUEST_BYTES_MAX}"
        raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
    return Start(grant.user_id, grant.user_uid, kind.value, hashlib.sha256(sent).digest())


def _message(task: Task, *, with_result: bool = True) -> pb.Task:
    message = pb.Task(
        task_id=task.task_id,
        repository_id=task.repository_id,
        kind=_KINDS.get(task.kind, pb.TASK_KIND_UNSPECIFIED),
        state=_STATES.get(task.state, pb.TASK_STATE_UNSPECIFIED),
        user_id=task.user_id,
        subject=task.subject,
        create_time=timestamp(task.create_time_us),
        end_time=timestamp(task.end_time_us) if task.end_time_us else None,
        done_count=task.progress.done,
        total_count=task.progress.total,
        run_count=task.epoch,
        cancel_requested=task.is_cancel_requested,
    )
    if (failure := task.failure) is not None:
        error = TarnError(failure.kind, failure.reason, failure.message, **dict(failure.metadata))
        message.error.CopyFrom(error_to_operation(error))
    if with_result and task.state is TaskState.SUCCEEDED:
        if task.kind == TaskKind.MERGE.value:
            message.merge.ParseFromString(task.result)
        elif task.kind == TaskKind.PREVIEW.value:
            message.preview.ParseFromString(task.result)
        elif task.kind in _COMMITS:
            message.commit.ParseFromString(task.result)
    return message
