"""The last uses of key pairs: what counts as one, how often it is written, and that no use waits for it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest

import tarn_auth.key_uses
from tarn.client.auth import AuthClient, NewCredential
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import FeatureGate
from tarn.kv.auth_records import decode_credential
from tarn.kv.keys import AuthKeys
from tarn.rpc.client.inprocess import InProcessTransport
from tarn_auth.application import AuthApplication
from tarn_auth.key_uses import USE_GRAIN_US, WRITE_SECONDS
from tarn_proto.auth.v1.session_key_service_pb2 import CreateSessionKeyRequest
from tarn_proto.auth.v1.user_pb2 import Credential

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

HOUR = USE_GRAIN_US // 1_000_000


async def written(world: World) -> None:
    """Writes what waits."""
    await world.application.drain(60)


async def pair_of(world: World, made: NewCredential) -> Credential:
    owner = made.credential.user_id
    page = await world.auth.list_credentials(world.call(world.admin), user_id=owner)
    [found] = page.credentials
    return found


async def log_in(world: World, made: NewCredential, use: str = "") -> str:
    session = await world.auth.log_in(
        world.call(),
        made.credential.access_key_id,
        made.secret_access_key,
        now_us=world.clock.now_us(),
        nonce=world.ids.nonce(),
        use=use,
    )
    return session.grant.caller_token


async def signed(world: World, key: str, digest: bytes = b"") -> str:
    """Returns the token that a gateway passes on once it has verified a signature."""
    answer = await world.auth.authorize_key(
        world.call(), key, world.day(), "us-east-1", "s3", digest
    )
    return answer.grant.caller_token


async def test_a_key_pair_that_nobody_used_has_no_last_use(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    await written(ready)
    found = await pair_of(ready, made)
    assert not found.HasField("use_time")
    assert found.use_kind == ""


@pytest.mark.parametrize(
    ("claim", "kind"), [("", "rpc"), ("rest", "rest"), ("web", "web"), ("<b>\n", "rpc")]
)
async def test_a_log_in_is_a_use_of_the_kind_that_it_claims(
    ready: World, claim: str, kind: str
) -> None:
    made = await ready.user("ada", "Analyst")
    ready.clock.advance(5)
    await log_in(ready, made, claim)
    await written(ready)
    found = await pair_of(ready, made)
    assert (found.use_time.seconds, found.use_kind) == (ready.clock.now_us() // 1_000_000, kind)


async def test_only_a_verified_signature_is_a_use(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    token = await signed(ready, made.credential.access_key_id)
    await written(ready)
    assert not (await pair_of(ready, made)).HasField("use_time")
    await ready.auth.authorize_token(ready.call(), token)
    await written(ready)
    assert (await pair_of(ready, made)).use_kind == "s3"


async def test_a_wrong_proof_is_no_use(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    wrong = NewCredential(made.credential, "x" * 40)
    with pytest.raises(TarnError):
        await log_in(ready, wrong)
    with pytest.raises(TarnError):
        await ready.auth.authorize_signature_v2(
            ready.call(), made.credential.access_key_id, b"GET", bytes(20)
        )
    await written(ready)
    assert not (await pair_of(ready, made)).HasField("use_time")


async def test_a_browser_is_a_use_of_the_key_pair_that_signed_in(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    secret = await ready.auth.begin_web_session(ready.call(), await log_in(ready, made, "web"))
    await written(ready)
    ready.clock.advance(HOUR - 1)
    digest = hashlib.sha256(secret.encode()).digest()
    await ready.auth.authorize_web_session(ready.call(), digest)
    await written(ready)
    before = await pair_of(ready, made)
    ready.clock.advance(1)
    await ready.auth.authorize_web_session(ready.call(), digest)
    await written(ready)
    after = await pair_of(ready, made)
    assert after.use_time.seconds - before.use_time.seconds == HOUR
    assert after.use_kind == "web"


async def test_a_session_key_is_a_use_of_the_key_pair_that_issued_it(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    call = ready.call(await log_in(ready, made))
    issued = await ready.auth.create_session_key(call, CreateSessionKeyRequest(duration_s=7200))
    await written(ready)
    ready.clock.advance(HOUR)
    digest = hashlib.sha256(issued.session_token.encode()).digest()
    token = await signed(ready, issued.session_key.access_key_id, digest)
    await ready.auth.authorize_token(ready.call(), token)
    await written(ready)
    found = await pair_of(ready, made)
    assert (found.use_time.seconds, found.use_kind) == (ready.clock.now_us() // 1_000_000, "s3")


async def test_a_thousand_uses_of_an_hour_are_one_write(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    token = await signed(ready, made.credential.access_key_id)
    await ready.auth.authorize_token(ready.call(), token)
    await written(ready)
    ready.kv.requests.clear()
    for _ in range(1000):
        ready.clock.advance(3)
        await ready.auth.authorize_token(ready.call(), token)
        await written(ready)
    assert "set_if" not in ready.kv.requests


async def test_no_use_waits_and_the_writer_runs_beside(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    async with ready.application:
        await asyncio.sleep(0)
        ready.kv.requests.clear()
        await log_in(ready, made)
        assert "set_if" not in ready.kv.requests
        ready.clock.advance(WRITE_SECONDS)
        for _ in range(100):
            await asyncio.sleep(0)
        assert (await pair_of(ready, made)).use_kind == "rpc"


async def test_a_store_that_refuses_costs_no_use_and_is_left_alone_for_a_minute(
    ready: World,
) -> None:
    made = await ready.user("ada", "Analyst")
    await written(ready)  # that of the administrator
    tries = 0

    async def refuse(name: str, _: object) -> None:
        nonlocal tries
        if name == "set_if":
            tries += 1
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "down")

    ready.kv.before = refuse
    for _ in range(5):
        await log_in(ready, made)
        await written(ready)
    assert tries == 1
    ready.kv.before = None
    ready.clock.advance(61)
    await log_in(ready, made)
    await written(ready)
    assert (await pair_of(ready, made)).use_kind == "rpc"


async def test_a_use_does_not_bring_a_deleted_key_pair_back(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    await log_in(ready, made)
    await ready.auth.delete_credential(ready.call(ready.admin), made.credential.access_key_id)
    await written(ready)
    key = AuthKeys.credential(made.credential.access_key_id)
    assert key not in dict(await ready.rows())


async def test_replicas_write_a_use_once(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    first = ready.application
    other = ready.replica()
    await log_in(ready, made, "rest")
    await ready.log_in(made, other)
    await first.drain(60)
    await ready.application.drain(60)
    assert (await pair_of(ready, made)).use_kind == "rest"


async def test_what_waits_is_bounded(ready: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarn_auth.key_uses, "WAITING_MAX", 1)
    await written(ready)
    ada, ben = await ready.user("ada", "Analyst"), await ready.user("ben", "Analyst")
    await log_in(ready, ada)
    await log_in(ready, ben)
    await written(ready)
    assert (await pair_of(ready, ada)).HasField("use_time")
    assert not (await pair_of(ready, ben)).HasField("use_time")


async def test_below_the_feature_level_nothing_is_written(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    level = FeatureGate.at(1)
    below = AuthApplication(ready.kv, "test", ready.secret, ready.clock, ready.ids, features=level)
    transport = InProcessTransport(below.endpoints_in_process, ready.clock)
    ready.transports.append(transport)
    await ready.log_in(made, AuthClient(transport))
    await below.drain(60)
    value = dict(await ready.rows())[AuthKeys.credential(made.credential.access_key_id)]
    assert decode_credential(value).use_time_us == 0
