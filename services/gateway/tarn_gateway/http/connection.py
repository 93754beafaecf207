"""One connection: receives bytes, serves requests one after the other, sends responses.

The transport's callbacks only receive: they parse heads, fill body buffers and wake the connection's one
task, which runs the handler and sends its response. So the requests of a connection are served strictly in
order (pipelined ones wait in `_pending`), and there is exactly one task to cancel.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final, NamedTuple, cast

from tarn_gateway.http.body import BodyReader, BodyTruncatedError, WholeBody
from tarn_gateway.http.context import Exchange, ServerContext, Spawn
from tarn_gateway.http.discard import Discard
from tarn_gateway.http.head import HeadError
from tarn_gateway.http.last_head import LastHead
from tarn_gateway.http.patience import Patience
from tarn_gateway.http.request import Request
from tarn_gateway.http.response import Response
from tarn_gateway.http.response_writer import (
    ConnectionLostError,
    Framing,
    ResponseWriter,
    frame,
    render_head,
)
from tarn_gateway.http.sender import ONE_WRITE_BYTES, close_body, send_body
from tarn_gateway.http.unsent import Unsent

__all__ = ["Connection"]

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_TIME: Final = "total;dur=0.0"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LINGER_BYTES_MAX: Final = 64 * 1024 * 1024


class Sent(NamedTuple):
    """The outcome of a response: see `Exchange`; `keep` if the connection may be used again."""

    status: int
    body_bytes: int
    error: Exception | None
    keep: bool


_NOTHING_SENT: Final = Sent(0, 0, None, keep=False)


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection; `spawn` starts its task in the server's task group."""

    __slots__ = (
        "_body",
        "_cancellable",
        "_client",
        "_context",
        "_deadline",
        "_heads",
        "_identified",
        "_last_read",
        "_next",
        "_paused",
        "_pending",
        "_remote_addr",
        "_request",
        "_request_begun",
        "_secure",
        "_spawn",
        "_task",
        "_transport",
        "_writer",
    )

    def __init__(self, context: ServerContext, spawn: Spawn) -> None:
        self._context = context
        self._spawn = spawn
        self._transport: asyncio.Transport | None = None
        self._writer: ResponseWriter | None = None
        self._task: asyncio.Task[None] | None = None
        # The body that receives the socket's bytes now, None between bodies.
        self._body: BodyReader | Discard | None = None
        # Received bytes that belong to no body or head yet.
        self._pending = bytearray()
        self._heads = LastHead()
        self._paused = False
        # Set while the task waits for the next request.
        self._next: asyncio.Future[Request | HeadError | None] | None = None
        # The request that a handler works for now.
        self._request: Request | None = None
        self._identified = False
        self._client = ""
        self._cancellable = False
        self._request_begun = True  # the first header timeout runs from connecting
        self._deadline = context.loop.time() + context.limits.header_timeout_s
        self._last_read = 0.0
        self._remote_addr = ""
        self._secure = False

    # --- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the connection's task, or refuses the client."""
        context = self._context
        self._transport = cast("asyncio.Transport", transport)
        if not context.admit(self):
            self._transport.write(b"".join(self._refusal(503, "All connections are taken.")))
            self._transport.close()
            return
        peer = transport.get_extra_info("peername")
        self._remote_addr = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._writer = ResponseWriter(
            self._transport, context.loop, context.limits.write_buffer_bytes, context.patience
        )
        self._last_read = context.loop.time()
        self._task = self._spawn(self._run(self._writer))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - buffers have their own size
        """Returns where the next bytes are written: the current body, or the shared head buffer."""
        if self._body is not None:
            return self._body.get_buffer()
        return self._context.head_view

    def buffer_updated(self, nbytes: int) -> None:
        """Called after `nbytes` were received into the memory from `get_buffer`."""
        context = self._context
        self._last_read = context.loop.time()
        if self._body is not None:
            self._body.commit(nbytes)
            return
        waiting = self._next
        if waiting is not None and not waiting.done():
            begun = None if self._pending else self._begin_whole(context, nbytes)
            if begun is None:
                self._pending += context.head_view[:nbytes]
                begun = self._begin_pending()
            if begun is not None:
                waiting.set_result(begun)
            return
        self._pending += context.head_view[:nbytes]
        if len(self._pending) > context.limits.header_bytes_max:
            self._pause()

    def eof_received(self) -> bool:
        """S3 clients have no use for a half-closed connection: the transport closes, `connection_lost` follows."""
        return False

    def pause_writing(self) -> None:
        """Called when the client receives more slowly than we send."""
        if self._writer is not None:
            self._writer.pause()

    def resume_writing(self) -> None:
        """Called when the client has caught up."""
        if self._writer is not None:
            self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason changes nothing
        """Wakes or cancels everything that waits for this client."""
        if self._writer is None:
            return
        self._writer.lose()
        if self._body is not None:
            received = self._body.received if isinstance(self._body, BodyReader) else 0
            self._body.fail(BodyTruncatedError(received))
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        elif self._cancellable and self._task is not None:
            self._task.cancel()

    # --- functions for a body (`Channel`)

    def send_continue(self) -> None:
        """Called when the handler reads a body whose client waits."""
        assert self._writer is not None, "a body has a connection"
        if not self._writer.lost:
            self._writer.write(_CONTINUE)

    def time(self) -> float:
        """Returns the time of the loop, in seconds."""
        return self._context.loop.time()

    def pause_body(self) -> None:
        """Called when both buffers of the body are full."""
        self._pause()

    def resume_body(self) -> None:
        """Called when a buffer of the body is free, and when a read waits."""
        self._resume()

    def end_body(self, rest: bytes) -> None:
        """Called at the end of a body: the following bytes belong to the next request."""
        self._body = None
        self._pending += rest
        if len(self._pending) <= self._context.limits.header_bytes_max:
            self._resume()

    def lend_socket(self) -> tuple[int, Patience] | None:
        """Called when a thread is to receive the body."""
        if self._secure or self._transport is None or self._transport.is_closing():
            return None
        found = self._transport.get_extra_info("socket")
        if found is None:
            return None
        try:
            descriptor = os.dup(found.fileno())
        except OSError:  # no descriptor is free
            return None
        self._pause()
        return descriptor, self._context.patience

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            # The wait for the body begins now, not when the client's last bytes arrived.
            self._last_read = self._context.loop.time()
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    # --- from bytes to requests

    def _begin_whole(self, context: ServerContext, size: int) -> Request | HeadError | None:
        """The fast path: parses a head that arrived in one piece."""
        buffer = context.head_buffer
        end = buffer.find(b"\r\n\r\n", 0, size) + 4
        # An empty line before the request: the slow path strips it.
        if end < 4 or end > context.limits.header_bytes_max or buffer[0] <= 0x0D:
            return None
        view = context.head_view
        return self._begin(bytes(view[:end]), b"" if end == size else bytes(view[end:size]))

    def _begin_pending(self) -> Request | HeadError | None:
        """Returns the next request of `_pending`, if its head is complete."""
        pending = self._pending
        if not pending:
            return None
        while pending[:2] == b"\r\n":
            del pending[:2]
        limits = self._context.limits
        end = pending.find(b"\r\n\r\n", 0, limits.header_bytes_max) + 4
        if end >= 4:
            head, rest = bytes(pending[:end]), bytes(pending[end:])
            pending.clear()
            return self._begin(head, rest)
        if len(pending) >= limits.header_bytes_max:
            return HeadError(431, f"the head is longer than {limits.header_bytes_max} bytes")
        if not self._request_begun:
            self._request_begun = True
            self._deadline = self._context.loop.time() + limits.header_timeout_s
        return None

    def _begin(self, data: bytes, rest: bytes) -> Request | HeadError:
        """Parses a head and sets up its body, which begins with `rest`."""
        context = self._context
        try:
            head, method, raw_path, raw_query, headers = self._heads.parse(data, context.limits)
        except HeadError as error:
            return error
        length = head.body_length
        body: BodyReader
        if length is not None and length <= len(rest):
            body = WholeBody(rest[:length])
            self._pending += rest[length:]
        else:
            self._body = body = BodyReader(
                length,
                rest,
                self,
                context.pool,
                small_bytes=context.limits.small_body_bytes,
                expects_continue=head.expects_continue,
                rate_min_bytes=context.limits.body_rate_min_bytes,
            )
            self._pause()  # until the handler reads it
        return Request(
            method,
            raw_path,
            raw_query,
            headers,
            body,
            self._remote_addr,
            context.next_request_id(),
            self._secure,
            head.keep_alive,
            head.http_1_0,
            self._client,
        )

    async def _next_request(self) -> Request | HeadError | None:
        """Waits for the next request, none of whose bytes is complete; None if the connection must end."""
        context = self._context
        if not self._request_begun:
            self._deadline = context.loop.time() + context.limits.idle_timeout_s
        if self._paused:
            self._resume()
        waiting: asyncio.Future[Request | HeadError | None] = context.loop.create_future()
        self._next = waiting
        try:
            return await waiting
        finally:
            self._next = None

    # --- from requests to responses

    async def _run(self, writer: ResponseWriter) -> None:
        """The connection's task: serves requests one after the other until one of the sides ends it."""
        try:
            while not (self._context.ends_idle or writer.lost):
                begun = self._begin_pending() if self._pending else None
                if begun is not None:
                    await asyncio.sleep(0)  # who pipelines requests lets others run
                elif (begun := await self._next_request()) is None:
                    break
                self._request_begun = False
                if isinstance(begun, HeadError):
                    await self._refuse(writer, begun)
                    break
                if not await self._serve(writer, begun):
                    break
            # The sweeper watches this wait; it would not watch a transport that closes by itself.
            await writer.flush()
        except ConnectionLostError:
            pass
        except Exception as error:  # noqa: BLE001 - one connection must not end the server
            writer.transport.abort()
            what = {"message": "a connection failed", "exception": error}
            self._context.loop.call_exception_handler(what)
        finally:
            writer.transport.close()
            self._context.leave(self)

    async def _refuse(self, writer: ResponseWriter, error: HeadError) -> None:
        """Answers a request that no handler receives."""
        self._body = None
        for piece in self._refusal(error.status, str(error)):
            writer.write(piece)
        await self._linger(writer)

    def _refusal(self, status: int, detail: str) -> tuple[bytes, bytes]:
        """Returns head and body of the answer to what is no request."""
        context = self._context
        request_id = context.next_request_id()
        response = context.on_head_error(status, detail, request_id)
        assert isinstance(response.body, bytes), "it is a text, not a stream"
        framing = Framing(len(response.body), chunked=False, connection="close")
        common = context.common_headers()
        return render_head(response, common, request_id, framing, _NO_TIME), response.body

    async def _serve(self, writer: ResponseWriter, request: Request) -> bool:
        """Answers a request and tells the observer; returns whether the connection may serve another."""
        context, body = self._context, request.body
        started = context.now()
        sent = _NOTHING_SENT
        self._cancellable = request.method in _SAFE_METHODS
        self._request = request
        try:
            try:
                error = None
                try:
                    response = await context.handler(request)
                except Exception as failure:  # noqa: BLE001 - the edge of the handler's code
                    error = failure
                    response = context.on_error(request, failure)
                sent = await self._send(writer, request, response, error, started)
            finally:
                # Also reached by cancellation: a client that disconnected is logged like any other.
                self._cancellable = False
                self._identified = self._identified or request.identified
                self._client = request.client
                self._request = None
                if context.observer is not None:
                    seconds, (status, count, error, _) = context.now() - started, sent
                    context.observer(
                        Exchange(request, status, count, body.received, seconds, error)
                    )
            if writer.lost or writer.transport.is_closing():
                return False
            if body.complete:
                return sent.keep
            return await self._drop_rest(writer, request, keep=sent.keep)
        finally:
            self._body = None
            body.release()

    async def _send(
        self,
        writer: ResponseWriter,
        request: Request,
        response: Response,
        error: Exception | None,
        started: float,
        *,
        is_replacement: bool = False,
    ) -> Sent:
        """Sends a response. If it fails before its first byte is sent, an error response replaces it."""
        context, received = self._context, request.body
        keep = (
            request.keep_alive
            and not context.draining
            and (received.complete or received.left_at_most(context.limits.drain_bytes_max))
        )
        writer.begun = False
        try:
            try:
                framing = frame(response, request.method, http_1_0=request.http_1_0, keep=keep)
                milliseconds = (context.now() - started) * 1000
                timing = f"{request.timing}total;dur={milliseconds:.1f}"
                common = context.common_headers()
                head = render_head(response, common, request.request_id, framing, timing)
                count, body = 0, response.body
                if framing.bodiless:
                    writer.write(head)
                elif isinstance(body, bytes) and len(body) <= ONE_WRITE_BYTES:
                    count = len(body)
                    writer.write(head + body)
                    if writer.full:
                        await writer.drain()
                else:
                    count = await send_body(writer, head, response, chunked=framing.chunked)
                return Sent(response.status, count, error, keep=framing.connection != "close")
            finally:
                if not isinstance(response.body, bytes):
                    await close_body(response)
        except ConnectionLostError:
            return Sent(0, 0, error, keep=False)
        except Exception as failure:
            if is_replacement:
                raise
            if writer.begun:
                # Cutting the connection is the only way left to signal that the body is incomplete.
                writer.transport.abort()
                return Sent(response.status, 0, failure, keep=False)
            error = failure  # of the body's iterator, which is the handler's code
        replacement = context.on_error(request, error)
        return await self._send(writer, request, replacement, error, started, is_replacement=True)

    async def _drop_rest(self, writer: ResponseWriter, request: Request, *, keep: bool) -> bool:
        """Handles the unread rest of the request's body; returns whether to continue."""
        if keep:
            stall_s = self._context.limits.body_stall_timeout_s
            return await self._discard(request.body.drop(), stall_s)
        await self._linger(writer)
        return False

    async def _discard(self, count: int, seconds: float) -> bool:
        """Drops the bytes that are received next; returns whether all of them arrived in time."""
        self._body = discard = Discard(count, self._context.head_view, self)
        try:
            return await discard.wait(seconds)
        finally:
            self._body = None

    async def _linger(self, writer: ResponseWriter) -> None:
        """Closes our side, and for a moment discards the bytes that the client still sends. Closing a socket with
        unread bytes resets the connection, and the reset may overtake the answer."""
        if writer.lost or writer.transport.is_closing():
            return
        if writer.transport.can_write_eof():
            writer.transport.write_eof()
        await self._discard(LINGER_BYTES_MAX, self._context.limits.linger_s)

    # --- called by the server

    @property
    def is_identified(self) -> bool:
        """Whether a handler has identified the client, by this request or an earlier one."""
        return self._identified or (self._request is not None and self._request.identified)

    @property
    def is_serving(self) -> bool:
        """Whether a handler works for the connection now."""
        return self._request is not None and not self._request.is_queued

    @property
    def unsent(self) -> Unsent | None:
        """The answer that waits for the client; None if none waits."""
        writer = self._writer
        if writer is None or writer.waiting_since is None:
            return None
        return Unsent(writer.waiting_since, writer.transport.get_write_buffer_size())

    def sweep(self, now: float) -> None:
        """Ends waits that exceed their limits; called about once a second."""
        limits = self._context.limits
        writer = self._writer
        if writer is None:
            return
        if self._next is not None and not self._next.done():
            if now > self._deadline:
                error = HeadError(408, "the head did not arrive in time")
                self._next.set_result(error if self._request_begun and self._pending else None)
        elif writer.waiting_since is not None:
            if now - writer.waiting_since > limits.write_stall_timeout_s:
                self.cut_answer()
        elif self._body is not None:
            self._body.sweep(now, self._last_read, limits.body_stall_timeout_s)

    def cut_answer(self) -> None:
        """Ends the connection while its client does not take an answer; its sender meets `ConnectionLostError`."""
        if self._writer is not None:
            self._writer.transport.abort()

    def excuse(self, seconds: float) -> None:
        """Moves the beginnings of all waits: the process itself stood still."""
        self._deadline += seconds
        self._last_read += seconds
        if self._writer is not None and self._writer.waiting_since is not None:
            self._writer.waiting_since += seconds
        if self._body is not None:
            self._body.excuse(seconds)

    def end_idle(self) -> None:
        """Ends the connection if it waits for a request."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)

    def abort(self) -> None:
        """Ends the connection immediately, whatever its state."""
        if self._writer is not None:
            self._writer.transport.abort()
        if self._task is not None:
            self._task.cancel()
