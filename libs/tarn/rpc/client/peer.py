"""One replica of a service, seen by a client: its connection, and the meaning of a failure on it."""

from __future__ import annotations

import asyncio

import grpc
from google.protobuf.message import Message

from tarn.core.errors import Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import (
    deadline_error,
    error_from_trailers,
    kind_of,
    unavailable_error,
    unknown_outcome_error,
)
from tarn.rpc.wire.metadata import (
    AUTHORIZATION,
    BEARER,
    BUCKET_HEADER,
    CHANNEL_OPTIONS,
    REQUEST_ID_HEADER,
    SERVICE_HEADER,
    TRACEPARENT_HEADER,
)
from tarn.rpc.wire.methods import UnaryMethod
from tarn.telemetry.tracing import TRACEPARENT

__all__ = ["Peer"]

# Statuses that gRPC itself returns before any handler runs: too many calls, a request that is too large
# (responses of changes are small), and rpcs that an older service does not have.
_REFUSED = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.OVERLOADED,
    grpc.StatusCode.UNIMPLEMENTED: Reason.NOT_IMPLEMENTED,
}

_TIMEOUT_SECONDS_MAX = 24 * 3600.0  # gRPC supports no infinite deadline


class Peer:
    """One address with its connection.

    Attributes:
        host: the name in its certificate; empty for none but the address.
        credentials: the TLS credentials of the connection; None for plain text.
        channel: the gRPC channel, which reconnects by itself.
        in_flight: number of unary calls without an answer.
    """

    def __init__(
        self, address: str, host: str, credentials: grpc.ChannelCredentials | None
    ) -> None:
        self.address = address
        self.host = host
        self.credentials = credentials
        self.in_flight = 0
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        else:
            # We connect to an IP address; the certificate is for the name that resolved to it.
            named = ("grpc.ssl_target_name_override", host), ("grpc.default_authority", host)
            options = [*CHANNEL_OPTIONS, *(named if host else ())]
            self.channel = grpc.aio.secure_channel(address, credentials, options=options)
        self._calls: dict[str, grpc.aio.UnaryUnaryMultiCallable[Message, Message]] = {}

    @property
    def is_ready(self) -> bool:
        """Returns whether the channel is connected; if it is not, starts to connect."""
        state = self.channel.get_state(try_to_connect=True)
        return state is grpc.ChannelConnectivity.READY

    async def unary(
        self, method: UnaryMethod, request: Message, call: Call, timeout_s: float
    ) -> Message:
        """Makes one attempt.

        Raises:
            TarnError: the handler's error, or the error for a lost connection.
        """
        invoke = self._calls.get(method.path)
        if invoke is None:
            invoke = self._calls[method.path] = self.channel.unary_unary(
                method.path,
                request_serializer=method.request_type.SerializeToString,
                response_deserializer=method.response_type.FromString,
            )
        self.in_flight += 1
        try:
            timeout = min(timeout_s, _TIMEOUT_SECONDS_MAX)
            return await invoke(request, timeout=timeout, metadata=_metadata(call))
        except grpc.aio.AioRpcError as error:
            raise _failure(method, error, call, self.address) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # This task was not cancelled: the channel was closed during the call.
            raise _lost(method, f"the connection to {self.address} was closed") from None
        finally:
            self.in_flight -= 1


def _failure(method: UnaryMethod, error: grpc.aio.AioRpcError, call: Call, peer: str) -> TarnError:
    if spoken := error_from_trailers(error.trailing_metadata()):
        return spoken
    # The status is gRPC's own, from this side or the other.
    code, text = error.code(), f"{peer}: {error.details()}"
    if code in _REFUSED:
        return TarnError(kind_of(code), _REFUSED[code], text)
    if not method.read_only:
        return unknown_outcome_error(f"request {call.request_id}: {text}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return deadline_error(call.request_id)
    if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
        return unavailable_error(text)
    return TarnError(kind_of(code), Reason.INTERNAL, text)


def _lost(method: UnaryMethod, text: str) -> TarnError:
    """Returns the error for a connection that broke during a call that may have reached its handler."""
    return unavailable_error(text) if method.read_only else unknown_outcome_error(text)


def _metadata(call: Call) -> list[tuple[str, str]]:
    metadata = [(REQUEST_ID_HEADER, call.request_id)]
    if call.caller_token:
        metadata.append((AUTHORIZATION, BEARER + call.caller_token))
    if call.service_token:
        metadata.append((SERVICE_HEADER, call.service_token))
    if call.bucket:
        metadata.append((BUCKET_HEADER, call.bucket))
    if traceparent := TRACEPARENT.get():
        metadata.append((TRACEPARENT_HEADER, traceparent))
    return metadata
