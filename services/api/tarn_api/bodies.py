"""Bodies of objects on their way through the endpoint, in pieces, so that memory does not grow with their size.

What a client sends must keep coming: a body that stalls, or comes slower than the least rate over `_WINDOW_S` of
waiting, ends with 408. The time in which the block store or a thread holds the handler up is not the client's. What
a client does not take is bounded by the connection (`tarn_api.http`): a piece is read when the one before was taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tarn.aio.first_error import collapse_error_groups
from tarn.objects.forms import FormParser, boundary_of
from tarn_api.errors import ApiError
from tarn_api.requests import ApiRequest

__all__ = ["BlockAnswer", "BodyBounds", "FormFile", "file_of_form", "received"]

_WINDOW_S: Final = 30.0
_FILE_FIELD: Final = "content"


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """Limits of the body of one object.

    Attributes:
        bytes_max: most bytes.
        rate_min_bytes: least bytes per second, averaged over 30 s of waiting; 0: any rate.
        stall_s: without one byte.
    """

    bytes_max: int = 5 << 30
    rate_min_bytes: int = 512
    stall_s: float = 30.0


async def received(request: ApiRequest, bounds: BodyBounds) -> AsyncIterator[bytes]:
    """Yields the pieces of a body.

    Raises:
        ApiError: 408: it comes too slowly; 400: it ends too early.
    """
    if (
        rest := request.rest()
    ) is not None:  # as of most small objects: there is nothing to wait for
        if rest:
            yield rest
        return
    now = asyncio.get_running_loop().time
    waited, got = 0.0, 0
    more = True
    while more:
        began = now()
        try:
            async with asyncio.timeout(bounds.stall_s):
                message = await request.receive()
        except TimeoutError:
            raise _too_slow(f"no byte of the body came for {bounds.stall_s:g} s") from None
        if message["type"] == "http.disconnect":
            text = "the connection ended within the body; nothing was stored"
            raise ApiError(400, text, reason="DISCONNECTED")
        piece = message.get("body", b"")
        more = message.get("more_body", False)
        waited += now() - began
        got += len(piece)
        if waited >= _WINDOW_S:
            if more and got < bounds.rate_min_bytes * waited:
                raise _too_slow(f"the body came with less than {bounds.rate_min_bytes} bytes/s")
            waited, got = 0.0, 0
        if piece:
            yield piece


def _too_slow(what: str) -> ApiError:
    return ApiError(408, f"{what}; nothing was stored, send it again", reason="TOO_SLOW")


@dataclass(frozen=True, slots=True)
class FormFile:
    """The file of a form, before its bytes have come.

    Attributes:
        name: of the file, as the client has it; empty if it sent none.
        content_type: of the file; empty if the client sent none.
        fields: those before the file.
        pieces: its bytes as they arrive. Iterating raises the errors of the body, and INVALID for a form that is none.
    """

    name: str
    content_type: str
    fields: Mapping[str, str]
    pieces: AsyncIterator[bytes]


async def file_of_form(content_type: str, pieces: AsyncIterator[bytes]) -> FormFile:
    """Returns the field `content` of a form, which is a file; its bytes are still to come.

    Raises:
        ApiError: 400: the Content-Type has no boundary. It also raises the errors of `pieces`.
        TarnError: INVALID: it is no form, or has no such file.
    """
    boundary = boundary_of(content_type)
    if boundary is None:
        text = "the Content-Type of the form has no boundary of 1 to 70 characters"
        raise ApiError(400, text, reason="MALFORMED")
    parser = FormParser(boundary, _FILE_FIELD)
    begun: bytes | bytearray = b""
    while not parser.in_file:
        piece = await anext(pieces, None)
        if piece is None:
            parser.finish()
            break
        begun = parser.feed(piece)

    async def rest() -> AsyncIterator[bytes]:
        if begun:
            yield bytes(begun)
        async for piece in pieces:
            if found := parser.feed(piece):
                yield bytes(found)
        parser.finish()

    return FormFile(parser.filename or "", parser.file_type, parser.fields, rest())


class BlockAnswer(Response):
    """An answer whose bytes are read while they are sent. It stops reading when the client has gone.

    Args:
        status: of HTTP.
        headers: with the Content-Length.
        pieces: the bytes; closed at the end.
    """

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        pieces: AsyncIterator[bytes | memoryview],
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer.

        Raises:
            TarnError: the rest of the bytes cannot be read. The connection must end then: the answer is not whole.
        """
        del scope
        try:
            with collapse_error_groups():
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(_departure(receive))
                    await self._send(send, watching)
                    watching.cancel()
        finally:
            if isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()

    async def _send(self, send: Send, watching: asyncio.Task[None]) -> None:
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        async for piece in self._pieces:
            if watching.done():
                return
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _departure(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
