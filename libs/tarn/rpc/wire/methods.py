"""A proto service as transports and servers need it: its methods, read from the descriptor, and their handler.

Services are registered by descriptor, without generated stubs. One generic path for every rpc is less
code than a class per service, and a handler that lacks an rpc is rejected when it is registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tarn.rpc.rules import OPERATE, rules_of
from tarn.rpc.wire.bounds import unbounded_fields
from tarn.rpc.wire.call import Call

__all__ = [
    "Endpoint",
    "Handle",
    "OperateMethod",
    "UnaryMethod",
    "check_handler",
    "handle_of",
    "operate_method",
    "unary_methods",
]

Handle = Callable[[Message, Call], Awaitable[Message]]
"""A method of a handler: `async (request, call) -> response`."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One proto service and its handler.

    For each unary rpc of the service, the handler has a method with the rpc's name,
    `async (request, call: Call) -> response`. For the streaming rpc `Operate` it has
    `async operate(operation, call: Call) -> result`, which answers one operation (the transport moves,
    coalesces and matches them). Both raise `TarnError` for failures that the caller must see.

    Attributes:
        descriptor: e.g. `branch_service_pb2.DESCRIPTOR.services_by_name["BranchService"]`.
        handler: checked against the descriptor when it is registered.
        authenticate: refuses a caller without a valid token. It is called before the handler of every unary rpc that
            is not public, so that no handler can forget it, for example because it authorises each item of a list that
            is empty. None: the handler does it.
        accepts: tells at once whether the service has accepted a caller token lately; None if it does not keep that.
    """

    descriptor: ServiceDescriptor
    handler: object
    authenticate: Callable[[Call], Awaitable[object]] | None = None
    accepts: Callable[[str], bool] | None = None

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
        result_type: one result, with `operation_id` and `error`.
    """

    path: str
    request_type: type[Message]
    response_type: type[Message]
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
            _batched(method.input_type)
            return OperateMethod(
                _path(method),
                GetMessageClass(method.input_type),
                GetMessageClass(method.output_type),
                GetMessageClass(_batched(method.output_type)),
            )
    return None


def check_handler(endpoint: Endpoint) -> None:
    """Rejects a handler that lacks an rpc or implements one with a function that is not async, and a service
    with an rpc that has no rule or whose request has a repeated field without a bound.

    Raises:
        TypeError: the handler or service is incomplete; the message names everything that is missing.
    """
    rules_of(endpoint.descriptor)
    requests = [method.input_type for method in endpoint.descriptor.methods]
    if unbounded := [field for request in requests for field in unbounded_fields(request)]:
        text = "set the option (tarn.common.v1.items_max)"
        raise TypeError(f"no bound for {', '.join(unbounded)}: {text}")
    names = [
        "operate" if method.name == OPERATE else method.name
        for method in endpoint.descriptor.methods
    ]
    missing = [
        name
        for name in names
        if not inspect.iscoroutinefunction(getattr(endpoint.handler, name, None))
    ]
    if missing:
        handler = type(endpoint.handler).__name__
        raise TypeError(f"{handler} for {endpoint.name} lacks async methods: {', '.join(missing)}")


def handle_of(endpoint: Endpoint, name: str) -> Handle:
    """Returns the handler's method for an rpc, or for one operation of its stream; see `Endpoint.authenticate`."""
    handle: Handle = getattr(endpoint.handler, "operate" if name == OPERATE else name)
    authenticate = endpoint.authenticate
    if authenticate is None or name == OPERATE or rules_of(endpoint.descriptor)[name].is_public:
        return handle

    async def authenticated(request: Message, call: Call) -> Message:
        await authenticate(call)
        return await handle(request, call)

    return authenticated


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
