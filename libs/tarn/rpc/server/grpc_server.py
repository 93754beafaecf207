"""Serves handlers over gRPC: turns requests into messages and `Call`s, and `TarnError`s into statuses.

One implementation for all services: deadlines, request ids, error mapping, one canonical log line per
unary rpc, metrics, health, limits, and a drain that loses no answer. `tarn.rpc.server.inflight` decides how
long a handler runs and what stops it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tarn.aio.close_guard import UseCount
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import TarnError
from tarn.rpc.process.log import REQUEST_ID
from tarn.rpc.rules import OPERATE
from tarn.rpc.server.auditing import RpcAudit, peer_address
from tarn.rpc.server.certificates import certificate_names
from tarn.rpc.server.inflight import InFlight
from tarn.rpc.server.observer import Observer
from tarn.rpc.server.stream_server import OperationServer
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import code_of, status_text, trailers_of
from tarn.rpc.wire.metadata import (
    AUTHORIZATION,
    BEARER,
    REQUEST_ID_HEADER,
    SERVER_OPTIONS,
    TRACEPARENT_HEADER,
)
from tarn.rpc.wire.methods import (
    Endpoint,
    Handle,
    UnaryMethod,
    check_handler,
    handle_of,
    operate_method,
    unary_methods,
)
from tarn.rpc.wire.subject import subject_of
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing

__all__ = ["RpcServer", "ServerConfig"]

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")

_FLUSH_SECONDS = 1.0

Context = grpc.aio.ServicerContext[Message, Message]
StreamContext = grpc.aio.ServicerContext[Message, bytes]
StreamBehaviour = Callable[[object, StreamContext], Awaitable[None]]
UnaryBehaviour = Callable[[Message, Context], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Limits and options of a gRPC server.

    Attributes:
        listen: `host:port`, port 0 for a free one; or `unix:/path`.
        listen_also: a further address, for callers that must reach this process among those that share `listen`.
        reuse_port: whether several processes share the port.
        reflection: whether any client may list the services; for development.
        concurrent_rpcs_max: rpcs above this number are refused with EXHAUSTED; a coalesced stream counts as one.
        timeout_default_s: deadline of calls that state none.
        timeout_max_s: upper bound of every deadline.
    """

    listen: str
    listen_also: str | None = None
    reuse_port: bool = False
    reflection: bool = False
    concurrent_rpcs_max: int = 1024
    timeout_default_s: float = 60.0
    timeout_max_s: float = 3600.0


