"""The server's side of coalesced streams; `tarn.rpc.client.operation_streams` describes the protocol."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import grpc
from google.protobuf.message import DecodeError, Message

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.stream_connection import OperationMessage, ResultMessage
from tarn.rpc.rules import OPERATION
from tarn.rpc.server.auditing import RpcAudit, peer_address
from tarn.rpc.server.call_maker import CallMaker
from tarn.rpc.server.certificates import certificate_names
from tarn.rpc.server.inflight import InFlight
from tarn.rpc.server.refusing import sent_whole
from tarn.rpc.server.slots import Slot, Slots, proves_caller
from tarn.rpc.server.work_room import WorkRoom, WorkRooms
from tarn.rpc.wire.batch import (
    BATCH_BYTES_MAX,
    BATCH_OPERATIONS_MAX,
    UNCOUNTED_BYTES_MAX,
    Batch,
    refusal_of,
)
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import error_to_operation, overload_error
from tarn.rpc.wire.methods import Handle, OperateMethod
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing

__all__ = ["OPEN_MAX", "Finished", "OperationServer"]

OPEN_MAX = 2048
"""Unanswered operations of one stream at which the server stops reading. Above the client's window, so
that only clients without a window reach it."""

UNAUTHENTICATED_OPEN_MAX = BATCH_OPERATIONS_MAX
"""The same before an operation of the stream has proved its caller."""

_GRACE_SECONDS = 10.0
"""After a stream without proof of its caller was asked to stop."""

Finished = Callable[[Call, TarnError | None, float], None]
"""Called for every operation with its call, its error, and its start (monotonic)."""


class OperationBatch(Protocol):
    """The `OperateRequest` message of any service."""

    @property
    def operations(self) -> Sequence[OperationMessage]:
        """The operations, in the order in which they are begun."""
        ...


class OperationServer:
    """Answers the streams of one service.

    Args:
        slots: tell which streams belong to authenticated callers.
        rooms: bound the operations of all streams of the process.
    """

    def __init__(
        self,
        method: OperateMethod,
        handle: Handle,
        in_flight: InFlight,
        slots: Slots,
        rooms: WorkRooms,
        maker: CallMaker,
        clock: Clock,
        finished: Finished,
        tracing: Tracing,
        meters: Meters,
        audit: RpcAudit | None = None,
    ) -> None:
        self.method = method
        self.handle = handle
        self.in_flight = in_flight
        self.slots = slots
        self.rooms = rooms
        self.maker = maker
        self.clock = clock
        self.finished = finished
        self.tracing = tracing
        self.audit = audit
        self.refused = meters.counter("rpc.refused", bound="message")
        self._streams: set[_Stream] = set()
        self._stopping = False

    async def answer(self, slot: Slot, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Serves one stream in its slot, from its opening to its end.

        Raises:
            TarnError: INVALID: the client broke the protocol. EXHAUSTED: the stream proved no caller in time, or its
                slot was taken away.
        """
        stream = _Stream(self, slot)
        self._streams.add(stream)
        try:
            if self._stopping:
                stream.ask_to_stop()
            if not slot.is_authenticated:
                stream.expect_proof()
            await slot.wait(stream.run(context))
        finally:
            stream.forget_proof()
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


class _Message:
    """The room of one message of a stream: its operations leave it one by one, its bytes with the last of them."""

    __slots__ = ("_left", "_room", "_size_bytes")

    def __init__(self, room: WorkRoom, operations: int, size_bytes: int) -> None:
        self._room = room
        self._left = operations
        self._size_bytes = size_bytes

    def operation_ended(self) -> None:
        """Called once for each operation, whatever became of it."""
        self._left -= 1
        self._room.give(1, 0 if self._left else self._size_bytes)


