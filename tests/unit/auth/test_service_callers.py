"""Who may ask auth for authorisations: services that prove what they are, and nothing else that reaches its port."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from google.protobuf.message import Message

from tarn.client.auth import AuthClient
from tarn.client.service_proofs import ServiceProofs
from tarn.core.access.proof import ServiceProof, service_proof
from tarn.core.access.service import Service
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.rules import Rule, rules_of
from tarn.rpc.wire.call import Call
from tarn_auth.application import AuthApplication
from tarn_auth.service_callers import PROOF_SKEW_S_MAX
from tarn_proto.auth.v1 import authorization_service_pb2 as pb

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

SECRET = bytes(range(32))  # of the world's installation
DESCRIPTOR = pb.DESCRIPTOR.services_by_name["AuthorizationService"]
RULES = rules_of(DESCRIPTOR)
NAMES = {service: f"{service}.tarn" for service in Service}


@dataclass
class Port:
    """The endpoints that auth serves on its port, and what it needs to ask each operation."""

    world: World
    application: AuthApplication
    transport: InProcessTransport
    access_key_id: str
    digest: bytes = bytes(32)

    def request(self, name: str, service: str = "") -> Message:
        if name == "authorize_key":
            return pb.AuthorizeKey(
                access_key_id=self.access_key_id,
                date=self.world.day(),
                region="us-east-1",
                service="s3",
            )
        if name == "authorize_signature_v2":
            secret = self.world.admin_secret.encode()
            return pb.AuthorizeSignatureV2(
                access_key_id=self.access_key_id,
                string_to_sign=b"GET",
                signature=hmac.digest(secret, b"GET", "sha1"),
            )
        if name == "authorize_token":
            return pb.AuthorizeToken(caller_token=self.world.admin)
        if name == "begin_web_session":
            return pb.BeginWebSession(caller_token=self.world.admin)
        if name == "authorize_web_session":
            return pb.AuthorizeWebSession(digest=self.digest)
        if name == "end_web_session":
            return pb.EndWebSession(digest=bytes(32))
        if name == "sign_download":
            return pb.SignDownload(
                caller_token=self.world.admin,
                host="s3.example",
                region="us-east-1",
                repository="lake",
                ref="main",
                path="a",
            )
        return pb.AuthorizeService(service=service)

    async def ask(self, name: str, service: str = "", proof: str = "", *names: str) -> str:
        """Returns the reason of the refusal; empty if the operation succeeds."""
        call = Call("r1", proof, self.world.clock.monotonic() + 1e6, frozenset(names))
        request = self.request(name, service)
        try:
            result = await self.transport.operate(DESCRIPTOR, name, request, call)
        except TarnError as error:
            return error.reason
        assert type(result).__name__ == type(request).__name__ + "Result"
        return ""

    def now_s(self) -> int:
        return self.world.clock.now_us() // 1_000_000


@pytest.fixture
async def port(ready: World) -> Port:
    made = port_of(ready)
    secret = await ready.auth.begin_web_session(ready.call(), ready.admin)
    made.digest = hashlib.sha256(secret.encode()).digest()
    return made


def port_of(ready: World, *remote: Service, secret: bytes = SECRET) -> Port:
    world = ready
    application = AuthApplication(
        world.kv,
        "test",
        secret,
        world.clock,
        world.ids,
        certificates=NAMES,
        remote_services=remote or tuple(Service),
    )
    transport = InProcessTransport(application.endpoints, world.clock)
    world.transports.append(transport)
    return Port(world, application, transport, world.admin_key)


def own_name(name: str, service: Service) -> str:
    return service if name == "authorize_service" else ""


@pytest.mark.parametrize("name", RULES)
async def test_nothing_that_a_stranger_or_a_user_has_is_the_proof_of_a_service(
    port: Port, name: str
) -> None:
    world, now = port.world, port.now_s()
    true = service_proof(SECRET, "gateway", now)
    others = {
        "nothing": ("", ()),
        "an admin's token": (world.admin, ()),
        "a service's token": (await service_token(port), ()),
        "another secret": (service_proof(b"o" * 32, "gateway", now), ()),
        "another service's mac": (true.replace("gateway", "graveler"), ()),
        "a later time": (true.replace(str(now), str(now + 1)), ()),
        "an unknown service": (service_proof(SECRET, "admin", now), ()),
        "a proof and more": (true + "\n", ()),
        "the proof of SetUp": ("service.gateway.0." + "0" * 64, ()),
        "names of users": ("", ("client", "client.tarn", "gateway", "gateway.tarn.evil", "*.tarn")),
    }
    for what, (proof, names) in others.items():
        for service in Service:
            reason = await port.ask(name, own_name(name, service), proof, *names)
            assert reason is Reason.SERVICE_REQUIRED, what


async def service_token(port: Port) -> str:
    answer = await port.world.auth.authorize_service(port.world.call(), Service.GATEWAY)
    return answer.caller_token


@pytest.mark.parametrize("service", Service)
@pytest.mark.parametrize("name", RULES)
async def test_a_service_may_ask_what_the_rule_of_the_operation_says(
    port: Port, name: str, service: Service
) -> None:
    expected = "" if service in RULES[name].services else Reason.SERVICE_REQUIRED
    proof = service_proof(SECRET, service, port.now_s())
    assert await port.ask(name, own_name(name, service), proof) == expected
    assert await port.ask(name, own_name(name, service), "", NAMES[service]) == expected


async def test_a_service_gets_the_token_of_no_other_one(port: Port) -> None:
    proof = service_proof(SECRET, "compactor", port.now_s())
    for other in ("gateway", "graveler"):
        assert await port.ask("authorize_service", other, proof) is Reason.SERVICE_REQUIRED
    assert await port.ask("authorize_service", "nothing", proof) is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("skew_s", [-PROOF_SKEW_S_MAX - 1, PROOF_SKEW_S_MAX + 1])
async def test_a_proof_is_accepted_for_some_minutes(port: Port, skew_s: int) -> None:
    edge = skew_s - (1 if skew_s > 0 else -1)
    proof = service_proof(SECRET, "gateway", port.now_s() + edge)
    assert await port.ask("authorize_token", "", proof) == ""
    late = service_proof(SECRET, "gateway", port.now_s() + skew_s)
    assert await port.ask("authorize_token", "", late) is Reason.SERVICE_REQUIRED


async def test_a_worker_admits_only_the_service_that_is_another_process(ready: World) -> None:
    worker = port_of(ready, Service.COMPACTOR)
    now = worker.now_s()
    for proof, names in (
        (service_proof(SECRET, "gateway", now), ()),
        ("", (NAMES[Service.GATEWAY],)),
    ):
        for name in RULES:
            assert await worker.ask(name, "gateway", proof, *names) is Reason.SERVICE_REQUIRED
    proof = service_proof(SECRET, "compactor", now)
    assert await worker.ask("authorize_service", "compactor", proof) == ""


async def test_proofs_with_each_secret_of_a_rotation_are_valid(ready: World) -> None:
    port = port_of(ready)
    new = b"n" * 32
    proofs = ServiceProofs(Service.GRAVELER, SECRET, ready.clock)
    assert await port.ask("authorize_token", "", proofs()) == ""
    await port.application.use_secrets((SECRET, new))
    proofs.use(new)
    assert await port.ask("authorize_token", "", proofs()) == ""
    proofs.use(SECRET)
    assert await port.ask("authorize_token", "", proofs()) == ""


async def test_a_process_makes_a_new_proof_before_the_old_one_ends(ready: World) -> None:
    port = port_of(ready)
    proofs = ServiceProofs(Service.GRAVELER, SECRET, ready.clock)
    first = proofs()
    assert proofs() == first
    for _ in range(20):
        ready.clock.advance(PROOF_SKEW_S_MAX / 6)
        assert await port.ask("authorize_token", "", proofs()) in ("", Reason.CALLER_TOKEN_INVALID)
    assert proofs() != first
    assert await port.ask("authorize_token", "", first) is Reason.SERVICE_REQUIRED


def test_a_process_without_the_secret_has_no_proof_and_none_is_shown(ready: World) -> None:
    assert ServiceProofs(Service.GATEWAY, None, ready.clock)() == ""
    proof = ServiceProof.parse(service_proof(SECRET, "gateway", 1))
    assert proof is not None
    assert proof.is_by(SECRET)
    assert service_proof(SECRET, "gateway", 1)[-64:] not in repr(proof)


async def test_a_service_that_auth_does_not_accept_fails_as_unavailable(ready: World) -> None:
    """Its caller did nothing wrong, and may try again when the service is configured right."""
    port = port_of(ready)
    client = AuthClient(port.transport)
    with pytest.raises(TarnError) as caught:
        await client.authorize_token(ready.call("its caller's token"), ready.admin)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert "the installation's secret" in caught.value.message
    proofs = ServiceProofs(Service.GRAVELER, SECRET, ready.clock)
    grant = await AuthClient(port.transport, proofs).authorize_token(ready.call(), ready.admin)
    assert grant.user_id == "root"


def test_the_rule_of_every_operation_names_its_services() -> None:
    def is_for_services(rule: Rule) -> bool:
        return bool(rule.services) and rule.action is None and not rule.public_because

    assert len(RULES) == 8
    assert all(is_for_services(rule) for rule in RULES.values())
