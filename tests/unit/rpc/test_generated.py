"""The generated clients call the rpc that they are named for, and accept no other answer than its own."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tarn.core.errors import Kind, TarnError
from tarn.rpc.rules import OPERATE, OPERATION
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
METHODS: list[tuple[ServiceDescriptor, str, Descriptor, Descriptor]] = []
"""Each rpc and each operation of a stream: its service, its name, its request and its answer."""
for _service in SERVICES:
    for _method in _service.methods:
        if _method.name != OPERATE:
            METHODS.append((_service, _method.name, _method.input_type, _method.output_type))
            continue
        _asked = _method.input_type.fields[0].message_type.oneofs_by_name[OPERATION].fields
        _answers: Any = _method.output_type.fields[0].message_type
        METHODS += [
            (
                _service,
                each.name,
                each.message_type,
                _answers.fields_by_name[each.name].message_type,
            )
            for each in _asked
        ]


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
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        return await self.unary(service, operation, request, call)

    async def close(self) -> None:
        """Nothing is open."""


def client_of(service: ServiceDescriptor, transport: Answering) -> Any:
    module = import_module(service.file.name.removesuffix(".proto").replace("/", ".") + "_rpc")
    return getattr(module, f"{service.name}Client")(transport)


@pytest.mark.parametrize(
    ("service", "name", "asked", "answered"),
    METHODS,
    ids=[f"{each[0].name}.{each[1]}" for each in METHODS],
)
def test_a_client_calls_its_rpc_and_refuses_another_answer(
    service: ServiceDescriptor, name: str, asked: Descriptor, answered: Descriptor
) -> None:
    request, answer = GetMessageClass(asked)(), GetMessageClass(answered)()
    transport = Answering(answer)
    assert asyncio.run(getattr(client_of(service, transport), name)(request, CALL)) is answer
    assert transport.seen == [(service.full_name, name, request)]
    call = getattr(client_of(service, Answering(rule_pb2.Rule())), name)
    with pytest.raises(TarnError) as refused:
        asyncio.run(call(request, CALL))
    assert refused.value.kind is Kind.INTERNAL