class RpcServer:
    """A gRPC server of some endpoints.

    Args:
        endpoints: the services to serve.
        config: address and limits.
        clock: measures deadlines and durations.
        ids: makes request ids for callers that sent none.
        meters: `rpc.duration` per method, `rpc.failed` per method and reason, `rpc.in_flight` and
            `rpc.work_in_flight`.
        tracing: makes one span per sampled unary rpc.
        credentials: TLS credentials; None for plain text.
        audit: records the calls; None: nothing does.

    Raises:
        TypeError: a handler lacks an rpc.
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
        self._ids = ids
        self._meters = meters
        self._tracing = tracing
        self._credentials = credentials
        self._audit = audit
        self._in_flight = InFlight(clock)
        self._streams: list[OperationServer] = []
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._calls = UseCount()  # grpc refuses calls that come too late
        meters.sample("rpc.in_flight", lambda: self._calls.users)
        meters.sample("rpc.work_in_flight", lambda: len(self._in_flight))
        for endpoint in endpoints:
            check_handler(endpoint)

    async def start(self) -> str:
        """Starts to serve; returns the address with the port that was bound.

        Raises:
            OSError: the address is in use or does not belong to this machine.
        """
        config = self._config
        reuse = ("grpc.so_reuseport", int(config.reuse_port))
        server = grpc.aio.server(
            options=[*SERVER_OPTIONS, reuse], maximum_concurrent_rpcs=config.concurrent_rpcs_max
        )
        for endpoint in self._endpoints:
            server.add_generic_rpc_handlers((self._generic_handler(endpoint),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if config.reflection:
            from grpc_reflection.v1alpha import reflection

            from tarn.rpc.server.reflection import reflected_files

            names = [*(endpoint.name for endpoint in self._endpoints), health.SERVICE_NAME]
            names.append(reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server, pool=reflected_files())
        address = _bind(server, config.listen, self._credentials)
        if config.listen_also is not None:
            _bind(server, config.listen_also, self._credentials)
        await server.start()
        self._server = server
        for name in ("", *(endpoint.name for endpoint in self._endpoints)):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return address

    async def drain(self, timeout_s: float) -> bool:
        """Stops gracefully: health turns to NOT_SERVING, new calls are rejected, running calls are answered.

        Returns:
            False if calls still run after `timeout_s`; `close` cancels them.
        """
        end = self._clock.monotonic() + timeout_s
        await self._health.enter_graceful_shutdown()
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
        await self._in_flight.close()

    def _generic_handler(self, endpoint: Endpoint) -> grpc.GenericRpcHandler:
        handlers: dict[str, grpc.RpcMethodHandler[Message, Message]] = {}
        audit = None if self._audit is None else RpcAudit(self._audit, endpoint.descriptor)
        for name, method in unary_methods(endpoint.descriptor).items():
            handlers[name] = grpc.unary_unary_rpc_method_handler(
                self._unary(method, handle_of(endpoint, name), audit),
                request_deserializer=method.request_type.FromString,
                response_serializer=method.response_type.SerializeToString,
            )
        if operate := operate_method(endpoint.descriptor):
            streams = OperationServer(
                operate,
                handle_of(endpoint, OPERATE),
                self._in_flight,
                self._call,
                self._clock,
                Observer(operate.path, self._meters, self._clock).operation,
                self._tracing,
                audit,
            )
            self._streams.append(streams)
            handlers[OPERATE] = grpc.stream_stream_rpc_method_handler(
                self._counted(streams.answer), request_deserializer=operate.request_type.FromString
            )
        return grpc.method_handlers_generic_handler(endpoint.name, handlers)

    def _unary(self, method: UnaryMethod, handle: Handle, audit: RpcAudit | None) -> UnaryBehaviour:
        answer = self._in_flight.read if method.read_only else self._in_flight.change
        observer = Observer(method.path, self._meters, self._clock)

        async def behave(request: Message, context: Context) -> Message:
            started = self._clock.monotonic()
            headers = _headers(context)
            caller_token = headers.get(AUTHORIZATION, "").removeprefix(BEARER)
            remaining = context.time_remaining() or 0.0
            call = self._call(
                headers.get(REQUEST_ID_HEADER, ""),
                caller_token,
                remaining,
                certificate_names(context.auth_context()),
            )
            REQUEST_ID.set(call.request_id)
            recorded = handle
            if audit is not None:
                recorded = audit.recorded(handle, method.name, peer_address(context.peer()))
            failure: TarnError | None = None
            code = "CANCELLED"
            with self._calls:
                try:
                    try:
                        with self._tracing.span(method.path, headers.get(TRACEPARENT_HEADER, "")):
                            response = await answer(recorded, request, call)
                        code = "OK"
                    except TarnError as error:
                        failure, code = error, code_of(error.kind).name
                        raise
                    finally:
                        # Before the answer is sent, so that a client that has the answer finds it counted.
                        observer.rpc(call, code, failure, started)
                except TarnError as error:
                    trailers = trailers_of(error, subject_of(request))
                    await context.abort(code_of(error.kind), status_text(error), trailers)
                else:
                    return response

        return behave

    def _call(
        self, request_id: str, caller_token: str, timeout_s: float, names: frozenset[str]
    ) -> Call:
        """Returns the call that headers describe; replaces a request id that is not a plain short word."""
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = self._ids.nonce().hex()
        timeout = min(timeout_s or self._config.timeout_default_s, self._config.timeout_max_s)
        return Call(request_id, caller_token, self._clock.monotonic() + timeout, names)

    def _counted(
        self,
        behaviour: StreamBehaviour,
    ) -> StreamBehaviour:
        async def behave(
            requests: object, context: grpc.aio.ServicerContext[Message, bytes]
        ) -> None:
            with self._calls:
                await behaviour(requests, context)

        return behave


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
