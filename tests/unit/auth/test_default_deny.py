"""Every rpc of auth: called without a token, with a forged one, and as the least privileged user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tarn.core.access.actions import Action
from tarn.core.access.caller_token import issue
from tarn.core.access.policy import Grant
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId, UserId
from tarn.rpc.rules import rules_of
from tarn_proto.auth.v1 import (
    authorization_service_pb2,
    session_key_service_pb2,
    session_service_pb2,
    user_service_pb2,
)
from tarn_proto.auth.v1.session_key_service_pb2 import CreateSessionKeyRequest

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

METHODS = [
    method
    for file in (
        authorization_service_pb2,
        session_key_service_pb2,
        session_service_pb2,
        user_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.name != "Operate"
]
GUARDED = [
    method
    for method in METHODS
    if rules_of(method.containing_service)[method.name].action is not None
]

OF_CALLERS = {"GetCaller", "CreateSessionKey"}
OTHERS = [method for method in GUARDED if method.name not in OF_CALLERS]  # these name no user


async def call(world: World, method: MethodDescriptor, token: str, **fields: object) -> Message:
    known = {
        name: value for name, value in fields.items() if name in method.input_type.fields_by_name
    }
    request = GetMessageClass(method.input_type)(**known)
    transport = world.transports[0]
    return await transport.unary(method.containing_service, method.name, request, world.call(token))


def test_the_number_of_guarded_rpcs_is_known() -> None:
    assert len(GUARDED) == 16


@pytest.mark.parametrize("method", GUARDED, ids=lambda method: method.name)
async def test_no_rpc_serves_a_caller_without_a_valid_token(
    ready: World, method: MethodDescriptor
) -> None:
    forged = issue(bytes(32), UserId("root"), b"u" * 16, AccessKeyId("TARNKEY"), 0, 2**62)
    before = await ready.rows()
    for token in ("", "x", forged):
        with pytest.raises(TarnError) as caught:
            await call(ready, method, token, user_id="eve", roles=["Admin"])
        assert caught.value.kind is Kind.UNAUTHENTICATED
        assert caught.value.reason is Reason.CALLER_TOKEN_INVALID
    assert await ready.rows() == before


@pytest.mark.parametrize("method", OTHERS, ids=lambda method: method.name)
@pytest.mark.parametrize("role", ["Developer", "Analyst"])
async def test_the_least_privileged_user_cannot_reach_other_users(
    ready: World, method: MethodDescriptor, role: str
) -> None:
    token = await ready.log_in(await ready.user("bob", role))
    carol = await ready.user("carol", "Admin")
    key = carol.credential.access_key_id
    before = await ready.rows()
    with pytest.raises(TarnError) as caught:
        await call(ready, method, token, user_id="carol", roles=["Admin"], access_key_id=key)
    hidden = method.name in ("DeleteCredential", "RenewSessionKey", "EndSessionKey")
    expected = Reason.CREDENTIAL_NOT_FOUND if hidden else Reason.ACCESS_DENIED
    assert caught.value.reason is expected
    assert await ready.rows() == before


async def test_a_token_of_another_installation_is_refused(ready: World) -> None:
    other = ready.replica(secret=b"o" * 32)
    with pytest.raises(TarnError) as caught:
        await other.get_caller(ready.call(ready.admin))
    assert caught.value.reason is Reason.CALLER_TOKEN_INVALID


RECORDS = {
    "user_id": "carol",
    "credential.user_id": "carol",
    "caller.user_id": "root",
    "session.user_id": "root",
}


@pytest.mark.parametrize("method", GUARDED, ids=lambda method: method.name)
async def test_an_admin_without_the_permission_of_the_rule_is_refused(
    ready: World, monkeypatch: pytest.MonkeyPatch, method: MethodDescriptor
) -> None:
    """The handler checks the permission that the proto of the rpc states."""
    carol = await ready.user("carol", "Analyst")
    rule = rules_of(method.containing_service)[method.name]
    resource = rule.resource.template
    key = carol.credential.access_key_id
    if "session.access_key_id" in rule.resource.names:
        made = await ready.auth.create_session_key(
            ready.call(ready.admin), CreateSessionKeyRequest()
        )
        key = made.session_key.access_key_id
    for name, value in {**RECORDS, "session.access_key_id": key}.items():
        resource = resource.replace(f"{{{name}}}", value)
    denied = (rule.require_action(), resource)
    checks: list[tuple[Action, str]] = []

    def require(_: Grant, action: Action, resource: str) -> None:
        checks.append((action, resource))
        if (action, resource) == denied:
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "not this")

    monkeypatch.setattr(Grant, "require", require)
    before = await ready.rows()
    fields = {"user_id": "carol", "roles": ["Admin"], "access_key_id": key}
    with pytest.raises(TarnError):
        await call(ready, method, ready.admin, **fields)
    assert checks == [denied]
    assert await ready.rows() == before
