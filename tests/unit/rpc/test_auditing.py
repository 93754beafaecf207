"""Rpcs in the audit log: every change and every refusal, with its caller, and no secret."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from served_service import ServedService, served_service

import tarn_proto.auth.v1
import tarn_proto.compactor.v1
import tarn_proto.graveler.v1
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.core.errors import TarnError
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock
from tarn.rpc.rules import operations_of, rules_of
from tarn.rpc.server.auditing import DETAILS, RpcAudit, peer_address
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.log import AuditConfig, AuditLog, auditing
from tarn.telemetry.meters import Meters

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

Records = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[AuditLog, Records]]:
    """An audit log, and a function that ends it and returns its records."""
    folder = tmp_path / "audit"
    with auditing(AuditConfig(folder), "graveler", SystemClock(), Meters(), sys.stdout) as log:
        assert log is not None

        def records() -> list[dict[str, Any]]:
            assert log.close()
            return [
                json.loads(line) for line in (folder / "graveler-0.jsonl").read_text().splitlines()
            ]

        yield log, records


def transport_of(served: ServedService) -> GrpcTransport:
    return GrpcTransport([served.address], clock=SystemClock(), rng=random.Random(1))


def call_as(token: str) -> Call:
    return Call("request-1", token, SystemClock().monotonic() + 30)


async def refused(work: Any) -> None:
    with pytest.raises(TarnError):
        await work


def facts(record: dict[str, Any]) -> tuple[str, ...]:
    names = ("operation", "resource", "outcome", "reason", "principal")
    return tuple(str(record[name]) for name in names)


async def test_changes_and_refusals_of_graveler_are_recorded_and_reads_are_not(
    tmp_path: Path, kept: tuple[AuditLog, Records]
) -> None:
    log, records = kept
    async with served_service(tmp_path, audit=log) as served:
        transport = transport_of(served)
        graveler = GravelerClient(transport)
        service = served.service
        admin = call_as(service.admin.caller_token)
        reader = call_as((await service.as_user("ada", "Analyst")).caller_token)
        uid = (await graveler.get_repository(admin, "lake")).instance_uid
        await graveler.create_branch(admin, "lake", "dev", "main")
        place = ("lake", uid, "dev", "a/b", service.entry(1))
        proven = replace(admin, service_token=await service.gateway_token())
        await graveler.stage(proven, *place)
        await graveler.unstage_many(admin, "lake", "dev", ["a/b", "c"])
        await refused(graveler.create_branch(reader, "lake", "mine", "main"))
        await refused(graveler.create_branch(call_as("forged"), "lake", "mine", "main"))
        await refused(graveler.create_branch(admin, "lake", "dev", "main"))
        await refused(AuthClient(transport).get_user(reader, "root"))
        await transport.close()

    dev, mine = "repository/lake/branch/dev", "repository/lake/branch/mine"
    create = "BranchService.CreateBranch"
    found = records()
    assert [facts(each) for each in found] == [
        (create, dev, "ok", "", "root"),
        ("EntryService.Operate.stage", f"{dev}/object/a/b", "ok", "", "root"),
        ("EntryService.UnstageEntries", f"{dev}/object/a/b", "ok", "", "root"),
        ("EntryService.UnstageEntries", f"{dev}/object/c", "ok", "", "root"),
        (create, mine, "denied", "ACCESS_DENIED", "ada"),
        (create, mine, "denied", "CALLER_TOKEN_INVALID", ""),
        (create, dev, "failed", "BRANCH_EXISTS", "root"),
        ("UserService.GetUser", "user/root", "denied", "ACCESS_DENIED", "ada"),
    ]
    assert found[0]["details"] == {"source_ref": "main"}
    assert {each["request_id"] for each in found} == {"request-1"}
    assert all(each["source"].startswith("127.0.0.1:") for each in found)


async def test_log_ins_users_and_keys_are_recorded_without_their_secrets(
    tmp_path: Path, kept: tuple[AuditLog, Records]
) -> None:
    log, records = kept
    async with served_service(tmp_path, audit=log) as served:
        transport = transport_of(served)
        auth = AuthClient(transport)
        key, secret = served.access_key_id, served.secret_access_key
        now = served.service.clock.now_us()
        session = await auth.log_in(call_as(""), key, secret, now_us=now, nonce=b"n" * 16)
        wrong = auth.log_in(call_as(""), key, "wrong", now_us=now, nonce=b"m" * 16)
        await refused(wrong)
        admin = call_as(session.grant.caller_token)
        await auth.create_user(admin, "eve", ["Developer"])
        made = await auth.create_credential(admin, user_id="eve")
        await auth.delete_credential(admin, made.credential.access_key_id)
        await transport.close()

    found = records()
    assert [facts(each) for each in found] == [
        ("SessionService.LogIn", "user/root", "ok", "", "root"),
        ("SessionService.LogIn", "", "denied", "SIGNATURE_MISMATCH", ""),
        ("UserService.CreateUser", "user/eve", "ok", "", "root"),
        ("UserService.CreateCredential", "user/eve", "ok", "", "root"),
        ("UserService.DeleteCredential", "user/eve", "ok", "", "root"),
    ]
    assert [each["access_key_id"] for each in found[:2]] == [key, key]
    assert found[2]["details"]["roles"] == ["Developer"]
    assert found[3]["details"]["access_key_id"] == made.credential.access_key_id
    text = json.dumps(found)
    for each in (secret, made.secret_access_key, session.grant.caller_token):
        assert each not in text


def services() -> Iterator[ServiceDescriptor]:
    for package in (tarn_proto.graveler.v1, tarn_proto.auth.v1, tarn_proto.compactor.v1):
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.endswith("_pb2"):
                continue
            loaded = importlib.import_module(f"{package.__name__}.{module.name}")
            yield from loaded.DESCRIPTOR.services_by_name.values()


def filled(descriptor: Descriptor) -> Message:
    """Returns a message each of whose texts names its field."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.type == field.TYPE_STRING and not field.is_repeated:
            setattr(message, field.name, f"text of {field.name}")
        elif field.type == field.TYPE_BYTES and not field.is_repeated:
            setattr(message, field.name, f"text of {field.name}".encode())
    return message


