"""Serves handlers over gRPC: turns requests into messages and `Call`s, and `TarnError`s into statuses.

One implementation for all services: deadlines, request ids, error mapping, one canonical log line per
unary rpc, metrics, health, limits, and a drain that loses no answer. `tarn.rpc.server.inflight` decides how
long a handler runs and what stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError, Message

from tarn.aio.close_guard import UseCount
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.process.log import REQUEST_ID
from tarn.rpc.rules import rules_of
from tarn.rpc.server import health
from tarn.rpc.server.auditing import RpcAudit, peer_address
from tarn.rpc.server.call_maker import CallMaker
from tarn.rpc.server.certificates import certificate_names
from tarn.rpc.server.inflight import InFlight
from tarn.rpc.server.observer import Observer
from tarn.rpc.server.refusing import end_with, fail_with
from tarn.rpc.server.slots import Slot, SlotLimits, Slots, proves_caller
from tarn.rpc.server.stream_server import OperationServer
from tarn.rpc.server.work_room import WorkRooms
from tarn.rpc.wire.bounds import ItemBounds, bounds_of
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import code_of, overload_error
from tarn.rpc.wire.metadata import (
    AUTHORIZATION,
    BEARER,
    BUCKET_HEADER,
    REQUEST_ID_HEADER,
    SERVER_OPTIONS,
    SERVICE_HEADER,
    TRACEPARENT_HEADER,
)
from tarn.rpc.wire.methods import (
    Endpoint,
    Gate,
    UnaryMethod,
    check_gate,
    check_handler,
    handle_of,
    operate_method,
    operate_of,
    unary_methods,
)
from tarn.rpc.wire.subject import subject_of
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing

__all__ = ["RpcServer", "ServerConfig"]

_FLUSH_SECONDS = 1.0

_RPCS_PER_SLOT = 4

_SMALL_BYTES = 64 * 1024
"""Requests up to this size take no room: all slots full of them are bounded already."""

Context = grpc.aio.ServicerContext[bytes, bytes]
RpcHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Limits and options of a gRPC server.

    Attributes:
        listen: `host:port`, port 0 for a free one; or `unix:/path`.
        listen_also: a further address, for callers that must reach this process among those that share `listen`.
        reuse_port: whether several processes share the port.
        reflection: whether any client may list the services; for development.
        slots: rpcs above these numbers are refused with EXHAUSTED; a coalesced stream counts as one.
        operations_max: operations of all streams that are being worked on; a stream waits above this number.
        operations_bytes_max: bytes of the messages that brought them, and of large requests of unary rpcs.
        timeout_default_s: deadline of calls that state none.
        timeout_max_s: upper bound of every deadline.
    """

    listen: str
    listen_also: str | None = None
    reuse_port: bool = False
    reflection: bool = False
    slots: SlotLimits = field(default_factory=SlotLimits)
    operations_max: int = 16_384
    operations_bytes_max: int = 256 * 1024 * 1024
    timeout_default_s: float = 60.0
    timeout_max_s: float = 3600.0


