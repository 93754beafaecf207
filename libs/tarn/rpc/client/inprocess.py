"""Calls to services of the same process: the same handlers and errors as over gRPC, without a wire.

Request and response are passed without a copy. So the caller must not modify a request after the call, and
a handler must modify neither its request nor, later, its response.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

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
        # Keyed by the descriptor itself: asking it for its name costs more than the rest of this transport.
        # With each handle: whether it only reads, and the path of its rpc.
        self._handles: dict[ServiceDescriptor, dict[str, tuple[Handle, bool, str]]] = {}
        for endpoint in endpoints:
            check_handler(endpoint)
            self._handles[endpoint.descriptor] = {
                name: (handle_of(endpoint, name), rule.read_only, _path(endpoint.descriptor, name))
                for name, rule in rules_of(endpoint.descriptor).items()
            }

    def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Coroutine[Any, Any, Message]:
        """Makes one unary call, or runs one operation of the service's stream: see `Transport`."""
        try:
            handle, read_only, path = self._handles[service][method]
        except KeyError:
            return _refused(f"{service.full_name} has no {method} in this process")
        if TRACEPARENT.get():
            handle = _traced(handle, path)
        if read_only:
            return self._in_flight.read(handle, request, call)
        return self._in_flight.change(handle, request, call)

    operate = unary

    async def drain(self, timeout_s: float) -> bool:
        """Waits for changes that outlived their callers; returns False if that exceeds `timeout_s`."""
        return await self._in_flight.drain(timeout_s)

    async def close(self) -> None:
        """Cancels running calls; their callers get UNKNOWN_OUTCOME. Idempotent."""
        await self._in_flight.close()


async def _refused(text: str) -> Message:
    raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)


def _path(service: ServiceDescriptor, name: str) -> str:
    """Returns the path of an rpc, or of the stream that an operation belongs to."""
    return f"/{service.full_name}/{name if name in service.methods_by_name else OPERATE}"


def _traced(handle: Handle, name: str) -> Handle:
    async def traced(request: Message, call: Call) -> Message:
        with child_span(name):
            return await handle(request, call)

    return traced
