"""Long work as a task: decisions about its record, without I/O (docs/design/tasks.md).

A task is one record that changes only by compare-and-set. A replica *claims* it for a run, renews its lease while it
works, and ends it. A lease that is over lets another replica claim the task. The lease saves work, it decides nothing:
two runs at a time do no harm. Each change of a record names its epoch, and work that changes a branch checks its epoch
before each attempt to publish (`tarn_graveler.handlers.task_works`).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tarn.core.clock import DAY_US
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import RepositoryId, TaskId, UserId

__all__ = [
    "LEASE_US",
    "OPEN_MAX",
    "RETENTION_US",
    "RUNS_MAX",
    "RUN_US_MAX",
    "STARTS_MAX",
    "TaskProgress",
    "Quota",
    "Start",
    "Task",
    "TaskFailure",
    "TaskKind",
    "TaskState",
    "cancel",
    "check_form",
    "check_task_id",
    "claim",
    "day_of_task",
    "days_of_open_tasks",
    "drop_time_of_day",
    "end",
    "is_claimable",
    "is_shown",
    "next_look",
    "owns",
    "renew",
    "void_task",
]

LEASE_US = 30_000_000
"""How long a claim or a renewal holds, in microseconds."""

RUN_US_MAX = 86_400_000_000
"""Age at which a task is ended, whatever it does: one day."""

RETENTION_US = 86_400_000_000
"""How long a task is shown after its end: one day."""

RUNS_MAX = 8
"""Most runs of one task. Otherwise, work that crashes its process would crash one replica after the other."""

OPEN_MAX = 16
"""Tasks of one user in one repository that have not ended."""

STARTS_MAX = 250
"""Starts of one user in one repository on one day."""

_ID_AGE_US_MAX = 900_000_000
"""Greatest difference between the time in a new task's id and the clock: 15 minutes."""
_ID = re.compile(r"[0-9a-f]{12}7[0-9a-f]{19}")


class TaskKind(enum.Enum):
    """The kind of work of a task."""

    MERGE = "merge"
    PREVIEW = "preview"
    COMMIT = "commit"
    PULL_REQUEST_MERGE = "pull_request_merge"
    REVERT = "revert"
    CHERRY_PICK = "cherry_pick"


