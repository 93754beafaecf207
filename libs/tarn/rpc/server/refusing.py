"""Ends rpcs with the status of an error, in two ways."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Never

import grpc

from tarn.core.errors import TarnError
from tarn.rpc.wire.errors import code_of, status_text, trailers_of

__all__ = ["end_with", "fail_with", "sent_whole"]

_STATUS_SECONDS = 1.0

Context = grpc.aio.ServicerContext[Any, Any]


def fail_with(context: Context, error: TarnError, about: Mapping[str, str] | None = None) -> None:
    """Sets the status with which an rpc ends when its handler returns, which must not have answered.

    `abort` would do the same with an exception. grpc.aio keeps that in a cycle with the rpc, and so the frames of the
    handler and their requests, until a collection of garbage: refused requests would fill the memory.

    Args:
        context: of the rpc.
        error: its kind is the status; the trailer has all of it.
        about: the subject of the request, as for `trailers_of`.
    """
    error.__traceback__ = None  # its frames hold the request, and a cycle among them keeps it
    context.set_trailing_metadata(trailers_of(error, about))
    context.set_code(code_of(error.kind))
    context.set_details(status_text(error))


async def end_with(context: Context, error: TarnError) -> Never:
    """Ends an rpc that may have answered already.

    The status waits behind what a client has not read. If it does not read, the rpc ends without a status, as it does
    if `sent_whole` had to leave something behind.
    """
    error.__traceback__ = None
    try:
        async with asyncio.timeout(_STATUS_SECONDS):
            await context.abort(code_of(error.kind), status_text(error), trailers_of(error))
    except (TimeoutError, grpc.aio.InternalError):
        raise asyncio.CancelledError from None


async def sent_whole(sending: Coroutine[Any, Any, None]) -> None:
    """Sends the initial metadata of an rpc, also if it is cancelled meanwhile; then it waits for a short time.

    grpc.aio learns that they were sent at the end of this. If an error ended the rpc before, grpc would send them again
    with its status, its core would refuse both, and the client would wait for the end of the rpc for ever.
    """
    task = asyncio.ensure_future(sending)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(TimeoutError, grpc.aio.InternalError):
            async with asyncio.timeout(_STATUS_SECONDS):
                await task
        raise
