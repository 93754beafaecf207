"""The generated clients call the rpc that they are named for, and accept no other answer than its own."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tarn.core.errors import Kind, TarnError
from tarn.rpc.rules import OPERATE
from tarn.rpc.wire.call import Call
from tarn_proto.common.v1 import rule_pb2

CALL = Call("test", "", 1e9)
GEN = Path(__file__).parents[3] / "gen"
SERVICES = [
    service
    for path in sorted(GEN.rglob("*_service_pb2.py"))
    for service in import_module(
        ".".join(path.relative_to(GEN).with_suffix("").parts)
    ).DESCRIPTOR.services_by_name.values()
]
METHODS = [method for service in SERVICES for method in service.methods]


class Answering:
    """A transport that gives one answer, and notes the call."""

    def __init__(self, answer: Message) -> None:
        self._answer = answer
        self.seen: list[tuple[str, str, Message]] = []

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, call: Call
    ) -> Message:
        assert call is CALL
        self.seen.append((service.full_name, method, request))
        return self._answer

    async def operate(
        self, service: ServiceDescriptor, operation: Message, call: Call, *, read_only: bool
    ) -> Message:
        assert read_only
        return await self.unary(service, OPERATE, operation, call)

    async def close(self) -> None:
        """Nothing is open."""


def client_of(method: MethodDescriptor, transport: Answering) -> Any:
    service = method.containing_service
    module = import_module(service.file.name.removesuffix(".proto").replace("/", ".") + "_rpc")
    return getattr(module, f"{service.name}Client")(transport)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
def test_a_client_calls_its_rpc_and_refuses_another_answer(method: MethodDescriptor) -> None:
    request_type: Any = method.input_type
    answer_type: Any = method.output_type
    kwargs = {}
    name = method.name
    if name == OPERATE:
        name, kwargs = "operate", {"read_only": True}
        request_type = request_type.fields[0].message_type
        answer_type = answer_type.fields[0].message_type
    request, answer = GetMessageClass(request_type)(), GetMessageClass(answer_type)()
    transport = Answering(answer)
    call = getattr(client_of(method, transport), name)
    assert asyncio.run(call(request, CALL, **kwargs)) is answer
    assert transport.seen == [(method.containing_service.full_name, method.name, request)]
    call = getattr(client_of(method, Answering(rule_pb2.Rule())), name)
    with pytest.raises(TarnError) as refused:
        asyncio.run(call(request, CALL, **kwargs))
    assert refused.value.kind is Kind.INTERNAL
