"""The server's side of coalesced streams; `tarn.rpc.client.operation_streams` describes the protocol."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, cast

import grpc
from google.protobuf.message import Message

from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.rpc.client.stream_connection import OperationMessage, ResultMessage
from tarn.rpc.rules import OPERATION
from tarn.rpc.server.auditing import RpcAudit, peer_address
from tarn.rpc.server.certificates import certificate_names
from tarn.rpc.server.inflight import InFlight
from tarn.rpc.wire.batch import BATCH_BYTES_MAX, Batch
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import error_to_operation, overload_error
from tarn.rpc.wire.methods import Handle, OperateMethod
from tarn.telemetry.tracing import Tracing

__all__ = ["OPEN_MAX", "Finished", "OperationServer"]

OPEN_MAX = 2048
"""Unanswered operations of one stream at which the server stops reading. Above the client's window, so
that only clients without a window reach it."""

Finished = Callable[[Call, TarnError | None, float], None]
"""Called for every operation with its call, its error, and its start (monotonic)."""


class OperationBatch(Protocol):
    """The `OperateRequest` message of any service."""

    @property
    def operations(self) -> Iterable[OperationMessage]:
        """The operations, in the order in which they are begun."""
        ...


class CallMaker(Protocol):
    """Makes the call of an operation from its header, within the server's limits."""

    def __call__(
        self, request_id: str, caller_token: str, timeout_s: float, names: frozenset[str]
    ) -> Call:
        """Makes a call; a time of 0 means the default."""
        ...


class OperationServer:
    """Answers the streams of one service."""

    def __init__(
        self,
        method: OperateMethod,
        handle: Handle,
        in_flight: InFlight,
        make_call: CallMaker,
        clock: Clock,
        finished: Finished,
        tracing: Tracing,
        audit: RpcAudit | None = None,
    ) -> None:
        self.method = method
        self.handle = handle
        self.in_flight = in_flight
        self.make_call = make_call
        self.clock = clock
        self.finished = finished
        self.tracing = tracing
        self.audit = audit
        self._streams: set[_Stream] = set()
        self._stopping = False

    async def answer(
        self, _requests: object, context: grpc.aio.ServicerContext[Message, bytes]
    ) -> None:
        """Serves one stream, from its opening to its end; a handler for grpc.aio."""
        stream = _Stream(self)
        self._streams.add(stream)
        try:
            if self._stopping:
                stream.ask_to_stop()
            await stream.run(context)
        finally:
            self._streams.discard(stream)

    def stop(self) -> None:
        """Asks all clients to stop sending on these streams, and on streams opened later."""
        self._stopping = True
        for stream in self._streams:
            stream.ask_to_stop()


def _traced(server: OperationServer, inner: Handle, traceparent: str) -> Handle:
    async def handle(request: Message, call: Call) -> Message:
        with server.tracing.span(server.method.path, traceparent):
            return await inner(request, call)

    return handle


class _Stream:
    """One stream of one client."""

    def __init__(self, server: OperationServer) -> None:
        self._server = server
        self._source = ""
        self._names: frozenset[str] = frozenset()
        self._ready: deque[bytes] = deque()  # encoded results
        self._open_count = 0  # operations begun whose results are not yet sent
        self._read_all = False
        self._alive = True
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self, context: grpc.aio.ServicerContext[Message, bytes]) -> None:
        """Reads, begins and answers operations until the client has sent all and received all results.

        If the client disconnects, this is cancelled or returns; begun operations continue (`InFlight`).
        """
        self._names = certificate_names(context.auth_context())
        if self._server.audit is not None:
            self._source = peer_address(context.peer())
        try:
            async with asyncio.TaskGroup() as group:
                await context.send_initial_metadata(())
                group.create_task(self._write(context))
                await self._read(context)
                self._read_all = True
                self._wake.set()
        except* grpc.aio.InternalError:
            pass  # grpc could not send: the client disconnected, and grpc has not cancelled this yet
        finally:
            self._alive = False

    def ask_to_stop(self) -> None:
        """Sends the result with id 0."""
        self._open_count += 1
        self._push(b"")

    async def _read(self, context: grpc.aio.ServicerContext[Message, bytes]) -> None:
        while True:
            batch: object = await context.read()
            if batch is grpc.aio.EOF:
                return
            for operation in cast("OperationBatch", batch).operations:
                self._begin(operation)
            while self._open_count >= OPEN_MAX:
                self._room.clear()
                await self._room.wait()

    def _begin(self, operation: OperationMessage) -> None:
        server = self._server
        header = operation.header
        operation_id = header.operation_id
        started = server.clock.monotonic()
        call = server.make_call(
            header.request_id, header.caller_token, header.timeout_ms / 1000, self._names
        )
        request = cast("Message", operation)
        self._open_count += 1

        def done(outcome: Message | TarnError) -> None:
            error = outcome if isinstance(outcome, TarnError) else None
            if self._alive:
                self._push(self._encode(operation_id, outcome))
            server.finished(call, error, started)

        handle = server.handle
        if server.audit is not None:
            name = request.WhichOneof(OPERATION) or ""
            handle = server.audit.recorded(handle, name, self._source)
        if header.traceparent and server.tracing.is_on:
            handle = _traced(server, handle, header.traceparent)
        try:
            server.in_flight.begin(handle, request, call, done)
        except TarnError as error:
            done(error)

    def _encode(self, operation_id: int, outcome: Message | TarnError) -> bytes:
        """Encodes a result for the wire immediately, because the handler may reuse the message."""
        if isinstance(outcome, TarnError):
            failed = self._server.method.result_type(
                operation_id=operation_id, error=error_to_operation(outcome)
            )
            return failed.SerializeToString()
        cast("ResultMessage", outcome).operation_id = operation_id
        encoded = outcome.SerializeToString()
        if len(encoded) > BATCH_BYTES_MAX:
            text = f"the result of {len(encoded)} bytes is larger than {BATCH_BYTES_MAX}"
            return self._encode(operation_id, overload_error(text))
        return encoded

    def _push(self, encoded: bytes) -> None:
        self._ready.append(encoded)
        self._wake.set()

    async def _write(self, context: grpc.aio.ServicerContext[Message, bytes]) -> None:
        """Sends ready results, one message at a time; returns when no more can become ready."""
        while self._open_count or not self._read_all:
            batch = Batch()
            while self._ready and batch.has_room(self._ready[0]):
                batch.add(self._ready.popleft())
            if batch.count:
                await context.write(batch.encode())
                self._open_count -= batch.count
                self._room.set()
            else:
                self._wake.clear()
                await self._wake.wait()
