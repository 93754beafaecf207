"""One coalesced stream to one address, from the client's side: sends, matches, notices its loss.

The protocol of both sides is in `tarn.rpc.wire.stream`.
"""

from __future__ import annotations

import asyncio
import random
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
from tarn.rpc.wire.methods import OperateMethod
from tarn_proto.common.v1.operation_pb2 import OperationError, OperationHeader

__all__ = ["StreamConnection", "Pending", "WINDOW"]

WINDOW = 1024
"""Operations of one stream that may wait for their answers; more stay unsent, on our side."""

ATTEMPTS_MAX = 5
"""How often one read is sent: one that kills every server it reaches shall not reach them all."""

TIMEOUT_MS_MAX = 24 * 3600 * 1000
"""What a header says at most; the field holds 32 bits, and a deadline may be infinite."""

_log = structlog.get_logger()

Stream = grpc.aio.StreamStreamCall[bytes, Message]


class OperationMessage(Protocol):
    """The Operation of any service."""

    @property
    def header(self) -> OperationHeader:
        """Filled in by the connection that sends it."""
        ...

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Encoded."""
        ...


class ResultMessage(Protocol):
    """The OperationResult of any service."""

    operation_id: int

    @property
    def error(self) -> OperationError:
        """Set if it failed."""
        ...

    def HasField(self, field_name: Literal["error"]) -> bool:  # noqa: N802 - protobuf's name
        """Whether it failed."""
        ...


class ResultBatch(Protocol):
    """The OperateResponse of any service."""

    @property
    def results(self) -> Iterable[ResultMessage]:
        """In any order."""
        ...


class Pending:
    """An operation whose caller waits.

    Attributes:
        answer: what the caller waits for; done early when the caller leaves or time is up.
        queue: where it waits to be sent; None once it is on its way.
        attempts: how often it was handed to gRPC, which is the moment from which it may take effect.
    """

    __slots__ = ("answer", "attempts", "call", "operation", "operation_id", "queue", "read_only")

    def __init__(
        self, operation: Message, operation_id: int, call: Call, *, read_only: bool
    ) -> None:
        self.operation = cast("OperationMessage", operation)
        # Here, where a text that is no text fails its caller and not the stream of all.
        self.operation.header.request_id = call.request_id
        self.operation.header.caller_token = call.caller_token
        self.operation_id = operation_id
        self.call = call
        self.read_only = read_only
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.queue: deque[Pending] | None = None
        self.attempts = 0

    def wait_in(self, queue: deque[Pending]) -> None:
        """Joins the end of a queue."""
        self.queue = queue
        queue.append(self)

    def withdraw(self) -> None:
        """Leaves its queue, if it is in one. The oldest leave first, so this is O(1) in practice."""
        if self.queue is not None:
            self.queue.remove(self)
            self.queue = None

    def encode(self, now: float) -> bytes:
        """As it is sent now: with what is left of its time."""
        header = self.operation.header
        header.operation_id = self.operation_id
        header.timeout_ms = max(1, int(min((self.call.deadline - now) * 1000, TIMEOUT_MS_MAX)))
        return self.operation.SerializeToString()

    def fail(self, error: TarnError) -> None:
        """Ends the caller's wait."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def expire(self) -> None:
        """Time is up: says whether anything may have happened."""
        request_id = self.call.request_id
        if not self.attempts:
            self.fail(unavailable_error(f"no stream took request {request_id} in time"))
        elif self.read_only:
            self.fail(deadline_error(request_id))
        else:
            self.fail(unknown_outcome_error(f"no answer to the write of request {request_id}"))

    def may_be_sent_again(self) -> bool:
        """After the stream that it was sent on was lost.

        Never for a write: the first attempt may still be on its way through a server that we no
        longer hear. If we sent it again and a newer write of another caller were acknowledged in
        between, a late first attempt, or our second, would undo that newer write. The S3 client
        retries instead: its attempts are in order for itself, and nobody else was told of success.
        """
        return self.read_only and self.attempts < ATTEMPTS_MAX


class LaneOwner(Protocol):
    """Takes over what a connection cannot send."""

    def lane_opened(self) -> None:
        """The connection takes operations from now on."""
        ...

    def dispatch(self, pending: Pending) -> None:
        """Finds another connection for an operation."""
        ...


class StreamConnection:
    """A stream to one address that is opened again whenever it is lost.

    Attributes:
        is_open: takes operations; false while connecting and once the other side asked to stop.
    """

    def __init__(
        self,
        address: str,
        channel: grpc.aio.Channel,
        method: OperateMethod,
        owner: LaneOwner,
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
        """Operations that this connection has taken and not answered."""
        return len(self._unsent) + len(self._sent)

    def submit(self, pending: Pending) -> None:
        """Takes an operation; it goes with all others of this tick of the event loop."""
        pending.wait_in(self._unsent)
        self._wake.set()

    def retire(self) -> None:
        """Takes nothing more; `run` returns when what was sent is answered."""
        self._retired = True
        self._stop_sending()

    async def run(self) -> None:
        """Keeps the stream up until the connection is retired or this is cancelled."""
        failures = 0
        while not self._retired:
            opened = await self._run_once()
            failures = 0 if opened else failures + 1
            if not self._retired:
                await self._clock.sleep(backoff_seconds(self._rng, failures))

    async def _run_once(self) -> bool:
        """One life of the stream; whether it had one."""
        opened = False
        # Connecting has no deadline of its own: operations wait elsewhere, each with its own.
        stream: Stream = self._open_stream(wait_for_ready=True)
        try:
            await stream.wait_for_connection()
            self.is_open = opened = True
            self._owner.lane_opened()
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write(stream))
                await self._read(stream)
                writer.cancel()
        except* (grpc.RpcError, asyncio.InvalidStateError) as lost:
            error = str(lost.exceptions[0]).splitlines()[0]
            _log.warning("stream lost", address=self.address, error=error)
        except* Exception as broken:  # noqa: BLE001 - see below
            # A bug, here or in gRPC, costs this stream and not the connection.
            _log.error("stream broken", address=self.address, exc_info=broken)
        finally:
            stream.cancel()
            self.is_open = False
            self._hand_over()
        return opened

    async def _write(self, stream: Stream) -> None:
        """Sends what is there, one message at a time, until sending stops."""
        while self.is_open:
            if stream.done():
                return  # known to be lost: what is unsent stays so
            if batch := self._next_batch():
                await stream.write(batch)
            else:
                self._wake.clear()
                await self._wake.wait()
        await stream.done_writing()
        self._hand_over_unsent()

    async def _read(self, stream: Stream) -> None:
        """Hands results to who waits for them, until the stream ends."""
        while (message := await stream.read()) is not grpc.aio.EOF:
            for result in cast("ResultBatch", message).results:
                if not result.operation_id:
                    self._stop_sending()
                    continue
                pending = self._sent.pop(result.operation_id, None)
                if pending is None or pending.answer.done():
                    continue  # too late: the caller has gone
                if result.HasField("error"):
                    pending.answer.set_exception(error_from_operation(result.error))
                else:
                    pending.answer.set_result(cast("Message", result))
            if self._unsent:
                self._wake.set()

    def _next_batch(self) -> bytes:
        """Encodes what may go now; empty if nothing may."""
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
        """After the loss of the stream: nothing is left behind in this connection."""
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
