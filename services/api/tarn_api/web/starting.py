"""Forms whose work may take long: they start a task, wait for its end for a moment, and then lead to its page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf.message import Message

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

    Args:
        context: of the request.
        start: of the client of graveler, `start_merge` and its like.
        wanted: the work.

    Raises:
        TarnError: as the start; the error of the work, if it has failed by then.
    """
    options: dict[str, Any] = {
        "task_id": context.objects.ids.uuid7().hex(),
        "timeout_ms": _WAIT_MS,
    }
    task = await start(context.change(), wanted, **options)
    if task.HasField("error"):
        raise error_from_operation(task.error)
    return task
