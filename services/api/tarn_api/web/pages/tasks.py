"""Tasks: long work that goes on without a connection, with its progress; one of them; its end."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from tarn.client.tasks import ENDED
from tarn.core.access.actions import Action, repository_resource
from tarn_api.context import Context
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import PAGE_SIZE, RepositoryAt, way_to
from tarn_proto.graveler.v1 import task_service_pb2 as pb

__all__ = ["TaskAt", "TasksAt", "cancel", "show", "tasks"]

KINDS: Final = MappingProxyType(
    {
        pb.TASK_KIND_MERGE: "merge",
        pb.TASK_KIND_PREVIEW: "preview",
        pb.TASK_KIND_COMMIT: "commit",
        pb.TASK_KIND_PULL_REQUEST_MERGE: "merge of a pull request",
        pb.TASK_KIND_REVERT: "revert",
        pb.TASK_KIND_CHERRY_PICK: "cherry-pick",
    }
)
STATES: Final = MappingProxyType(
    {
        pb.TASK_STATE_PENDING: "pending",
        pb.TASK_STATE_RUNNING: "running",
        pb.TASK_STATE_SUCCEEDED: "succeeded",
        pb.TASK_STATE_FAILED: "failed",
        pb.TASK_STATE_CANCELLED: "cancelled",
    }
)


class TasksAt(Struct, kw_only=True):
    """A page of tasks.

    Attributes:
        repository: the repository.
        token: of the page.
        everybody: not empty: the tasks of all users.
    """

    repository: str
    token: str = ""
    everybody: str = ""


class TaskAt(Struct, kw_only=True):
    """A page of a task."""

    repository: str
    task: str


async def tasks(context: Context, at: TasksAt) -> Page:
    """The tasks of the caller or, for those who may see them, of all users; the oldest first."""
    page = await context.graveler.list_tasks(
        context.read(),
        at.repository,
        all_users=bool(at.everybody),
        page_size=PAGE_SIZE,
        page_token=at.token,
    )
    return render(
        context,
        "tasks.html",
        title="Tasks",
        crumbs=[*way_to(at.repository), Crumb("Tasks")],
        at=at,
        tasks=page.tasks,
        more=page.next_page_token,
        kinds=KINDS,
        states=STATES,
        may_see_all=context.may(Action.WRITE_RULES, repository_resource(at.repository)),
    )


async def show(context: Context, at: TaskAt) -> Page:
    """A task, with its result or its error."""
    found = await context.graveler.get_task(context.read(), at.repository, at.task)
    href = links.to_repository(at.repository, "tasks")
    return render(
        context,
        "task.html",
        title=f"Task {found.task_id}",
        crumbs=[*way_to(at.repository), Crumb("Tasks", href), Crumb(found.task_id)],
        at=at,
        task=found,
        kind=KINDS.get(found.kind, "work of a newer release"),
        state=STATES.get(found.state, "unknown to this release"),
        has_ended=found.state in ENDED,
    )


async def cancel(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Asks for the end of a task, and goes to it."""
    task = form.need("task", "the task")
    await context.graveler.cancel_task(context.change(), at.repository, task)
    return redirect(links.to_repository(at.repository, "task", task=task))