class RpcServer:
    """A gRPC server of some endpoints.

    Args:
        endpoints: the services to serve.
        config: address and limits.
        clock: measures deadlines and durations.
        ids: makes request ids for callers that sent none.
        meters: `rpc.duration` per method, `rpc.failed` per method and reason, `rpc.in_flight`,
            `rpc.work_in_flight`, and those of `Slots`.
        tracing: makes one span per sampled unary rpc.
        credentials: TLS credentials; None for plain text.
        audit: records the calls; None: nothing does.

    Raises:
        TypeError: a handler lacks an rpc; or an endpoint has no gate, and an rpc that is not public.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        config: ServerConfig,
        *,
        clock: Clock,
        ids: IdSource,
        meters: Meters,
        tracing: Tracing,
        credentials: grpc.ServerCredentials | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._config = config
        self._clock = clock
        self._maker = CallMaker(clock, ids, config.timeout_default_s, config.timeout_max_s)
        self._meters = meters
        self._tracing = tracing
        self._credentials = credentials
        self._audit = audit
        self._in_flight = InFlight(clock)
        self._streams: list[OperationServer] = []
        self._slots = Slots(config.slots, clock, meters)
        self._rooms = WorkRooms(config.operations_max, config.operations_bytes_max)
        self._health = health.Health(self._slots)
        self._server: grpc.aio.Server | None = None
        self._calls = UseCount()  # grpc refuses calls that come too late
        meters.sample("rpc.in_flight", lambda: self._calls.users)
        meters.sample("rpc.work_in_flight", lambda: len(self._in_flight))
        for endpoint in endpoints:
            check_handler(endpoint)
            check_gate(endpoint)

    async def start(self) -> str:
        """Starts to serve; returns the address with the port that was bound.

        Raises:
            OSError: the address is in use or does not belong to this machine.
        """
        config = self._config
        reuse = ("grpc.so_reuseport", int(config.reuse_port))
        # The slots bound the rpcs. gRPC's own bound counts those that are being refused too, so a burst could fill it.
        # It is the last resort against clients that do not read their answers, which have left their slots.
        limits = config.slots
        rpcs_max = _RPCS_PER_SLOT * (limits.authenticated_max + limits.unauthenticated_max)
        server = grpc.aio.server(options=[*SERVER_OPTIONS, reuse], maximum_concurrent_rpcs=rpcs_max)
        for endpoint in self._endpoints:
            server.add_generic_rpc_handlers((self._generic_handler(endpoint),))
        handlers = [(health.SERVICE, self._health.handlers())]
        if config.reflection:
            handlers.append(self._reflection())
        for name, methods in handlers:
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(name, dict(methods)),)
            )
        address = _bind(server, config.listen, self._credentials)
        if config.listen_also is not None:
            _bind(server, config.listen_also, self._credentials)
        await server.start()
        self._server = server
        for name in ("", *(endpoint.name for endpoint in self._endpoints)):
            self._health.set(name, is_serving=True)
        return address

    async def drain(self, timeout_s: float) -> bool:
        """Stops gracefully: health turns to NOT_SERVING, new calls are rejected, running calls are answered.

        Returns:
            False if calls still run after `timeout_s`; `close` cancels them.
        """
        end = self._clock.monotonic() + timeout_s
        self._health.stop()
        for streams in self._streams:
            streams.stop()
        assert self._server is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._server.stop(timeout_s + _FLUSH_SECONDS))
            idle = await self._calls.drain(timeout_s)
            # A health watch never ends and must not delay the stop; answers are still sent.
            group.create_task(self._server.stop(_FLUSH_SECONDS))
        rest = max(0.0, end - self._clock.monotonic())
        return await self._in_flight.drain(rest) and idle

    async def close(self) -> None:
        """Cancels running calls and releases the address. Idempotent."""
        if self._server is not None:
            # Connections first: the calls cancelled below then have no client to answer.
            await self._server.stop(None)
            self._server = None
        self._slots.close()
        await self._in_flight.close()

    def _generic_handler(self, endpoint: Endpoint) -> grpc.GenericRpcHandler:
        handlers: dict[str, tuple[RpcHandler, RpcHandler]] = {}
        audit = None if self._audit is None else RpcAudit(self._audit, endpoint.descriptor)
        for method in unary_methods(endpoint.descriptor).values():
            handlers[method.path] = self._unary(method, endpoint, audit)
        if operate := operate_method(endpoint.descriptor):
            streams = OperationServer(
                operate,
                operate_of(endpoint, operate),
                self._in_flight,
                self._slots,
                self._rooms,
                self._maker,
                self._clock,
                Observer(operate.path, self._meters, self._clock).operation,
                self._tracing,
                self._meters,
                audit,
            )
            self._streams.append(streams)
            handler = self._streaming(streams.answer, endpoint)
            handlers[operate.path] = handler, handler
        return _Handlers(handlers, self._slots, endpoint.gate)

    def _unary(
        self, method: UnaryMethod, endpoint: Endpoint, audit: RpcAudit | None
    ) -> tuple[RpcHandler, RpcHandler]:
        """Returns the handlers of a unary rpc for callers whose token is known, and for all others.

        To gRPC both are streams of requests, so that a request that does not arrive is given up; the latter one is a
        stream of answers, too, so that an answer that is not read does not hold its slot. On the wire all are the same.
        """
        serve = self._served(method, endpoint, audit)
        message_s = self._config.slots.message_s

        async def known(_requests: object, context: Context) -> Message | None:
            with self._calls:
                headers = _headers(context)
                try:
                    with await self._enter(context, headers, endpoint) as slot:
                        encoded = await _received(slot, context, message_s)
                        return await serve(encoded, slot, headers, context)
                except TarnError as error:
                    fail_with(context, error)
                return None  # the status tells why

        async def unknown(_requests: object, context: Context) -> None:
            with self._calls:
                headers = _headers(context)
                try:
                    with await self._enter(context, headers, endpoint) as slot:
                        encoded = await _received(slot, context, message_s)
                        answer = await serve(encoded, slot, headers, context)
                        del encoded
                        if answer is not None:
                            await _answered(slot, context, answer.SerializeToString(), message_s)
                except TarnError as error:
                    fail_with(context, error)

        serializer = method.response_type.SerializeToString
        return (
            grpc.stream_unary_rpc_method_handler(known, response_serializer=serializer),
            grpc.stream_stream_rpc_method_handler(unknown),
        )

    def _served(
        self, method: UnaryMethod, endpoint: Endpoint, audit: RpcAudit | None
    ) -> Callable[[bytes, Slot, dict[str, str], Context], Awaitable[Message | None]]:
        """Returns the part of a handler that has a request: it answers, or sets the status and returns None."""
        handle = handle_of(endpoint, method.name)
        answer = self._in_flight.read if method.read_only else self._in_flight.change
        observer = Observer(method.path, self._meters, self._clock)
        bounds = bounds_of(endpoint.descriptor.methods_by_name[method.name].input_type)
        is_public = rules_of(endpoint.descriptor)[method.name].action is None

        async def serve(
            encoded: bytes, slot: Slot, headers: dict[str, str], context: Context
        ) -> Message | None:
            started = self._clock.monotonic()
            caller_token = _bearer(headers.get(AUTHORIZATION, ""))
            remaining = context.time_remaining() or 0.0
            call = self._maker.make(
                headers.get(REQUEST_ID_HEADER, ""),
                caller_token,
                remaining,
                certificate_names(context.auth_context()),
                headers.get(SERVICE_HEADER, ""),
                headers.get(BUCKET_HEADER, ""),
            )
            REQUEST_ID.set(call.request_id)
            recorded = handle
            if audit is not None:
                recorded = audit.recorded(handle, method.name, peer_address(context.peer()))
            request: Message | None = None
            failure: TarnError | None = None
            code = "CANCELLED"
            taken = 0
            room = (
                self._rooms.authenticated if slot.is_authenticated else self._rooms.unauthenticated
            )
            try:
                try:
                    if len(encoded) > _SMALL_BYTES:
                        if not room.take_now(1, len(encoded)):
                            text = "large requests fill the memory for them; try again later"
                            raise overload_error(text)
                        taken = len(encoded)
                        if not slot.is_authenticated:
                            await _allow_large(endpoint, method, call)
                    request = _parsed(method, bounds, encoded)
                    with self._tracing.span(method.path, headers.get(TRACEPARENT_HEADER, "")):
                        response = await answer(recorded, request, call)
                    code = "OK"
                except TarnError as error:
                    failure, code = error, code_of(error.kind).name
                    raise
                finally:
                    if taken:
                        room.give(1, taken)
                    has_ended = code != "CANCELLED" and not is_public
                    if not slot.is_authenticated and has_ended and proves_caller(failure):
                        slot.authenticate(caller_token)
                    # Before the answer is sent, so that a client that has the answer finds it counted.
                    observer.rpc(call, code, failure, started)
            except TarnError as error:
                fail_with(context, error, {} if request is None else subject_of(request))
                failure = (
                    None  # or it and this frame, which holds the request, would keep each other
                )
                return None
            else:
                return response

        return serve

    def _streaming(
        self,
        answer: Callable[[Slot, Context], Awaitable[None]],
        endpoint: Endpoint | None,
        **codec: Callable[[Any], Any],
    ) -> RpcHandler:
        """Returns the handler of a stream that `answer` serves in its slot."""

        async def behave(_requests: object, context: Context) -> None:
            with self._calls:
                try:
                    with await self._enter(context, _headers(context), endpoint) as slot:
                        await answer(slot, context)
                except TarnError as error:
                    await end_with(context, error)

        return grpc.stream_stream_rpc_method_handler(behave, **codec)

    async def _enter(
        self, context: Context, headers: Mapping[str, str], endpoint: Endpoint | None
    ) -> Slot:
        """Returns the slot of an rpc.

        Raises:
            TarnError: as `Slots.enter`.
        """
        token = _bearer(headers.get(AUTHORIZATION, ""))
        gate = None if endpoint is None else endpoint.gate
        accepts = None if gate is None else gate.accepts
        return await self._slots.enter(context.peer(), token, accepts)

    def _reflection(self) -> tuple[str, Mapping[str, RpcHandler]]:
        """Returns the service of reflection, for development, and its handler, which is served as without a token."""
        from grpc_reflection.v1alpha import reflection
        from grpc_reflection.v1alpha.reflection_pb2 import (
            ServerReflectionRequest,
            ServerReflectionResponse,
        )

        from tarn.rpc.server.reflection import reflected_files

        names = [*(endpoint.name for endpoint in self._endpoints), health.SERVICE]
        names.append(reflection.SERVICE_NAME)
        # The stubs take this generator for a coroutine.
        servicer: Any = reflection.aio.ReflectionServicer(names, pool=reflected_files())

        async def requests(context: Context) -> AsyncIterator[object]:
            while (request := cast("object", await context.read())) is not grpc.aio.EOF:
                yield request

        async def answer(slot: Slot, context: Context) -> None:
            async def tell() -> None:
                async for response in servicer.ServerReflectionInfo(requests(context), context):
                    await context.write(response)

            await slot.wait(tell(), self._config.slots.idle_s)

        handler = self._streaming(
            answer,
            None,
            request_deserializer=ServerReflectionRequest.FromString,
            response_serializer=ServerReflectionResponse.SerializeToString,
        )
        return reflection.SERVICE_NAME, {"ServerReflectionInfo": handler}


class _Handlers(grpc.GenericRpcHandler):
    """The handlers of a service by path: the first for callers whose token is known, the second for all others."""

    def __init__(
        self,
        handlers: Mapping[str, tuple[RpcHandler, RpcHandler]],
        slots: Slots,
        gate: Gate | None,
    ) -> None:
        self._handlers = handlers
        self._slots = slots
        self._accepts = None if gate is None else gate.accepts

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> RpcHandler | None:
        """Returns the handler of an rpc; None if it is of another service."""
        handlers = self._handlers.get(handler_call_details.method)
        if handlers is None:
            return None
        for name, value in handler_call_details.invocation_metadata or ():
            if name == AUTHORIZATION and isinstance(value, str):
                is_known = self._slots.knows(_bearer(value), self._accepts)
                return handlers[0] if is_known else handlers[1]
        return handlers[1]


def _bearer(header: str) -> str:
    """Returns the token of an `authorization` header."""
    return header.removeprefix(BEARER)


async def _received(slot: Slot, context: Context, message_s: float) -> bytes:
    """Returns the encoded request of a unary rpc.

    Raises:
        TarnError: as `Slot.wait`; INVALID if there is none.
    """
    encoded: object = await slot.wait(context.read(), message_s)
    if not isinstance(encoded, bytes):  # the client has left, or ended the rpc without a request
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, "the rpc has no request")
    return encoded


async def _answered(slot: Slot, context: Context, encoded: bytes, message_s: float) -> None:
    """Sends the answer of a unary rpc; a client without a token has `message_s` to take it."""
    if slot.is_authenticated:
        await context.write(encoded)
        return
    try:
        await slot.wait(context.write(encoded), message_s)
    except TarnError as error:
        await end_with(context, error)


async def _allow_large(endpoint: Endpoint, method: UnaryMethod, call: Call) -> None:
    """Refuses a large request of a caller who has proved nothing: to parse it takes the loop long.

    Raises:
        TarnError: UNAUTHENTICATED; INVALID: an rpc without a user takes small requests only.
    """
    if endpoint.gate is None:
        return
    if rules_of(endpoint.descriptor)[method.name].action is None:
        text = f"{method.path} takes requests of at most {_SMALL_BYTES} bytes"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    await endpoint.gate.recognize(call)


def _parsed(method: UnaryMethod, bounds: ItemBounds | None, encoded: bytes) -> Message:
    """Returns the request of a unary rpc.

    Raises:
        TarnError: INVALID: it is no such message, or has too many items.
    """
    try:
        request = method.request_type.FromString(encoded)
    except DecodeError:
        text = f"the request of {method.path} is no {method.request_type.DESCRIPTOR.name}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text) from None
    if bounds is not None:
        bounds.check(request)
    return request


def _headers(context: Context) -> dict[str, str]:
    """Returns the request's metadata; names are lower case, binary values are omitted."""
    metadata = context.invocation_metadata() or ()
    return {name: value for name, value in metadata if isinstance(value, str)}


def _bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials | None) -> str:
    try:
        port = (
            server.add_insecure_port(listen)
            if credentials is None
            else server.add_secure_port(listen, credentials)
        )
    except RuntimeError as error:
        raise OSError(f"cannot listen on {listen}: {error}") from error
    if listen.startswith("unix:"):
        return listen
    return f"{listen.rpartition(':')[0]}:{port}"