async def test_no_record_of_any_rpc_has_a_field_that_looks_like_a_secret(
    kept: tuple[AuditLog, Records],
) -> None:
    log, records = kept
    count = 0

    async def handle(_request: Message, _call: Call) -> Message:
        return GetMessageClass(next(services()).methods[0].output_type)()

    for service in services():
        audit = RpcAudit(log, service)
        for name, rule in rules_of(service).items():
            if rule.read_only:
                continue
            if method := service.methods_by_name.get(name):
                request = filled(method.input_type)
            else:
                batch = operations_of(service.methods_by_name["Operate"])
                request = GetMessageClass(batch)()
                inner = batch.fields_by_name[name].message_type
                assert inner is not None
                getattr(request, name).CopyFrom(filled(inner))
            await audit.recorded(handle, name, "127.0.0.1:1")(request, call_as("the token"))
            count += 1
    lines = records()
    assert len(lines) == count > 40
    told = set(re.findall(r"text of (\w+)", json.dumps(lines)))
    secret = re.compile(r"token|secret|signature|proof|nonce|password|message|lines|entry")
    assert {name for name in told | set(DETAILS) if secret.search(name)} == set()
    assert "the token" not in json.dumps(lines)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1:5000"),
        ("ipv6:%5B::1%5D:5000", "%5B::1%5D:5000"),
        ("unix:", "unix:"),
    ],
)
async def test_the_source_is_the_address_of_the_peer(peer: str, address: str) -> None:
    assert peer_address(peer) == address
