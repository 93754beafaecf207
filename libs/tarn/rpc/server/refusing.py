"""Ends an rpc with an error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Never

import grpc

from tarn.core.errors import TarnError
from tarn.rpc.wire.errors import code_of, status_text, trailers_of

__all__ = ["end_with"]

_STATUS_SECONDS = 1.0


async def end_with(
    context: grpc.aio.ServicerContext[Any, Any],
    error: TarnError,
    about: Mapping[str, str] | None = None,
) -> Never:
    """Ends an rpc with the status of an error.

    The status of a client that does not read waits behind the messages that it has not read: then the rpc ends without.

    Args:
        context: of the rpc.
        error: its kind is the status; the trailer has all of it.
        about: the subject of the request, as for `trailers_of`.
    """
    try:
        async with asyncio.timeout(_STATUS_SECONDS):
            await context.abort(code_of(error.kind), status_text(error), trailers_of(error, about))
    except TimeoutError:
        raise asyncio.CancelledError from None
