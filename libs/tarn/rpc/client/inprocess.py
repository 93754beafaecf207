"""Calls to services of the same process: the same handlers and errors as over gRPC, without a wire.

Request and response are passed without a copy. So the caller must not modify a request after the call, and
a handler must modify neither its request nor, later, its response.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.rules import OPERATE, rules_of
from tarn.rpc.server.inflight import InFlight
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import Endpoint, Handle, check_handler, handle_of
from tarn.telemetry.tracing import TRACEPARENT, child_span

__all__ = ["InProcessTransport"]


class InProcessTransport:
    """A `Transport` to the handlers of `endpoints`.

    Raises:
        TypeError: a handler lacks an rpc of its service, or an rpc has no rule. Raised by the constructor.
    """

    def __init__(self, endpoints: Sequence[Endpoint], clock: Clock) -> None:
        self._in_flight = InFlight(clock)
        self._handles: dict[tuple[str, str], Handle] = {}
        # The hot ones again, keyed by the descriptor itself: asking it for its name costs more.
        self._operations: dict[ServiceDescriptor, Handle] = {}
        for endpoint in endpoints:
            check_handler(endpoint)
            for method in endpoint.descriptor.methods:
                handle = handle_of(endpoint, method.name)
                self._handles[endpoint.name, method.name] = handle
                if method.name == OPERATE:
                    self._operations[endpoint.descriptor] = handle

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        """Makes one unary call; see `Transport.unary`."""
        handle = self._handle(service, method)
        if TRACEPARENT.get():
            handle = _traced(handle, f"/{service.full_name}/{method}")
        if rules_of(service)[method].read_only:
            return await self._in_flight.read(handle, request, call)
        return await self._in_flight.change(handle, request, call)

    async def operate(
        self, service: ServiceDescriptor, operation: Message, call: Call, *, read_only: bool
    ) -> Message:
        """Runs one operation; see `Transport.operate`. Its header stays empty: `call` has the same data."""
        handle = self._operations.get(service) or self._handle(service, OPERATE)
        if TRACEPARENT.get():
            handle = _traced(handle, f"/{service.full_name}/{OPERATE}")
        if read_only:
            return await self._in_flight.read(handle, operation, call)
        return await self._in_flight.change(handle, operation, call)

    async def drain(self, timeout_s: float) -> bool:
        """Waits for changes that outlived their callers; returns False if that exceeds `timeout_s`."""
        return await self._in_flight.drain(timeout_s)

    async def close(self) -> None:
        """Cancels running calls; their callers get UNKNOWN_OUTCOME. Idempotent."""
        await self._in_flight.close()

    def _handle(self, service: ServiceDescriptor, method: str) -> Handle:
        handle = self._handles.get((service.full_name, method))
        if handle is None:
            text = f"{service.full_name} has no {method} in this process"
            raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)
        return handle


def _traced(handle: Handle, name: str) -> Handle:
    async def traced(request: Message, call: Call) -> Message:
        with child_span(name):
            return await handle(request, call)

    return traced
