"""The interface through which a client calls a service, in this process or over gRPC, and the check of its answers."""

from __future__ import annotations

from typing import Protocol, TypeVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call

__all__ = ["Transport", "expect", "garbled"]

MessageT = TypeVar("MessageT", bound=Message)


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
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        """Has one operation done by the service's coalesced stream; returns its result.

        A read-only operation that lost its stream is sent again while its deadline allows. Any other
        operation is sent again only if it had not been sent.
        """
        ...

    async def close(self) -> None:
        """Ends calls in flight and closes the connections. Idempotent."""
        ...


def expect(answer: Message, wanted: type[MessageT]) -> MessageT:
    """Returns the answer as the type that the rpc promises.

    Raises:
        TarnError: INTERNAL: the answer has another type, so the two sides were built from different protos.
    """
    if not isinstance(answer, wanted):
        raise garbled(f"{type(answer).__name__} instead of {wanted.__name__}")
    return answer


def garbled(what: str) -> TarnError:
    """The error for an answer that breaks the contract of its rpc; none of its contents may be used."""
    return TarnError(Kind.INTERNAL, Reason.INTERNAL, f"the service answered with {what}")
