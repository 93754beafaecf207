"""Coalesced streams: hot operations of one service over one bidirectional stream per address.

A unary grpc.aio call costs 240 µs of CPU on both sides together; an operation here costs about 6, because
all operations that are ready in one tick of the event loop travel in one message
(docs/design/hot-path.md). There is no timer: an idle system adds no delay, a busy one forms larger batches by itself.

The protocol, above `rpc Operate(stream OperateRequest) returns (stream OperateResponse)`:

- The server sends its initial metadata immediately; only then is the stream open.
- Every operation has an id, unique on its stream and never 0, and its remaining time. There is one result
  for each operation, in any order. A result whose caller has left is dropped.
- A result with id 0 announces that the server wants to stop. The client then sends nothing more, half-closes,
  and receives the results of all operations that it sent. The stream then ends without an unknown outcome.
- Both sides are bounded: callers by `OUTSTANDING_MAX`, a stream by `stream_connection.WINDOW` operations without
  an answer, a message by 256 operations and 1 MiB; a server at its limit does not read. It ends a stream with a larger
  message.
- A server that does not know the caller gives the stream a slot among strangers (`tarn.rpc.server.slots`) until an
  operation proves it. Without proof it asks the client to stop after a minute, and then ends the stream.
- Without a connection, operations wait for one: all together some seconds, then each only briefly (`patience`).
- When a stream is lost, unsent operations move to another one, reads are sent again while their time
  allows, and writes fail with UNKNOWN_OUTCOME (`Pending.may_be_sent_again` gives the reason).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from functools import partial

import grpc
from google.protobuf.message import Message

from tarn.aio.deadlines import DeadlineSweep
from tarn.aio.task_set import TaskSet
from tarn.core.clock import Clock
from tarn.rpc.client.patience import Patience
from tarn.rpc.client.stream_connection import Pending, StreamConnection
from tarn.rpc.client.transport import garbled
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import overload_error, unavailable_error
from tarn.rpc.wire.methods import OperateMethod, enveloped

__all__ = ["OUTSTANDING_MAX", "OperationStreams"]

OUTSTANDING_MAX = 4096
"""Bound on the waiting callers of one service; further calls immediately fail with EXHAUSTED."""


class OperationStreams:
    """The client's end of a service's streams: one connection per address; the least loaded gets the next operation.

    So the load follows the capacity of each address, and a slow or lost address gets less or none. Idle addresses take
    turns.
    """

    def __init__(
        self,
        method: OperateMethod,
        clock: Clock,
        rng: random.Random,
        place: str,
        patience: Patience,
    ) -> None:
        self._method = method
        self._place = place
        self._patience = patience
        self._clock = clock
        self._rng = rng
        self._tasks = TaskSet()
        self._sweep = DeadlineSweep(clock)
        self._connections: dict[str, StreamConnection] = {}
        self._waiting: deque[Pending] = deque()
        self._outstanding = 0
        self._last_id = 0
        self._closed = False

    def add(self, address: str, channel: grpc.aio.Channel) -> None:
        """Opens a connection to another address, and keeps it open."""
        connection = StreamConnection(address, channel, self._method, self, self._clock, self._rng)
        self._connections[address] = connection
        self._tasks.spawn(connection.run())

    def retire(self, address: str) -> None:
        """Stops sending to an address; operations already sent are still answered."""
        self._connections.pop(address).retire()

    async def operate(
        self, operation: str, request: Message, call: Call, *, read_only: bool
    ) -> Message:
        """Sends one operation; see `Transport.operate`."""
        envelope = enveloped(self._method.operation_type, operation, request)
        result = await self._send(envelope, call, read_only=read_only)
        if not result.HasField(operation):
            raise garbled(f"a result without {operation!r}")
        answer: Message = getattr(result, operation)
        return answer

    async def _send(self, operation: Message, call: Call, *, read_only: bool) -> Message:
        """Sends an operation in its envelope; fills in the header."""
        call.remaining(self._clock)
        if self._closed:
            raise unavailable_error("the transport has been closed")
        if self._outstanding >= OUTSTANDING_MAX:
            text = f"{OUTSTANDING_MAX} operations wait for {self._method.path} already; try again later"
            raise overload_error(text)
        self._last_id += 1
        pending = Pending(operation, self._last_id, call, read_only=read_only)
        key = self._sweep.enter(call.deadline, pending.expire)
        self._outstanding += 1
        self.dispatch(pending)
        try:
            return await pending.answer
        finally:
            self._outstanding -= 1
            self._sweep.leave(key)
            if pending.patience_key is not None:
                self._sweep.leave(pending.patience_key)
            pending.withdraw()

    async def close(self) -> None:
        """Ends operations in flight: sent writes fail with UNKNOWN_OUTCOME, all others with UNAVAILABLE."""
        self._closed = True
        await self._tasks.close()  # the connections hand over their operations
        for pending in [*self._waiting]:
            pending.fail(unavailable_error("the transport was closed"))
        self._connections.clear()
        self._sweep.close()

    def waiting_token(self) -> str:
        """Returns the caller token of the operation that has waited longest for a connection."""
        return self._waiting[0].call.caller_token if self._waiting else ""

    def connection_opened(self) -> None:
        """Sends the operations that waited for a connection."""
        self._patience.end()
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            self.dispatch(pending)

    def dispatch(self, pending: Pending) -> None:
        """Gives an operation to the least loaded connection, or queues it until there is one."""
        connection = _least_loaded(self._connections.values())
        if pending.answer.done():
            pending.queue = None
        elif connection is None:
            pending.wait_in(self._waiting)
            if pending.patience_key is None:
                now = self._clock.monotonic()
                until = now + self._patience.left_s(now)
                if until < pending.call.deadline:
                    pending.patience_key = self._sweep.enter(until, partial(self._give_up, pending))
        else:
            # Among equally loaded connections the first is chosen, so the last used one goes to the end.
            self._connections[connection.address] = self._connections.pop(connection.address)
            connection.submit(pending)

    def _give_up(self, pending: Pending) -> None:
        """Fails an operation that still waits for a connection: it surely had no effect, or is a read."""
        pending.patience_key = None
        if pending.queue is self._waiting:
            pending.fail(unavailable_error(f"cannot connect to {self._place}"))


def _least_loaded(connections: Iterable[StreamConnection]) -> StreamConnection | None:
    best, best_load = None, 0
    for connection in connections:
        if connection.is_open and (best is None or connection.load < best_load):
            best, best_load = connection, connection.load
    return best