class _Stream:
    """One stream of one client."""

    def __init__(self, server: OperationServer, slot: Slot) -> None:
        self._server = server
        self._slot = slot
        self._proof_key = 0
        self._source = ""
        self._names: frozenset[str] = frozenset()
        self._ready: deque[bytes] = deque()  # encoded results
        self._open_count = 0  # operations begun whose results are not yet sent
        self._read_all = False
        self._alive = True
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Reads, begins and answers operations until the client has sent all and received all results.

        If the client disconnects, this is cancelled or returns; begun operations continue (`InFlight`).

        Raises:
            TarnError: INVALID: a message that is no batch; nothing of it was begun.
        """
        self._names = certificate_names(context.auth_context())
        refusal: TarnError | None = None
        if self._server.audit is not None:
            self._source = peer_address(context.peer())
        try:
            async with asyncio.TaskGroup() as group:
                await sent_whole(context.send_initial_metadata(()))
                writing = group.create_task(self._write(context))
                refusal = await self._read(context)
                if refusal is not None:
                    writing.cancel()
                self._read_all = True
                self._wake.set()
        except* grpc.aio.InternalError:
            pass  # grpc could not send: the client disconnected, and grpc has not cancelled this yet
        finally:
            self._alive = False
        if refusal is not None:
            raise refusal

    def ask_to_stop(self) -> None:
        """Sends the result with id 0."""
        self._open_count += 1
        self._push(b"")

    def expect_proof(self) -> None:
        """Ends the stream unless one of its operations proves the caller in time; a service opens it again."""
        slots = self._server.slots

        def stop() -> None:
            if not self._slot.is_authenticated:
                self.ask_to_stop()
                self._proof_key = slots.call_at(_GRACE_SECONDS, end)

        def end() -> None:
            text = (
                "no operation of the stream carried a valid token; open it again when there is one"
            )
            self._slot.take_away(overload_error(text))

        self._proof_key = slots.call_at(slots.limits.idle_s, stop)

    def forget_proof(self) -> None:
        """Called at the end of the stream."""
        self._server.slots.leave_call(self._proof_key)

    async def _read(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> TarnError | None:
        """Reads to the end, or to a message that breaks the protocol, whose error it returns."""
        slot, rooms = self._slot, self._server.rooms
        while True:
            encoded: object = await context.read()
            if encoded is grpc.aio.EOF:
                return None
            assert isinstance(encoded, bytes), "the stream has no deserializer"
            try:
                operations = self._operations(encoded)
            except TarnError as error:
                return error
            if not operations:
                continue
            if not slot.is_authenticated:
                self._look_for_token(operations)
            room = rooms.authenticated if slot.is_authenticated else rooms.unauthenticated
            count, size = len(operations), len(encoded)
            if not room.take_now(
                count, size
            ):  # waiting is rare, and a coroutine costs more than a call
                await room.take(count, size)
            message = _Message(room, count, size)
            for operation in operations:
                self._begin(operation, message)
            if self._open_count >= UNAUTHENTICATED_OPEN_MAX or self._open_count >= OPEN_MAX:
                await self._answers()

    async def _answers(self) -> None:
        """Waits until the stream may have more unanswered operations."""
        while self._open_count >= (
            OPEN_MAX if self._slot.is_authenticated else min(OPEN_MAX, UNAUTHENTICATED_OPEN_MAX)
        ):
            self._room.clear()
            await self._room.wait()

    def _operations(self, encoded: bytes) -> Sequence[OperationMessage]:
        """Returns the operations of a message.

        Raises:
            TarnError: INVALID: there are too many, or the message is no batch.
        """
        server = self._server
        refusal = refusal_of(encoded) if len(encoded) > UNCOUNTED_BYTES_MAX else ""
        try:
            if not refusal:
                batch: object = server.method.request_type.FromString(encoded)
                operations = cast("OperationBatch", batch).operations
                if len(operations) <= BATCH_OPERATIONS_MAX:
                    return operations
                refusal = f"a message has {len(operations)} operations; at most {BATCH_OPERATIONS_MAX} are allowed"
        except DecodeError:
            refusal = f"a message is no {server.method.request_type.DESCRIPTOR.name}"
        server.refused.add()
        text = f"{server.method.path}: {refusal}"
        facts = {"field": "operations", "limit": str(BATCH_OPERATIONS_MAX)}
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, **facts)

    def _look_for_token(self, operations: Sequence[OperationMessage]) -> None:
        slot, last = self._slot, ""
        for operation in operations:
            token = operation.header.caller_token
            if token != last and self._server.slots.knows(token, slot.accepts):
                slot.authenticate("")
                return
            last = token

    def _begin(self, operation: OperationMessage, message: _Message) -> None:
        server, slot = self._server, self._slot
        header = operation.header
        operation_id = header.operation_id
        started = server.clock.monotonic()
        call = server.maker.make(
            header.request_id,
            header.caller_token,
            header.timeout_ms / 1000,
            self._names,
            header.service_token,
            header.bucket,
        )
        request = cast("Message", operation)
        self._open_count += 1

        def done(outcome: Message | TarnError) -> None:
            error = outcome if isinstance(outcome, TarnError) else None
            if not slot.is_authenticated and proves_caller(error):
                slot.authenticate(call.caller_token)
            if self._alive:
                self._push(self._encode(operation_id, outcome))
            message.operation_ended()
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

    async def _write(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
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
