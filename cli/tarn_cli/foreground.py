"""Runs long work as a task and waits for its end, so that nothing depends on one connection.

The first call starts the task and waits for a second: most merges have ended by then, so they take one round trip.
The id is chosen here, so a start whose answer was lost is sent again and finds its task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tarn.core.errors import Kind, Reason, TarnError
from tarn_cli.exits import CliError, Exit
from tarn_cli.session import Session
from tarn_cli.terminal import write_line
from tarn_proto.graveler.v1.commit_service_pb2 import Commit
from tarn_proto.graveler.v1.merge_service_pb2 import (
    MergeRequest,
    PreviewMergeRequest,
    PreviewMergeResponse,
)
from tarn_proto.graveler.v1.task_service_pb2 import TASK_STATE_CANCELLED, Task

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn_cli.connection import Connection

__all__ = ["follow", "merged", "previewed", "result_of"]

_FIRST_MS = 1_000
"""Wait of the call that starts a task."""
_BAR_MS = 1_000
"""Wait of each further call: how often a progress bar moves."""
_PLAIN_SECONDS = 5.0
"""A preview that takes longer is begun again as a task. Nothing is lost by it: a preview changes nothing."""

Start = Callable[["Connection", str], Awaitable[Task]]
"""Makes one call that starts a task under an id."""


def merged(session: Session, request: MergeRequest) -> Commit:
    """Merges by a task, or by the plain rpc if the user has too many tasks; returns the new head.

    Raises:
        TarnError: why the merge was refused; UNKNOWN_OUTCOME, with the task's id, if no server answers any more.
        CliError: the task was cancelled.
    """

    def start(tarn: Connection, task_id: str) -> Awaitable[Task]:
        return tarn.graveler.start_merge(
            tarn.call(), request, task_id=task_id, timeout_ms=_FIRST_MS
        )

    try:
        return result_of(_run(session, "merge", request.repository_id, start)).merge.commit
    except TarnError as error:
        if error.reason is not Reason.OVERLOADED:
            raise
    # The limits of tasks protect the store, not the branch: a script may merge more often.
    return session.run(lambda tarn: tarn.graveler.merge_as(tarn.call(), request))


def previewed(session: Session, request: PreviewMergeRequest) -> PreviewMergeResponse:
    """Previews a merge, by one call if that is enough, else by a task. Raises as `merged`."""

    async def plain(tarn: Connection) -> PreviewMergeResponse | None:
        try:
            return await tarn.graveler.preview_merge(
                tarn.with_timeout(min(_PLAIN_SECONDS, session.timeout_s)).call(),
                request.repository_id,
                request.destination_ref,
                request.source_ref,
                choices=request.choices,
                default_side=request.default_side,
                page_size=request.page_size,
            )
        except TarnError as error:
            if error.kind is not Kind.DEADLINE:
                raise
            return None

    def start(tarn: Connection, task_id: str) -> Awaitable[Task]:
        return tarn.graveler.start_preview(
            tarn.call(), request, task_id=task_id, timeout_ms=_FIRST_MS
        )

    found = session.run(plain)
    if found is not None:
        return found
    return result_of(_run(session, "preview", request.repository_id, start)).preview


def result_of(ended: Task) -> Task:
    """Returns a task that has succeeded.

    Raises:
        TarnError: the error of the task.
        CliError: it was cancelled.
    """
    from tarn.rpc.wire.errors import error_from_operation

    if ended.HasField("error"):
        raise error_from_operation(ended.error)
    if ended.state == TASK_STATE_CANCELLED:
        raise CliError(Exit.FAILURE, f"task {ended.task_id} was cancelled; it changed nothing")
    return ended


def follow(session: Session, repository: str, task_id: str) -> Task:
    """Returns a task when it has ended; shows its progress."""
    return _run(session, "", repository, None, task_id)


def _run(
    session: Session, what: str, repository: str, start: Start | None, task_id: str = ""
) -> Task:
    """Starts a task, unless it has been started, and returns it when it has ended."""
    from tarn.client.tasks import ENDED
    from tarn.rpc.process.system import SystemClock, SystemIds
    from tarn_cli.task_progress import TaskProgress

    clock = SystemClock()
    name = task_id or SystemIds(clock).uuid7().hex()
    is_started, is_sent = start is None, False

    async def work(tarn: Connection) -> Task:
        nonlocal is_started, is_sent
        with TaskProgress(session, clock) as progress:
            if start is not None:
                is_sent = True
                task = await tarn.graveler.start_once(lambda: start(tarn, name), clock.sleep)
                is_started = True
                if task.state in ENDED:
                    return task
                progress.show(task)
            return await tarn.graveler.follow_task(
                tarn.call, repository, name, progress.show, clock.sleep, timeout_ms=_BAR_MS
            )

    try:
        return session.run(work)
    except TarnError as error:
        is_unknown = error.kind is Kind.UNKNOWN_OUTCOME
        if start is None or not (is_started or is_unknown):
            raise
        text = (
            f"no server says how the {what} ended: {error.message}; `tarn task wait {repository}/{name}` tells it "
            "within one day"
        )
        raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, text) from error
    except KeyboardInterrupt:
        if is_sent or is_started:
            goes_on = f"the {what or 'task'} {'goes on' if is_started else 'may go on'}"
            write_line(err=True)
            write_line(
                f"{goes_on} as task {repository}/{name}: `tarn task wait {repository}/{name}` waits for its end, "
                f"`tarn task cancel {repository}/{name}` asks for it",
                err=True,
            )
        raise
