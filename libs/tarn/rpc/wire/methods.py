"""A proto service as transports and servers need it: its methods, read from the descriptor, and their handler.

Services are registered by descriptor, without generated stubs. One generic path for every rpc is less
code than a class per service, and a handler that lacks an rpc is rejected when it is registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.rules import OPERATE, OPERATION, Rule, Scope, rules_of
from tarn.rpc.wire.bounds import unbounded_fields
from tarn.rpc.wire.call import Call

__all__ = [
    "Endpoint",
    "Gate",
    "Handle",
    "OperateMethod",
    "UnaryMethod",
    "check_gate",
    "check_handler",
    "enveloped",
    "handle_of",
    "operate_method",
    "operate_of",
    "unary_methods",
]

Handle = Callable[[Message, Call], Awaitable[Message]]
"""Answers a request: `async (request, call) -> response`."""


class Gate(Protocol):
    """Decides who may call, before a handler runs."""

    def accepts(self, token: str) -> bool:
        """Tells at once whether the token of a caller was accepted lately."""
        ...

    async def recognize(self, call: Call) -> None:
        """Refuses a caller without a valid token: before a large request is parsed.

        Raises:
            TarnError: UNAUTHENTICATED.
        """
        ...

    async def permit(self, rule: Rule, request: Message, call: Call) -> object:
        """Returns what the handler gets in the place of the call.

        Raises:
            TarnError: the rule refuses the call.
        """
        ...

    def through_view(
        self, rule: Rule, handle: Callable[[Message, Any], Awaitable[Message]]
    ) -> Handle:
        """Returns what answers calls of an rpc that are made through a bucket view (`Call.bucket`), by a handler that
        takes a permit.

        What it returns raises:
            TarnError: INVALID: the service has no views; as `permit` and the handler.
        """
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One proto service and its handler.

    For each unary rpc of the service, the handler has a method with the rpc's name, and for each operation of its
    stream one with the operation's name: `async (request, permit) -> response`. It raises `TarnError` for failures
    that the caller must see. The transport moves, coalesces and matches the operations of the stream.

    Attributes:
        descriptor: e.g. `branch_service_pb2.DESCRIPTOR.services_by_name["BranchService"]`.
        handler: checked against the descriptor when it is registered.
        gate: checks the rule of each rpc, and makes the permit that the handler gets. The handler of a public rpc gets
            the `Call`; so do all handlers without a gate, which only tests have.
    """

    descriptor: ServiceDescriptor
    handler: object
    gate: Gate | None = None

    @property
    def name(self) -> str:
        """Full proto name, e.g. `tarn.graveler.v1.BranchService`."""
        return self.descriptor.full_name


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """An rpc with one request and one response.

    Attributes:
        name: such as `CreateBranch`.
        path: the HTTP/2 path, `/tarn.graveler.v1.BranchService/CreateBranch`.
        read_only: whether the rpc's rule says so (`tarn.rpc.rules`).
    """

    name: str
    path: str
    request_type: type[Message]
    response_type: type[Message]
    read_only: bool


@dataclass(frozen=True, slots=True)
class OperateMethod:
    """The coalesced stream of a service: batches of operations, batches of results.

    Attributes:
        path: the HTTP/2 path.
        request_type: a batch; its only field is `repeated Operation operations = 1`.
        response_type: a batch; its only field is `repeated OperationResult results = 1`.
        operation_type: one operation, with `header`.
        result_type: one result, with `operation_id` and `error`.
    """

    path: str
    request_type: type[Message]
    response_type: type[Message]
    operation_type: type[Message]
    result_type: type[Message]


def unary_methods(service: ServiceDescriptor) -> dict[str, UnaryMethod]:
    """Returns the unary rpcs of a service by name.

    Raises:
        TypeError: as `rules_of`.
    """
    rules = rules_of(service)
    return {
        method.name: UnaryMethod(
            method.name,
            _path(method),
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            rules[method.name].read_only,
        )
        for method in service.methods
        if method.name != OPERATE
    }


