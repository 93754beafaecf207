"""The client's side of one coalesced stream to one address: sends operations, matches results, detects loss.

`tarn.rpc.client.operation_streams` describes the protocol of both sides.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from collections.abc import Iterable
from typing import Literal, Protocol, cast

import grpc
import structlog
from google.protobuf.message import Message

from tarn.aio.backoff import backoff_seconds
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.batch import BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Batch
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import (
    deadline_error,
    error_from_operation,
    unavailable_error,
    unknown_outcome_error,
)
from tarn.rpc.wire.metadata import AUTHORIZATION, BEARER
from tarn.rpc.wire.methods import OperateMethod
from tarn.telemetry.tracing import TRACEPARENT
from tarn_proto.common.v1.operation_pb2 import OperationError, OperationHeader

__all__ = ["StreamConnection", "Pending", "WINDOW"]

WINDOW = 1024
"""Bound on the unanswered operations of one stream; further operations wait unsent in the client."""

ATTEMPTS_MAX = 5
"""Bound on sending one read. A read that crashes every server it reaches must not reach all of them."""

TIMEOUT_MS_MAX = 24 * 3600 * 1000
"""Greatest value in a header: the field has 32 bits, and a deadline may be infinite."""

_TOKEN = re.compile(r"[\x21-\x7e]{1,2048}")
"""What a header may hold. Another token fails its caller only, not the stream."""

_log = structlog.get_logger()

Stream = grpc.aio.StreamStreamCall[bytes, Message]


class OperationMessage(Protocol):
    """The `Operation` message of any service."""

    @property
    def header(self) -> OperationHeader:
        """The header, filled in by the connection that sends the operation."""
        ...

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Encoded."""
        ...


class ResultMessage(Protocol):
    """The `OperationResult` message of any service."""

    operation_id: int

    @property
    def error(self) -> OperationError:
        """The error; set if the operation failed."""
        ...

    def HasField(self, field_name: Literal["error"]) -> bool:  # noqa: N802 - protobuf's name
        """Returns whether the field is set: for `error`, whether the operation failed."""
        ...


class ResultBatch(Protocol):
    """The `OperateResponse` message of any service."""

    @property
    def results(self) -> Iterable[ResultMessage]:
        """The results, in any order."""
        ...


