"""How a client reaches a service, whether it is in this process or behind gRPC."""

from __future__ import annotations

from typing import Protocol

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tarn.rpc.wire.call import Call

__all__ = ["Transport"]


class Transport(Protocol):
    """Carries calls to the services of one address (or of this process).

    Failures arrive as `TarnError` with the kind, reason and metadata that the handler raised. A call
    that surely never reached a handler fails with UNAVAILABLE, one that may have reached it with
    UNKNOWN_OUTCOME if it could change something, a call without an answer in time with DEADLINE
    (read-only) or UNKNOWN_OUTCOME.
    """

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        """One rare call; the response's type follows from the descriptor."""
        ...

    async def operate(
        self, service: ServiceDescriptor, operation: Message, call: Call, *, read_only: bool
    ) -> Message:
        """One operation of the service's coalesced stream; fills in the operation's header.

        A read-only operation that lost its stream is sent again while its deadline allows; another
        one is sent again only if it had not been sent.
        """
        ...

    async def close(self) -> None:
        """Ends what is in flight and lets go of the connections. Idempotent."""
        ...