def operate_method(service: ServiceDescriptor) -> OperateMethod | None:
    """Returns the coalesced stream of a service, if it has one."""
    for method in service.methods:
        if method.name == OPERATE:
            return OperateMethod(
                _path(method),
                GetMessageClass(method.input_type),
                GetMessageClass(method.output_type),
                GetMessageClass(_batched(method.input_type)),
                GetMessageClass(_batched(method.output_type)),
            )
    return None


def check_handler(endpoint: Endpoint) -> None:
    """Rejects a handler that lacks an rpc or implements one with a function that is not async, and a service
    with an rpc that has no rule or whose request has a repeated field without a bound.

    Raises:
        TypeError: the handler or service is incomplete; the message names everything that is missing.
    """
    requests = [method.input_type for method in endpoint.descriptor.methods]
    if unbounded := [field for request in requests for field in unbounded_fields(request)]:
        text = "set the option (tarn.common.v1.items_max)"
        raise TypeError(f"no bound for {', '.join(unbounded)}: {text}")
    missing = [
        name
        for name in rules_of(endpoint.descriptor)
        if not inspect.iscoroutinefunction(getattr(endpoint.handler, name, None))
    ]
    if missing:
        handler = type(endpoint.handler).__name__
        raise TypeError(f"{handler} for {endpoint.name} lacks async methods: {', '.join(missing)}")


def check_gate(endpoint: Endpoint) -> None:
    """Rejects an endpoint without a gate whose rpcs are not all public: every client could call its handlers.

    Raises:
        TypeError: it is such an endpoint.
    """
    rules = rules_of(endpoint.descriptor).values()
    if endpoint.gate is None and any(rule.scope is not Scope.OPEN for rule in rules):
        raise TypeError(f"{endpoint.name} has no gate, and rpcs that are not public")


def handle_of(endpoint: Endpoint, name: str) -> Handle:
    """Returns what answers an rpc, or an operation of the stream by itself: the gate, and then the handler."""
    handle: Callable[[Message, Any], Awaitable[Message]] = getattr(endpoint.handler, name)
    rule = rules_of(endpoint.descriptor)[name]
    if endpoint.gate is None or rule.scope is Scope.OPEN:
        return handle
    permit, through_view = endpoint.gate.permit, endpoint.gate.through_view(rule, handle)

    async def gated(request: Message, call: Call) -> Message:
        if call.bucket:
            return await through_view(request, call)
        return await handle(request, await permit(rule, request, call))

    return gated


def operate_of(endpoint: Endpoint, method: OperateMethod) -> Handle:
    """Returns what answers an operation of the stream in its envelope."""
    handles = {
        field.name: handle_of(endpoint, field.name)
        for field in method.operation_type.DESCRIPTOR.oneofs_by_name[OPERATION].fields
    }

    async def operate(operation: Message, call: Call) -> Message:
        name = operation.WhichOneof(OPERATION)
        if name is None:
            text = f"this version of {endpoint.name} does not know the operation; upgrade it first"
            raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)
        answer = await handles[name](getattr(operation, name), call)
        return enveloped(method.result_type, name, answer)

    return operate


def enveloped(envelope: type[Message], name: str, message: Message) -> Message:
    """Returns an operation, or its result, in its envelope: a message without any field is there, too."""
    made = envelope()
    field: Message = getattr(made, name)
    field.CopyFrom(message)
    field.SetInParent()
    return made


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _batched(batch: Descriptor) -> Descriptor:
    """Returns the message that a batch repeats."""
    fields = batch.fields
    if len(fields) != 1 or fields[0].number != 1 or not fields[0].is_repeated:
        raise TypeError(f"{batch.full_name} must have one repeated field, number 1")
    message = fields[0].message_type
    if message is None:
        raise TypeError(f"{batch.full_name} must be a batch of messages")
    return message