class Pending:
    """An operation whose caller waits.

    Attributes:
        answer: the future that the caller awaits; done early when the caller leaves or the deadline passes.
        queue: the queue in which the operation waits to be sent; None once it is sent.
        patience_key: the entry that bounds its wait for a connection; None if it never waited for one.
        attempts: number of times it was handed to gRPC. From the first time on, it may take effect.
    """

    __slots__ = (
        "answer",
        "attempts",
        "call",
        "operation",
        "operation_id",
        "patience_key",
        "queue",
        "read_only",
    )

    def __init__(
        self, operation: Message, operation_id: int, call: Call, *, read_only: bool
    ) -> None:
        self.operation = cast("OperationMessage", operation)
        # Set here so that an invalid string fails this caller, not the shared stream.
        self.operation.header.request_id = call.request_id
        self.operation.header.caller_token = call.caller_token
        if call.service_token:
            self.operation.header.service_token = call.service_token
        if call.bucket:
            self.operation.header.bucket = call.bucket
        if traceparent := TRACEPARENT.get():
            self.operation.header.traceparent = traceparent
        self.operation_id = operation_id
        self.call = call
        self.read_only = read_only
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.queue: deque[Pending] | None = None
        self.patience_key: int | None = None
        self.attempts = 0

    def wait_in(self, queue: deque[Pending]) -> None:
        """Appends the operation to a queue."""
        self.queue = queue
        queue.append(self)

    def withdraw(self) -> None:
        """Removes the operation from its queue, if any. The oldest leave first, so this is O(1) in practice."""
        if self.queue is not None:
            self.queue.remove(self)
            self.queue = None

    def encode(self, now: float) -> bytes:
        """Encodes the operation with its remaining time at `now`."""
        header = self.operation.header
        header.operation_id = self.operation_id
        header.timeout_ms = max(1, int(min((self.call.deadline - now) * 1000, TIMEOUT_MS_MAX)))
        return self.operation.SerializeToString()

    def fail(self, error: TarnError) -> None:
        """Ends the caller's wait with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def expire(self) -> None:
        """Fails the operation at its deadline; the error says whether it may have taken effect."""
        request_id = self.call.request_id
        if not self.attempts:
            self.fail(unavailable_error(f"no stream took request {request_id} in time"))
        elif self.read_only:
            self.fail(deadline_error(request_id))
        else:
            self.fail(unknown_outcome_error(f"no answer to the write of request {request_id}"))

    def may_be_sent_again(self) -> bool:
        """Returns whether the operation may be sent again after the loss of its stream.

        Never for a write: the first attempt may still be executed by a server that we have lost contact
        with. If we sent the write again and a newer write of another caller were acknowledged in
        between, a late first attempt, or our second, would undo that newer write. The S3 client
        retries instead: its own attempts are in order, and no caller has been told of success.
        """
        return self.read_only and self.attempts < ATTEMPTS_MAX


class ConnectionOwner(Protocol):
    """Takes over operations that a connection cannot send."""

    def waiting_token(self) -> str:
        """Returns the caller token of an operation that waits for a connection; empty if none does."""
        ...

    def connection_opened(self) -> None:
        """Called when the connection starts to accept operations."""
        ...

    def dispatch(self, pending: Pending) -> None:
        """Finds another connection for an operation."""
        ...


class StreamConnection:
    """A stream to one address that is reopened whenever it is lost.

    Attributes:
        is_open: whether it accepts operations; false while connecting and after the server asked to stop.
    """

    def __init__(
        self,
        address: str,
        channel: grpc.aio.Channel,
        method: OperateMethod,
        owner: ConnectionOwner,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.address = address
        self.is_open = False
        self._open_stream: grpc.aio.StreamStreamMultiCallable[bytes, Message] = (
            channel.stream_stream(
                method.path, response_deserializer=method.response_type.FromString
            )
        )
        self._owner = owner
        self._clock = clock
        self._rng = rng
        self._unsent: deque[Pending] = deque()
        self._sent: dict[int, Pending] = {}
        self._wake = asyncio.Event()
        self._retired = False

    @property
    def load(self) -> int:
        """Number of operations that this connection has accepted and not answered."""
        return len(self._unsent) + len(self._sent)

    def submit(self, pending: Pending) -> None:
        """Accepts an operation; it is sent together with all others of this tick of the event loop."""
        pending.wait_in(self._unsent)
        self._wake.set()

    def retire(self) -> None:
        """Stops accepting operations; `run` returns when all sent operations are answered."""
        self._retired = True
        self._stop_sending()

    async def run(self) -> None:
        """Keeps the stream open until the connection is retired or this task is cancelled."""
        failures = 0
        while not self._retired:
            opened = await self._run_once()
            failures = 0 if opened else failures + 1
            if not self._retired:
                await self._clock.sleep(backoff_seconds(self._rng, failures))

    async def _run_once(self) -> bool:
        """Runs one stream until it ends; returns whether it was opened."""
        opened = False
        # Connecting has no deadline of its own: operations wait elsewhere, each with its own deadline.
        # The token, if there is one, keeps the stream out of the share of callers that the server does not know.
        token = self._owner.waiting_token()
        metadata = ((AUTHORIZATION, BEARER + token),) if _TOKEN.fullmatch(token) else None
        stream: Stream = self._open_stream(wait_for_ready=True, metadata=metadata)
        try:
            await stream.wait_for_connection()
            self.is_open = opened = True
            self._owner.connection_opened()
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(stream))
                await self._read(stream)
                writer.cancel()
        except* (grpc.RpcError, asyncio.InvalidStateError) as lost:
            error = str(lost.exceptions[0]).splitlines()[0]
            _log.warning("stream lost", address=self.address, error=error)
        except* Exception as broken:  # noqa: BLE001 - see below
            # A bug, here or in gRPC, ends this stream and not the connection.
            _log.error("stream broken", address=self.address, exc_info=broken)
        finally:
            stream.cancel()
            self.is_open = False
            self._hand_over()
        return opened

    async def _write(self, stream: Stream) -> None:
        """Sends queued operations, one message at a time, until sending stops."""
        while self.is_open:
            if stream.done():
                return  # the stream is lost: the rest stays unsent
            if batch := self._next_batch():
                await stream.write(batch)
            else:
                self._wake.clear()
                await self._wake.wait()
        await stream.done_writing()
        self._hand_over_unsent()

    async def _read(self, stream: Stream) -> None:
        """Delivers results to their callers until the stream ends."""
        while (message := await stream.read()) is not grpc.aio.EOF:
            for result in cast("ResultBatch", message).results:
                if not result.operation_id:
                    self._stop_sending()
                    continue
                pending = self._sent.pop(result.operation_id, None)
                if pending is None or pending.answer.done():
                    continue  # too late: the caller has left
                if result.HasField("error"):
                    pending.answer.set_exception(error_from_operation(result.error))
                else:
                    pending.answer.set_result(cast("Message", result))
            if self._unsent:
                self._wake.set()

    def _next_batch(self) -> bytes:
        """Encodes the operations that may be sent now; empty if there are none."""
        batch = Batch()
        now = self._clock.monotonic()
        unsent, sent = self._unsent, self._sent
        while unsent and len(sent) < WINDOW and batch.count < BATCH_OPERATIONS_MAX:
            pending = unsent[0]
            encoded = pending.encode(now)
            if len(encoded) > BATCH_BYTES_MAX:
                pending.withdraw()
                pending.fail(_too_large(len(encoded)))
                continue
            if not batch.has_room(encoded):
                break
            unsent.popleft()
            pending.queue = None
            pending.attempts += 1
            sent[pending.operation_id] = pending
            batch.add(encoded)
        return batch.encode()

    def _stop_sending(self) -> None:
        self.is_open = False
        self._wake.set()

    def _hand_over(self) -> None:
        """After the loss of the stream, fails or hands over every operation of this connection."""
        sent, self._sent = self._sent, {}
        for pending in sent.values():
            if pending.answer.done():
                continue
            if pending.may_be_sent_again():
                self._owner.dispatch(pending)
            elif pending.read_only:
                text = f"{pending.attempts} streams were lost while {self.address} and others read"
                pending.fail(unavailable_error(text))
            else:
                text = f"the stream to {self.address} was lost before the answer to a write"
                pending.fail(unknown_outcome_error(text))
        self._hand_over_unsent()

    def _hand_over_unsent(self) -> None:
        while self._unsent:
            self._owner.dispatch(self._unsent.popleft())


def _too_large(size_bytes: int) -> TarnError:
    text = f"operation of {size_bytes} bytes is larger than {BATCH_BYTES_MAX}"
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, size_bytes=str(size_bytes))
