"""Forms whose work may take long: they start a task, wait for its end for a moment, and then lead to its page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message

from tarn.core.errors import Kind, TarnError
from tarn.rpc.wire.errors import error_from_operation
from tarn_api.context import Context
from tarn_proto.graveler.v1 import task_service_pb2 as pb

__all__ = ["ended_or_started"]

_WAIT_MS: Final = 2_000
"""Most work ends by then, and its form is answered with its result."""


async def ended_or_started(
    context: Context, start: Callable[..., Awaitable[pb.Task]], wanted: Message
) -> pb.Task:
    """Starts a task; returns it as it is at its end, or after two seconds.

    A start whose answer was lost is sent again with its id, so the work is done once. All attempts share the time of
    one change.

    Args:
        context: of the request.
        start: of the client of graveler, `start_merge` and its like.
        wanted: the work.

    Raises:
        TarnError: as the start; the error of the work, if it has failed by then. UNKNOWN_OUTCOME names the task, which
            may have been started.
    """
    call, task_id = context.change(), context.objects.ids.uuid7().hex()
    options: dict[str, Any] = {"task_id": task_id, "timeout_ms": _WAIT_MS}
    try:
        task = await context.graveler.start_once(
            lambda: start(call, wanted, **options), context.backend.clock.sleep
        )
    except TarnError as error:
        if error.kind is not Kind.UNKNOWN_OUTCOME:
            raise
        text = (
            f"{error.message}; if it was started, the tasks of the repository list it as {task_id}"
        )
        raise TarnError(error.kind, error.reason, text, task=task_id) from error
    if task.HasField("error"):
        raise error_from_operation(task.error)
    return task
