"""Starts long work as tasks, and shows tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tarn_cli.output import Record, shown_time
from tarn_cli.session import Session
from tarn_proto.graveler.v1.merge_service_pb2 import MergeRequest, PreviewMergeRequest
from tarn_proto.graveler.v1.task_service_pb2 import Task, TaskKind, TaskState

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn_cli.connection import Connection

__all__ = ["start_merge", "start_preview", "state_of", "task_record"]


def start_merge(session: Session, request: MergeRequest) -> None:
    """Starts a merge as a task, and prints it."""
    task_id, sleep = _new_id_and_sleep()

    async def work(tarn: Connection) -> Task:
        return await tarn.graveler.start_once(
            lambda: tarn.graveler.start_merge(tarn.call(), request, task_id=task_id), sleep
        )

    _show(session, session.run(work))


def start_preview(session: Session, request: PreviewMergeRequest) -> None:
    """Starts the preview of a merge as a task, and prints it."""
    task_id, sleep = _new_id_and_sleep()

    async def work(tarn: Connection) -> Task:
        return await tarn.graveler.start_once(
            lambda: tarn.graveler.start_preview(tarn.call(), request, task_id=task_id), sleep
        )

    _show(session, session.run(work))


def _new_id_and_sleep() -> tuple[str, Callable[[float], Awaitable[None]]]:
    from tarn.rpc.process.system import SystemClock, SystemIds

    clock = SystemClock()
    return SystemIds(clock).uuid7().hex(), clock.sleep


def _show(session: Session, task: Task) -> None:
    session.output.one(task_record(task), f"{task.repository_id}/{task.task_id}")
    session.output.remark(f"`tarn task wait {task.repository_id}/{task.task_id}` waits for its end")


def state_of(task: Task) -> str:
    """The state of a task for people and programs: `running`, and others of `TaskState`."""
    return TaskState.Name(task.state).removeprefix("TASK_STATE_").lower()


def task_record(task: Task) -> Record:
    """The fields of a task, as every command prints them."""
    record: dict[str, object] = {
        "task": task.task_id,
        "state": state_of(task),
        "done": f"{task.done_count}/{task.total_count}" if task.total_count else "",
        "what": task.subject,
        "kind": TaskKind.Name(task.kind).removeprefix("TASK_KIND_").lower(),
        "user": task.user_id,
        "created": shown_time(task.create_time),
        "ended": shown_time(task.end_time) if task.HasField("end_time") else "",
        "runs": task.run_count,
    }
    if task.HasField("error"):
        record |= {"error": task.error.reason, "message": task.error.message}
    if task.WhichOneof("result") == "merge":
        record["commit"] = task.merge.commit.commit_id
    if task.WhichOneof("result") == "commit":
        record["commit"] = task.commit.commit_id
    if task.WhichOneof("result") == "preview":
        counts = task.preview.counts
        record |= {
            "added": counts.added_count,
            "changed": counts.changed_count,
            "removed": counts.removed_count,
            "conflict_count": task.preview.conflict_count,
            "conflicts": [each.path for each in task.preview.conflicts],
        }
    return record