class TaskState(enum.Enum):
    """How far a task is."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    VOID = "void"
    """Its start was given up. The record only occupies the id, so that a late start cannot land."""

    @property
    def is_ended(self) -> bool:
        """Whether nothing changes the record any more."""
        return self not in (TaskState.PENDING, TaskState.RUNNING)


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a task failed: the state of the `TarnError`.

    Attributes:
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    kind: Kind
    reason: Reason
    message: str
    metadata: tuple[tuple[str, str], ...] = ()
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def of(cls, error: TarnError) -> TaskFailure:
        """Returns an error as a record keeps it."""
        return cls(error.kind, error.reason, error.message, tuple(sorted(error.metadata.items())))


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How much of the work is done, in parts of no fixed size. `total` is 0 while it is unknown."""

    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """Who asks for which work. A start that is sent again equals the first one, although its refs may have moved."""

    user_id: UserId
    user_uid: bytes
    kind: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """The record of one task.

    Attributes:
        task_id: 32 hex digits of a UUIDv7.
        repository_id: the repository.
        instance_uid: the life of the repository.
        user_id: who started it.
        user_uid: the life of that user.
        roles: the user's roles at the start; they decide about exemptions from the repository's rules.
        kind: its kind of work: a `TaskKind`, or the name of one that only newer replicas know.
        subject: its subject, such as the branch, for people.
        request: the request on the wire, with commit ids for refs.
        digest: SHA-256 of the request as it was sent.
        create_time_us: time of the start.
        begin_sequence: the branch's newest change of the head before the first run; 0 if the work changes no branch.
        incarnation: the life of the branch at the start; empty if the work changes no branch.
        state: how far it is.
        epoch: number of runs begun. Invariant: each claim increases it by one.
        runner: the process of the newest run.
        lease_until_us: time from which others may claim it.
        is_cancel_requested: a user asked to cancel it.
        progress: of the newest run.
        end_time_us: time of its end; 0 before.
        result: the response on the wire; empty unless it succeeded.
        failure: why it failed.
        request_row: SHA-256 of a long request, which the store keeps in a row of its own; else empty.
        result_row: the same for a long response.
        session_key_id: access key id of the session key by which the start came; empty for a key pair.
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    task_id: TaskId
    repository_id: RepositoryId
    instance_uid: str
    user_id: UserId
    user_uid: bytes
    roles: tuple[str, ...]
    kind: str
    subject: str
    request: bytes
    digest: bytes
    create_time_us: int
    begin_sequence: int = 0
    incarnation: bytes = b""
    state: TaskState = TaskState.PENDING
    epoch: int = 0
    runner: bytes = b""
    lease_until_us: int = 0
    is_cancel_requested: bool = False
    progress: TaskProgress = TaskProgress()
    end_time_us: int = 0
    result: bytes = b""
    failure: TaskFailure | None = None
    request_row: bytes = b""
    result_row: bytes = b""
    session_key_id: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    @property
    def start(self) -> Start:
        """The start that made it."""
        return Start(self.user_id, self.user_uid, self.kind, self.digest)


@dataclass(frozen=True, slots=True)
class Quota:
    """The starts of one user in one repository on one day.

    Attributes:
        count: number of starts.
        open_ids: the tasks that had not ended at the last start, and that start. So each start looks only at tasks that
            are open, or ended since the start before. Invariant: at most `OPEN_MAX`.
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    count: int = 0
    open_ids: tuple[TaskId, ...] = ()
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    def with_start(self, task_id: TaskId, ended: Collection[TaskId], open_elsewhere: int) -> Quota:
        """Returns the quota after a start; itself if it has the start already.

        Args:
            task_id: the new task.
            ended: those of `open_ids` that have ended.
            open_elsewhere: open tasks whose ids are of other days.

        Raises:
            TarnError: OVERLOADED.
        """
        if task_id in self.open_ids:
            return self
        still_open = tuple(each for each in self.open_ids if each not in ended)
        open_count = len(still_open) + open_elsewhere
        if open_count >= OPEN_MAX:
            text = f"you have {open_count} tasks in this repository that have not ended; wait for one or cancel one"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        if self.count >= STARTS_MAX:
            text = (
                f"you had {self.count} tasks in this repository today, the limit of one day; call the rpc without "
                "a task"
            )
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        return replace(self, count=self.count + 1, open_ids=(*still_open, task_id))


def days_of_open_tasks(now_us: int) -> range:
    """Returns the days since 1970 that the ids of open tasks may have: a task runs for one day."""
    first, last = now_us - RUN_US_MAX - _ID_AGE_US_MAX, now_us + _ID_AGE_US_MAX
    return range(first // DAY_US, last // DAY_US + 1)


def day_of_task(task_id: str) -> int | None:
    """Returns the day since 1970 in a task's id; None if it is not the id of a task."""
    if not _ID.fullmatch(task_id):
        return None
    return _time_of(task_id) // DAY_US


def _time_of(task_id: str) -> int:
    return int(task_id[:12], 16) * 1000


def check_form(task_id: str) -> None:
    """Refuses a text that cannot be the id of a task.

    Raises:
        TarnError: INVALID_ARGUMENT.
    """
    if not _ID.fullmatch(task_id):
        text = f"task id {task_id[:64]!r} is not a UUIDv7 in 32 lower-case hex digits"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="task_id")


def check_task_id(task_id: str, now_us: int) -> TaskId:
    """Returns the id that a client chose for a new task.

    The time in the id decides the partition of the record, so it must be about now.

    Raises:
        TarnError: INVALID_ARGUMENT.
    """
    check_form(task_id)
    if abs(_time_of(task_id) - now_us) > _ID_AGE_US_MAX:
        text = (
            f"the time in task id {task_id} differs from the server's by more than 15 minutes: set the clock, or "
            "make a new id"
        )
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="task_id")
    return TaskId(task_id)


