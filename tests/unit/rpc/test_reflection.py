"""Tools such as grpcurl learn the rpcs, with their options, from a server that is configured to tell them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from served_service import served_service

from tarn.config import load
from tarn.rpc.process.standalone import serve_config
from tarn.rpc.server.reflection import reflected_files
from tarn_proto.common.v1.status_pb2 import ErrorInfo

NO_SIDE_EFFECTS = MethodOptions.NO_SIDE_EFFECTS


def learn(address: str) -> tuple[set[str], dict[str, bool], Any]:
    """Returns the services of a server, the methods of one of them (whether they change nothing), and the class of
    error details.
    """
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        service = DescriptorPool(database).FindServiceByName("tarn.graveler.v1.CommitService")
        methods = {
            each.name: each.GetOptions().idempotency_level == NO_SIDE_EFFECTS
            for each in service.methods
        }
        pool = DescriptorPool(database)
        info = GetMessageClass(pool.FindMessageTypeByName("google.rpc.ErrorInfo"))
    return services, methods, info


# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
@pytest.mark.asyncio(loop_scope="session")
async def test_a_tool_learns_services_messages_and_options(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served:
        services, methods, info = await asyncio.to_thread(learn, served.address)
    assert services >= {
        "tarn.auth.v1.SessionService",
        "tarn.graveler.v1.BranchService",
        "tarn.graveler.v1.MergeService",
        "grpc.health.v1.Health",
    }
    assert methods.items() >= {"CreateCommit": False, "GetCommit": True}.items()
    ours = ErrorInfo(reason="REF_MOVED", domain="tarn", metadata={"ref": "main"})
    google = info.FromString(ours.SerializeToString())
    assert (google.reason, google.domain, google.metadata) == ("REF_MOVED", "tarn", {"ref": "main"})


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False), (None, False)])
def test_reflection_is_a_setting(value: str | None, expected: bool) -> None:
    variables = {} if value is None else {"TARN_RPC_REFLECTION": value}
    made = serve_config("graveler", load(None, variables), "graveler")
    assert made.grpc is not None
    assert made.grpc.reflection is expected


def test_a_method_is_found_in_the_file_of_its_service() -> None:
    files = reflected_files()
    method = "tarn.graveler.v1.CommitService.CreateCommit"
    assert files.FindFileContainingSymbol(method).name.endswith("/commit_service.proto")
    for symbol in (f"{method}s", "tarn.graveler.v1.Nothing", "Nothing", "google.rpc.Nothing"):
        with pytest.raises(KeyError):
            files.FindFileContainingSymbol(symbol)
