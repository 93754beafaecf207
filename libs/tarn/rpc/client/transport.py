"""The interface through which a client calls a service, in this process or over gRPC."""

from __future__ import annotations

from typing import Protocol

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tarn.rpc.wire.call import Call

__all__ = ["Transport"]


class Transport(Protocol):
    """Carries calls to the services of one address (or of this process).

    Failures are raised as `TarnError` with the kind, reason and metadata that the handler raised. A call
    that certainly never reached a handler fails with UNAVAILABLE. A call that may have reached it and
    could change something fails with UNKNOWN_OUTCOME. A call without an answer in time fails with
    DEADLINE (read-only) or UNKNOWN_OUTCOME.
    """

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        """Makes one unary call, for infrequent rpcs. The descriptor determines the response's type."""
        ...

    async def operate(
        self, service: ServiceDescriptor, operation: Message, call: Call, *, read_only: bool
    ) -> Message:
        """Sends one operation on the service's coalesced stream; fills in the operation's header.

        A read-only operation that lost its stream is sent again while its deadline allows. Any other
        operation is sent again only if it had not been sent.
        """
        ...

    async def close(self) -> None:
        """Ends calls in flight and closes the connections. Idempotent."""
        ...
