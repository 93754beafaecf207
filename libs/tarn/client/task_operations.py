"""Operations of `tarn.client` for tasks: merges and previews that go on without their caller (docs/design/tasks.md)."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.calls import PAGE_SIZE, Calls
from tarn.client.errors import TarnCallError
from tarn.client.paging import Listing, listing
from tarn.client.raising import call_error
from tarn.client.values import Choice, Commit, MergePreview, Side
from tarn.rpc.wire.errors import error_from_operation
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import task_service_pb2 as pb

__all__ = ["Task", "TaskOperations", "TaskState"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TaskState(enum.Enum):
    """How far a task is. `OTHER` is a state that this version does not know."""

    PENDING = pb.TASK_STATE_PENDING
    RUNNING = pb.TASK_STATE_RUNNING
    SUCCEEDED = pb.TASK_STATE_SUCCEEDED
    FAILED = pb.TASK_STATE_FAILED
    CANCELLED = pb.TASK_STATE_CANCELLED
    OTHER = -1

    @property
    def is_ended(self) -> bool:
        """Whether the task changes no more."""
        return self in (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Task:
    """Work that goes on without its caller.

    Attributes:
        user_id: who started it.
        subject: its subject, for people.
        create_time, end_time: in UTC; `end_time` is None before the end.
        done_count, total_count: parts of the work that are done, and all; the total is 0 while it is unknown.
        run_count: replicas that have begun it, one after the other.
        commit: of a merge that succeeded: the new head.
        preview: of a preview that succeeded. Both are None in listings.
        error: why it failed; None unless it did.
    """

    task_id: str
    repository_id: str
    state: TaskState
    user_id: str
    subject: str
    create_time: datetime
    end_time: datetime | None
    done_count: int
    total_count: int
    run_count: int
    commit: Commit | None
    preview: MergePreview | None
    error: TarnCallError | None

    @staticmethod
    def of(sent: pb.Task) -> Task:
        """The value of a message."""
        known = sent.state in {each.value for each in TaskState}
        result = sent.WhichOneof("result")
        about = {"repository": sent.repository_id}
        has_error = sent.HasField("error")
        return Task(
            sent.task_id,
            sent.repository_id,
            TaskState(sent.state) if known else TaskState.OTHER,
            sent.user_id,
            sent.subject,
            _time(sent.create_time),
            _time(sent.end_time) if sent.HasField("end_time") else None,
            sent.done_count,
            sent.total_count,
            sent.run_count,
            Commit.of(sent.merge.commit) if result == "merge" else None,
            MergePreview.of(sent.preview) if result == "preview" else None,
            call_error(error_from_operation(sent.error), about) if has_error else None,
        )


class TaskOperations(Calls):
    """Starts, follows and cancels tasks. Tasks are kept for one day after their end."""

    async def start_merge(
        self,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        squash: bool = False,
        allow_empty: bool = False,
        fast_forward_only: bool = False,
        task_id: str = "",
    ) -> Task:
        """Starts a merge as a task; other arguments as of `merge`.

        `task_id` is from `new_task_id` of the client. After `UnknownOutcomeError`, the same call with the same id
        starts no second merge; it returns the task. Without it, Tarn chooses an id.
        """
        request = merge_pb.MergeRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            source_ref=source_ref,
            message=message,
            metadata=metadata,
            choices=_choices(choices),
            default_side=_side(default_side),
            squash=squash,
            allow_empty=allow_empty,
            fast_forward_only=fast_forward_only,
        )
        return Task.of(await self.graveler.start_merge(self.call(), request, task_id=task_id))

    async def start_preview(
        self,
        repository_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        task_id: str = "",
    ) -> Task:
        """Starts the preview of a merge as a task; arguments as of `preview_merge`, `task_id` as of `start_merge`."""
        request = merge_pb.PreviewMergeRequest(
            repository_id=repository_id,
            destination_ref=destination_ref,
            source_ref=source_ref,
            choices=_choices(choices),
            default_side=_side(default_side),
            page_size=1,
        )
        return Task.of(await self.graveler.start_preview(self.call(), request, task_id=task_id))

    async def get_task(self, repository_id: str, task_id: str) -> Task:
        """Returns one task, with its result or its error."""
        return Task.of(await self.graveler.get_task(self.call(), repository_id, task_id))

    async def wait_task(self, repository_id: str, task_id: str, *, timeout_s: float = 10.0) -> Task:
        """Returns a task once it has ended, or after `timeout_s` as it is then: look at `state.is_ended`.

        One call waits for at most 30 seconds.
        """
        timeout_ms = max(1, round(timeout_s * 1000))
        return Task.of(
            await self.graveler.wait_task(
                self.call(), repository_id, task_id, timeout_ms=timeout_ms
            )
        )

    async def cancel_task(self, repository_id: str, task_id: str) -> Task:
        """Asks for the end of a task, which may go on for some seconds; a merge that is being published is made."""
        return Task.of(await self.graveler.cancel_task(self.call(), repository_id, task_id))

    def list_tasks(
        self, repository_id: str, *, all_users: bool = False, page_size: int = PAGE_SIZE
    ) -> Listing[Task]:
        """Lists the caller's tasks in a repository, or those of all users, oldest first, without their results."""
        return listing(
            lambda token: self.graveler.list_tasks(
                self.call(),
                repository_id,
                all_users=all_users,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Task.of, page.tasks),
        )


def _time(sent: Timestamp) -> datetime:
    return _EPOCH + timedelta(seconds=sent.seconds, microseconds=sent.nanos // 1000)


def _choices(choices: Sequence[Choice]) -> list[merge_pb.ConflictChoice]:
    return [merge_pb.ConflictChoice(pattern=pattern, side=_side(side)) for pattern, side in choices]


def _side(side: Side | None) -> merge_pb.MergeSide:
    return merge_pb.MERGE_SIDE_UNSPECIFIED if side is None else side.value
