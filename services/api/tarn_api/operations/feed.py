"""The events of a branch, as a stream."""

from __future__ import annotations

from starlette.responses import Response

from tarn_api.context import Context
from tarn_api.feed.feeds import StreamRequest
from tarn_rest import operations as op

__all__ = ["watch_branch"]


async def watch_branch(context: Context, at: op.WatchBranch) -> Response:
    """Returns a stream of what happens on a branch; see `tarn_api.feed`."""
    assert context.grant is not None, "it is not public"
    headers = context.request.headers
    header = headers.get("authorization")
    asked = StreamRequest(
        at.repository,
        at.branch,
        at.last_event_id or at.after or "",
        header if header is not None else f"cookie {headers.get('cookie', '')}",
        header is None,
        context.authenticate,
        context.grant,
        context.trace,
    )
    return await context.backend.feeds.open(asked, context.read())
