"""The bounds of repeated fields: every one in a request has one, and the server enforces it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from tests.support.servers.toy_service import (
    SERVICE,
    STRANGER,
    TOKEN,
    call_in,
    failure,
    serving,
    transport_to,
)

import tarn_proto
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.choice import CHOICE_RULES_MAX
from tarn.core.rules import EXEMPT_USERS_MAX, HIDDEN_MAX, METADATA_MAX, PROTECTIONS_MAX
from tarn.rpc.rules import operations_of
from tarn.rpc.wire.batch import BATCH_OPERATIONS_MAX
from tarn.rpc.wire.bounds import bounds_of, items_max, unbounded_fields
from tarn.rpc.wire.errors import error_from_trailers
from tarn.rpc.wire.methods import Endpoint, check_handler
from tarn_proto.auth.v1 import session_service_pb2 as session_pb
from tarn_proto.graveler.v1 import entry_service_pb2 as pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb
from tarn_proto.graveler.v1 import task_service_pb2 as task_pb

LOG_IN = session_pb.DESCRIPTOR.services_by_name["SessionService"].methods_by_name["LogIn"]


def services() -> Iterator[ServiceDescriptor]:
    """Yields every service of every proto."""
    for root in tarn_proto.__path__:
        for path in sorted(Path(root).rglob("*_pb2.py")):
            parts = path.relative_to(Path(root).parent).with_suffix("").parts
            module = importlib.import_module(".".join(parts))
            yield from module.DESCRIPTOR.services_by_name.values()


def requests() -> list[Descriptor]:
    return [method.input_type for service in services() for method in service.methods]


def test_every_repeated_field_of_every_request_has_a_bound() -> None:
    found = requests()
    assert len(found) > 100
    assert [field for request in found for field in unbounded_fields(request)] == []


def test_a_walk_finds_a_field_without_a_bound_in_a_message_of_a_message() -> None:
    assert "tarn.graveler.v1.ListEntriesResponse.paths" in unbounded_fields(
        pb.DESCRIPTOR.message_types_by_name["ListEntriesResponse"]
    )
    outer = settings_pb.DESCRIPTOR.message_types_by_name["GetSettingsResponse"]
    assert "tarn.graveler.v1.GetSettingsResponse.metadata" in unbounded_fields(outer)


@pytest.mark.parametrize(
    ("field", "bound"),
    [
        (pb.OperateRequest.DESCRIPTOR.fields_by_name["operations"], BATCH_OPERATIONS_MAX),
        (merge_pb.MergeRequest.DESCRIPTOR.fields_by_name["choices"], CHOICE_RULES_MAX),
        (settings_pb.SetRulesRequest.DESCRIPTOR.fields_by_name["protections"], PROTECTIONS_MAX),
        (settings_pb.SetRulesRequest.DESCRIPTOR.fields_by_name["hidden_patterns"], HIDDEN_MAX),
        (settings_pb.SetMetadataRequest.DESCRIPTOR.fields_by_name["metadata"], METADATA_MAX),
        (settings_pb.Protection.DESCRIPTOR.fields_by_name["exempt_user_ids"], EXEMPT_USERS_MAX),
    ],
)
def test_a_bound_is_that_of_the_handlers(field: FieldDescriptor, bound: int) -> None:
    assert items_max(field) == bound


def test_streams_carry_as_many_operations_as_a_batch() -> None:
    bounds = {
        items_max(method.input_type.fields_by_name["operations"])
        for service in services()
        for method in service.methods
        if method.name == "Operate"
    }
    assert bounds == {BATCH_OPERATIONS_MAX}


def test_operations_of_streams_have_nothing_to_check() -> None:
    """Otherwise the stream server must check each of them, on the hot path."""
    streams = [m for service in services() for m in service.methods if m.name == "Operate"]
    assert streams
    assert [bounds_of(operations_of(stream)) for stream in streams] == [None] * len(streams)


def test_messages_without_repeated_fields_have_nothing_to_check() -> None:
    assert bounds_of(pb.DESCRIPTOR.message_types_by_name["ListEntriesRequest"]) is None


def test_the_bound_itself_passes_and_one_more_does_not() -> None:
    bounds = bounds_of(pb.DESCRIPTOR.message_types_by_name["UnstageEntriesRequest"])
    assert bounds is not None
    bounds.check(pb.UnstageEntriesRequest(paths=["a"] * 1000))
    with pytest.raises(TarnError) as raised:
        bounds.check(pb.UnstageEntriesRequest(paths=["a"] * 1001))
    assert raised.value.kind is Kind.INVALID
    assert raised.value.reason is Reason.INVALID_ARGUMENT
    text = "paths of UnstageEntriesRequest has 1001 items; at most 1000 are allowed"
    assert raised.value.message == text
    assert raised.value.metadata == {"field": "paths", "count": "1001", "limit": "1000"}


def test_messages_in_lists_in_messages_and_maps_are_checked() -> None:
    rules = bounds_of(settings_pb.DESCRIPTOR.message_types_by_name["SetRulesRequest"])
    start = bounds_of(task_pb.DESCRIPTOR.message_types_by_name["StartMergeRequest"])
    assert rules is not None
    assert start is not None
    exempt = settings_pb.Protection(exempt_user_ids=[f"{number}" for number in range(101)])
    with pytest.raises(TarnError, match="exempt_user_ids of Protection has 101 items"):
        rules.check(settings_pb.SetRulesRequest(protections=[settings_pb.Protection(), exempt]))
    merge = merge_pb.MergeRequest(metadata={f"{number}": "" for number in range(4097)})
    with pytest.raises(TarnError, match="metadata of MergeRequest has 4097 items"):
        start.check(task_pb.StartMergeRequest(merge=merge))
    start.check(task_pb.StartMergeRequest())


def test_a_message_that_holds_itself_is_refused_rather_than_half_checked() -> None:
    file = FileDescriptorProto(name="tree.proto", package="test", syntax="proto3")
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="left", number=1, type=11, label=1, type_name=".test.Tree")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    with pytest.raises(TypeError, match=r"test\.Tree holds itself"):
        bounds_of(pool.FindMessageTypeByName("test.Tree"))


def test_a_service_with_an_unbounded_request_is_not_served() -> None:
    file = FileDescriptorProto(name="list.proto", package="test", syntax="proto3")
    file.message_type.add(name="Names").field.add(name="names", number=1, type=9, label=3)
    service = file.service.add(name="Lists")
    method = service.method.add(name="Take", input_type=".test.Names", output_type=".test.Names")
    method.options.MergeFromString(LOG_IN.GetOptions().SerializeToString())
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    with pytest.raises(TypeError, match=r"no bound for test\.Names\.names"):
        check_handler(Endpoint(pool.FindServiceByName("test.Lists"), object()))


@pytest.mark.asyncio(loop_scope="session")
async def test_the_server_refuses_it_before_the_handler_sees_it() -> None:
    async with serving() as served:
        transport = transport_to(served.address)
        request = pb.UnstageEntriesRequest(paths=["a"] * 1001)
        error = await failure(transport.unary(SERVICE, "UnstageEntries", request, call_in()))
        await transport.close()
    assert error.kind is Kind.INVALID
    assert error.metadata["field"] == "paths"
    assert served.toy.begun == []


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("token", ["", TOKEN])
async def test_a_request_that_is_no_message_is_the_mistake_of_its_client(token: str) -> None:
    async with serving() as served, grpc.aio.insecure_channel(served.address) as channel:
        rpc: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/tarn.graveler.v1.EntryService/ListEntries"
        )
        metadata = (("authorization", f"Bearer {token}"),)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await rpc(b"\xff\xff\xff", metadata=metadata)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = error_from_trailers(raised.value.trailing_metadata())
    assert error is not None
    assert "no ListEntriesRequest" in error.message


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("token", "size", "code"),
    [
        (STRANGER, 100_000, grpc.StatusCode.UNAUTHENTICATED),
        (STRANGER, 60_000, grpc.StatusCode.INVALID_ARGUMENT),
        ("known", 100_000, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_large_request_is_not_parsed_before_its_caller_is_known(
    token: str, size: int, code: grpc.StatusCode
) -> None:
    """To parse millions of empty items takes the loop long: the bound of items is checked on the parsed message."""
    async with serving() as served, grpc.aio.insecure_channel(served.address) as channel:
        rpc: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/tarn.graveler.v1.EntryService/ListEntries"
        )
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await rpc(b"\xff" * size, metadata=(("authorization", f"Bearer {token}"),))
    assert raised.value.code() is code