def drop_time_of_day(day: int) -> int:
    """Returns the time from which nothing needs the tasks of a day: all have ended, and are not shown any more."""
    return (day + 1) * DAY_US + _ID_AGE_US_MAX + RUN_US_MAX + RETENTION_US


def is_shown(task: Task, now_us: int) -> bool:
    """Whether users see a task."""
    if task.state is TaskState.VOID:
        return False
    return not task.state.is_ended or now_us < task.end_time_us + RETENTION_US


def is_claimable(task: Task, now_us: int) -> bool:
    """Whether a replica may begin a run."""
    return not task.state.is_ended and now_us >= task.lease_until_us


def claim(task: Task, runner: bytes, now_us: int) -> Task | None:
    """Returns the record for a new run; None if the task has ended or another run holds its lease.

    A task that had all its runs is ended: as failed, with an unknown outcome, because a run may have done its work.
    """
    if not is_claimable(task, now_us):
        return None
    if task.epoch >= RUNS_MAX:
        text = (
            f"task {task.task_id} was begun {task.epoch} times, and no run came to an end; its work may have been "
            "done: check that before you start it again"
        )
        failure = TaskFailure(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, text)
        return replace(task, state=TaskState.FAILED, failure=failure, end_time_us=now_us)
    return replace(
        task,
        state=TaskState.RUNNING,
        epoch=task.epoch + 1,
        runner=runner,
        lease_until_us=now_us + LEASE_US,
        progress=TaskProgress(),
    )


def owns(task: Task, run: Task) -> bool:
    """Whether the record still belongs to a run, which claimed it as `run`."""
    return (task.state, task.epoch, task.runner) == (TaskState.RUNNING, run.epoch, run.runner)


def renew(task: Task, run: Task, progress: TaskProgress, now_us: int) -> Task | None:
    """Returns the record with a longer lease; None if it does not belong to the run any more."""
    if not owns(task, run):
        return None
    return replace(task, lease_until_us=now_us + LEASE_US, progress=progress)


def end(
    task: Task,
    run: Task,
    state: TaskState,
    now_us: int,
    *,
    progress: TaskProgress,
    result: bytes = b"",
    result_row: bytes = b"",
    failure: TaskFailure | None = None,
) -> Task | None:
    """Returns the record of an ended task; None if it does not belong to the run any more."""
    if not owns(task, run):
        return None
    after = replace(task, state=state, end_time_us=now_us, progress=progress)
    return replace(after, result=result, result_row=result_row, failure=failure)


def cancel(task: Task, now_us: int) -> Task | None:
    """Returns the record after a request to cancel; None if that changes nothing.

    A task that no run has begun ends at once: a claim that is under way expects the record without its end.
    """
    if task.state is TaskState.PENDING:
        return replace(
            task, state=TaskState.CANCELLED, is_cancel_requested=True, end_time_us=now_us
        )
    if task.state.is_ended or task.is_cancel_requested:
        return None
    return replace(task, is_cancel_requested=True)


def void_task(task_id: TaskId, now_us: int) -> Task:
    """Returns the record that keeps a start from landing late."""
    return Task(
        task_id=task_id,
        repository_id=RepositoryId(""),
        instance_uid="",
        user_id=UserId(""),
        user_uid=b"",
        roles=(),
        kind="",
        subject="",
        request=b"",
        digest=b"",
        create_time_us=now_us,
        state=TaskState.VOID,
        end_time_us=now_us,
    )


def next_look(look_time_us: int, now_us: int) -> int:
    """Returns when a task is looked at again: a whole number of leases after the last look, and later than now.

    All replicas compute the same time from the same look, unless their clocks lie on two sides of it.
    """
    steps = max(0, now_us - look_time_us) // LEASE_US + 1
    return look_time_us + steps * LEASE_US
