"""Every rpc of every service on a real port: called with nothing, with certificates of users and of services, and as a
user of each role."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from cryptography import x509
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from graveler_service import Service as Lake
from graveler_service import running_service
from served_service import ServiceClock

from tarn.client.service_proofs import ServiceProofs
from tarn.core.access.actions import Action
from tarn.core.access.policy import Policy, Role, statements_of
from tarn.core.access.service import Service
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import UserId
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.client.transport import Transport
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.tls import ChannelTls, TlsFiles, server_credentials
from tarn.rpc.rules import OPERATE, Rule, operations_of, rules_of
from tarn.rpc.server.grpc_server import RpcServer, ServerConfig
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import Endpoint
from tarn.telemetry.audit.log import AuditConfig, AuditLog, auditing
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing
from tarn_compactor.application import CompactorApplication
from tarn_compactor.config import CompactorSettings
from tarn_compactor.policy import Thresholds
from tarn_proto.auth.v1.session_key_service_pb2 import (
    CreateSessionKeyRequest,
    EndSessionKeyRequest,
)

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUSALS = {Reason.CALLER_TOKEN_INVALID, Reason.ACCESS_DENIED, Reason.SERVICE_REQUIRED}
SECONDS = 20.0
TEXT = "xxxxxxxxxxxxxxxx"
"""A valid name of almost everything."""


@dataclass(frozen=True)
class Rpc:
    """One rpc, or one operation of a stream, and a request whose texts are all the same."""

    service: ServiceDescriptor
    name: str
    rule: Rule
    request: Message

    async def reason(self, transport: Transport, call: Call) -> Reason | None:
        """Returns why a call failed; None if it did not."""
        try:
            if self.name in self.service.methods_by_name:
                await transport.unary(self.service, self.name, self.request, call)
            else:
                await transport.operate(self.service, self.name, self.request, call)
        except TarnError as error:
            return error.reason
        return None


def filled(descriptor: Descriptor) -> Message:
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.type == field.TYPE_STRING:
            if field.is_repeated:
                getattr(message, field.name).append(TEXT)
            else:
                setattr(message, field.name, TEXT)
        elif (inner := field.message_type) is None or inner.GetOptions().map_entry:
            continue
        elif field.is_repeated:
            getattr(message, field.name).append(filled(inner))
        elif inner.file.package == descriptor.file.package:
            getattr(message, field.name).CopyFrom(filled(inner))
    return message


def rpcs_of(service: ServiceDescriptor) -> list[Rpc]:
    found = []
    for name, rule in rules_of(service).items():
        if name in service.methods_by_name:
            request = filled(service.methods_by_name[name].input_type)
        else:
            inner = operations_of(service.methods_by_name[OPERATE]).fields_by_name[name]
            assert inner.message_type is not None
            request = filled(inner.message_type)
        found.append(Rpc(service, name, rule, request))
    return found


@dataclass(frozen=True)
class Ports:
    """All services behind a port with mutual TLS, and behind one of plain text.

    Attributes:
        rpcs: all that the ports serve.
        plain: reaches the port of plain text.
        secure: reaches the other one with a certificate.
    """

    lake: Lake
    rpcs: list[Rpc]
    plain: GrpcTransport
    secure: Callable[[TlsFiles], GrpcTransport]
    authority: Authority

    def call(self, token: str = "") -> Call:
        return Call("request-1", token, SystemClock().monotonic() + SECONDS)


@asynccontextmanager
async def ports(folder: Path, audit: AuditLog | None = None) -> AsyncIterator[Ports]:
    authority = Authority(folder / "certificates")
    async with running_service(folder) as lake:

        async def no_replicas() -> Mapping[str, Transport]:
            return {}

        compactor = CompactorApplication(
            CompactorSettings(Thresholds()),
            replicas=no_replicas,
            graveler=lake.transport,
            auth=lake.auth,
            clock=lake.clock,
            ids=SystemIds(SystemClock()),
            rng=random.Random(1),
            meters=Meters(),
        )
        endpoints: list[Endpoint] = [
            *lake.endpoints,
            *lake.auth_endpoints,
            *compactor.endpoints,
        ]
        clock = ServiceClock(lake.clock)
        credentials = (None, server_credentials(authority.issue("server")))
        servers = [
            RpcServer(
                endpoints,
                ServerConfig("127.0.0.1:0"),
                clock=clock,
                ids=SystemIds(SystemClock()),
                meters=Meters(),
                tracing=Tracing(None, 0, random.Random(1)),
                credentials=each,
                audit=audit,
            )
            for each in credentials
        ]
        plain, secure = [await server.start() for server in servers]
        transports: list[GrpcTransport] = []

        def connect(address: str, files: TlsFiles | None) -> GrpcTransport:
            tls = None if files is None else ChannelTls(files)
            transports.append(
                GrpcTransport([address], tls=tls, clock=SystemClock(), rng=random.Random(1))
            )
            return transports[-1]

        rpcs = [rpc for endpoint in endpoints for rpc in rpcs_of(endpoint.descriptor)]
        secret = await lake.auth.begin_web_session(lake.admin, lake.admin.caller_token)
        for rpc in rpcs:
            request: Any = rpc.request
            if rpc.name in ("authorize_token", "begin_web_session", "sign_download"):
                request.caller_token = lake.admin.caller_token
            if rpc.name == "authorize_web_session":
                request.digest = hashlib.sha256(secret.encode()).digest()
        try:
            yield Ports(lake, rpcs, connect(plain, None), partial(connect, secure), authority)
        finally:
            for transport in transports:
                await transport.close()
            for server in servers:
                await server.close()


def expected_of_strangers(rule: Rule, service: Service | None = None) -> Reason | None:
    """The refusal of a caller without a token; None: it is not refused."""
    if rule.services:
        return None if service in rule.services else Reason.SERVICE_REQUIRED
    return None if rule.public_because else Reason.CALLER_TOKEN_INVALID


def wrong(rpc: Rpc, expected: Reason | None, reason: Reason | None) -> str:
    """Tells a call that ended otherwise than it should; empty if all is well."""
    refused = reason if reason in REFUSALS else None
    return "" if refused == expected else f"{rpc.rule.full_name}: {reason}, not {expected}"


async def test_a_caller_is_what_it_proves_and_not_what_it_reaches(tmp_path: Path) -> None:
    async with ports(tmp_path) as served:
        assert len(served.rpcs) > 100
        # An authority lets users have any common name, address of mail and URI.
        like_a_gateway = (
            x509.DNSName("client"),
            x509.RFC822Name("gateway"),
            x509.UniformResourceIdentifier("gateway"),
        )
        callers: list[tuple[Transport, Service | None]] = [
            (served.plain, None),
            (served.secure(served.authority.issue("gateway", *like_a_gateway)), None),
        ]
        for service in Service:
            files = served.authority.issue(f"of-{service}", x509.DNSName(service))
            callers.append((served.secure(files), service))
        problems = [
            wrong(
                rpc,
                expected_of_strangers(rpc.rule, service),
                await rpc.reason(transport, served.call()),
            )
            for transport, service in callers
            for rpc in served.rpcs
            # The token of another service is refused; each gets its own below.
            if rpc.name != "authorize_service" or service is None
        ]
        assert "\n".join(sorted({each for each in problems if each})) == ""


async def test_users_of_every_role_may_do_what_the_rules_say_and_ask_for_no_authorisation(
    tmp_path: Path,
) -> None:
    async with ports(tmp_path) as served:
        files = served.authority.issue("user", x509.DNSName("client"))
        transport = served.secure(files)
        problems = []
        for role in Role:
            policy = Policy(statements_of([role], UserId(f"a-{role.lower()}")))
            user = await served.lake.as_user(f"a-{role.lower()}", role)
            for rpc in served.rpcs:
                if rpc.name == "DeleteUser" and role is Role.ADMIN:
                    continue  # of the user that it made: it would end nothing here, and the next rpcs need it
                call = served.call(user.caller_token)
                if rpc.rule.through:
                    # A user's own token in the place of the proof proves nothing.
                    for proof in ("", user.caller_token):
                        alone = await rpc.reason(transport, replace(call, service_token=proof))
                        if alone is not Reason.SERVICE_REQUIRED:
                            problems.append(f"{role} alone {rpc.rule.full_name}: {alone}")
                    call = replace(call, service_token=user.service_token)
                reason = await rpc.reason(transport, call)
                if rpc.rule.action is None:
                    problems.append(wrong(rpc, expected_of_strangers(rpc.rule), reason))
                elif not any(
                    statement.allow and set(statement.actions) & {"*", rpc.rule.action}
                    for statement in policy.statements
                ):
                    is_refused = reason in REFUSALS or not is_about_request(rpc)
                    # The paths of this one are refused one by one, in its answer.
                    if (reason is None or not is_refused) and rpc.name != "UnstageEntries":
                        problems.append(f"{role} {rpc.rule.full_name}: {reason}")
                elif role is Role.ADMIN and reason in REFUSALS:
                    problems.append(f"{role} {rpc.rule.full_name}: {reason}")
        assert "\n".join(sorted({each for each in problems if each})) == ""


def is_about_request(rpc: Rpc) -> bool:
    """Whether the request alone tells the resource, so that permission is the first thing to fail."""
    return not any("." in name for name in rpc.rule.resource.names)


async def test_services_get_their_own_tokens_by_certificate_and_by_the_secret(
    tmp_path: Path,
) -> None:
    async with ports(tmp_path) as served:
        (rpc,) = [rpc for rpc in served.rpcs if rpc.name == "authorize_service"]
        for service in Service:
            names = x509.DNSName(service)
            transport = served.secure(served.authority.issue(f"of-{service}", names))
            proof = ServiceProofs(service, served.lake.secret, served.lake.clock)()
            for asked in Service:
                request = type(rpc.request)()
                request.service = asked  # type: ignore[attr-defined]
                asking = replace(rpc, request=request)
                reasons = {
                    await asking.reason(transport, served.call()),
                    await asking.reason(served.plain, served.call(proof)),
                }
                may = asked is service and service in rpc.rule.services
                assert reasons == ({None} if may else {Reason.SERVICE_REQUIRED})


async def test_every_credential_that_is_issued_and_every_refusal_is_audited(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "audit"
    with auditing(AuditConfig(folder), "auth", SystemClock(), Meters(), sys.stdout) as log:
        assert log is not None
        async with ports(tmp_path, log) as served:
            lake = served.lake
            access = {rpc.name: rpc for rpc in served.rpcs if rpc.rule.services}
            key_request = type(access["authorize_key"].request)()
            now = lake.clock.now_us() // 1_000_000
            asked: Any = key_request
            asked.access_key_id, asked.region, asked.service = lake.admin_key[0], "eu", "s3"
            asked.date = day(now)
            key = replace(access["authorize_key"], request=key_request)
            token_request = type(access["authorize_token"].request)()
            token_request.caller_token = lake.admin.caller_token  # type: ignore[attr-defined]
            token = replace(access["authorize_token"], request=token_request)
            gateway = ServiceProofs(Service.GATEWAY, lake.secret, lake.clock)()
            graveler = ServiceProofs(Service.GRAVELER, lake.secret, lake.clock)()
            assert await key.reason(served.plain, served.call(gateway)) is None
            assert await token.reason(served.plain, served.call(gateway)) is None
            for proof in ("", graveler):
                assert await key.reason(served.plain, served.call(proof)) is not None
            assert await token.reason(served.plain, served.call()) is not None
        assert log.close()
    lines = [json.loads(line) for line in (folder / "auth-0.jsonl").read_text().splitlines()]
    stream = "AuthorizationService.Operate"
    refused = ("denied", "SERVICE_REQUIRED")
    assert [
        (each["operation"], each["outcome"], each["reason"], each["principal"]) for each in lines
    ] == [
        (f"{stream}.authorize_key", "ok", "", "service:gateway"),
        (f"{stream}.authorize_key", *refused, ""),
        (f"{stream}.authorize_key", *refused, "service:graveler"),
        (f"{stream}.authorize_token", *refused, ""),
    ]
    assert [each["access_key_id"] for each in lines[:3]] == [lake.admin_key[0]] * 3
    text = json.dumps(lines)
    assert gateway not in text
    assert lake.admin.caller_token not in text


def day(now_s: int) -> str:
    return dt.datetime.fromtimestamp(now_s, dt.UTC).strftime("%Y%m%d")


async def test_a_session_key_of_an_administrator_may_do_what_its_page_says(tmp_path: Path) -> None:
    """docs/design/session-keys.md: the rpcs of three actions, its own user, and itself; nothing else."""
    data = {Action.LIST_REPOS, Action.READ_REPO, Action.WRITE_REPO}
    async with ports(tmp_path) as served:
        lake = served.lake
        request = CreateSessionKeyRequest()
        made = await lake.auth.create_session_key(lake.admin, request)
        key = made.session_key.access_key_id
        session = await lake.auth.log_in(
            lake.anonymous,
            key,
            made.secret_access_key,
            now_us=lake.clock.now_us(),
            nonce=b"s" * 16,
            session_token=made.session_token,
        )
        call = replace(served.call(), caller_token=session.grant.caller_token)
        call = replace(call, service_token=lake.admin.service_token)
        problems = []
        for rpc in served.rpcs:
            if rpc.rule.action is None:
                continue
            reason = await rpc.reason(served.plain, call)
            is_data = rpc.rule.action in data
            if (is_data and reason in REFUSALS) or (
                not is_data and reason not in REFUSALS and is_about_request(rpc)
            ):
                problems.append(f"{rpc.rule.full_name}: {reason}")
        assert "\n".join(problems) == ""
        own = EndSessionKeyRequest(access_key_id=key)
        (rpc,) = [rpc for rpc in served.rpcs if rpc.name == "EndSessionKey"]
        assert await replace(rpc, request=own).reason(served.plain, call) is None
        assert await rpc.reason(served.plain, call) is Reason.CALLER_TOKEN_INVALID
