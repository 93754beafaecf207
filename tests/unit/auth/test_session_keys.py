"""Session keys: what they may do, how long they live, and who may end them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import pytest

from tarn.client.auth import AuthClient, SigningGrant
from tarn.core.access.actions import Action
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import FeatureGate
from tarn.gate.access import Access
from tarn.kv.keys import AuthKeys
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.wire.call import Call
from tarn_auth.application import AuthApplication
from tarn_auth.authorizer import CACHE_TTL_S, GRANT_TTL_MS, signing_key
from tarn_auth.registers import Registers
from tarn_auth.resealing import count_seals, reseal
from tarn_auth.secret_box import SecretBox
from tarn_auth.session_keys import SESSIONS_PER_USER_MAX
from tarn_proto.auth.v1.session_key_service_pb2 import (
    Binding,
    CreateSessionKeyRequest,
    CreateSessionKeyResponse,
    Permission,
)

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

REGION = ("us-east-1", "s3")
MAIN = "repository/lake/branch/main/object/a"
HOUR = 3600


async def refused(work: Awaitable[object]) -> Reason:
    with pytest.raises(TarnError) as caught:
        await work
    return caught.value.reason


class Ada:
    """A user with a key pair and a caller token."""

    def __init__(self, world: World, made: Any, token: str) -> None:
        self.world = world
        self.made = made
        self.call = world.call(token)

    async def issue(self, **fields: Any) -> CreateSessionKeyResponse:
        request = CreateSessionKeyRequest(**fields)
        return await self.world.auth.create_session_key(self.call, request)


@pytest.fixture
async def ada(ready: World) -> Ada:
    made = await ready.user("ada", "Developer")
    return Ada(ready, made, await ready.log_in(made))


def key_of(made: CreateSessionKeyResponse) -> str:
    return made.session_key.access_key_id


def digest_of(made: CreateSessionKeyResponse) -> bytes:
    return hashlib.sha256(made.session_token.encode()).digest()


async def grant_of(world: World, made: CreateSessionKeyResponse, auth: Any = None) -> Any:
    """The grant that a gateway gets for a request with the session key."""
    return await (auth or world.auth).authorize_key(
        world.call(), key_of(made), world.day(), *REGION, digest_of(made)
    )


async def logged_in(world: World, made: CreateSessionKeyResponse, token: str | None = None) -> Call:
    session = await world.auth.log_in(
        world.call(),
        key_of(made),
        made.secret_access_key,
        now_us=world.clock.now_us(),
        nonce=world.ids.nonce(),
        session_token=made.session_token if token is None else token,
    )
    return world.call(session.grant.caller_token)


async def test_a_session_key_acts_for_its_user(ready: World, ada: Ada) -> None:
    made = await ada.issue(description="job")
    found = await grant_of(ready, made)
    assert found.grant.user_id == "ada"
    assert found.grant.allows(Action.WRITE_REPO, MAIN)
    assert found.grant.ttl_ms == GRANT_TTL_MS
    again = await ready.replica().authorize_token(ready.call(), found.grant.caller_token)
    assert again.policy.statements == found.grant.policy.statements
    key = made.session_key
    assert key.expire_time.seconds - key.create_time.seconds == HOUR
    assert key.issuer_access_key_id == ada.made.credential.access_key_id


async def test_an_administrators_session_key_administers_nothing(ready: World) -> None:
    request = CreateSessionKeyRequest()
    made = await ready.auth.create_session_key(ready.call(ready.admin), request)
    grant = (await grant_of(ready, made)).grant
    allowed = {
        action
        for action in Action
        for resource in ("repository/lake", "repository/*", MAIN, "user/*", "user/ada", "quota/*")
        if grant.allows(action, resource)
    }
    assert allowed == {Action.LIST_REPOS, Action.READ_REPO, Action.WRITE_REPO}
    assert grant.allows(Action.READ_USERS, "user/root")
    assert not grant.allows(Action.MANAGE_SESSIONS, "user/root/session/*")
    assert not grant.allows(Action.MANAGE_CREDENTIALS, "user/root")


async def test_it_has_fewer_rights_if_told_so(ready: World, ada: Ada) -> None:
    prefix = "repository/lake/branch/main/object/raw/"
    permission = Permission(actions=["WriteRepo"], resources=[f"{prefix}*"])
    grant = (await grant_of(ready, await ada.issue(permissions=[permission]))).grant
    assert grant.allows(Action.WRITE_REPO, f"{prefix}a")
    assert not grant.allows(Action.WRITE_REPO, MAIN)
    assert not grant.allows(Action.READ_REPO, f"{prefix}a")
    token = await ready.replica().authorize_token(ready.call(), grant.caller_token)
    assert not token.allows(Action.WRITE_REPO, MAIN)


async def test_bindings_come_with_the_grant(ready: World, ada: Ada) -> None:
    binding = Binding(bucket_id="sales", repository_id="lake", ref="try")
    grant = (await grant_of(ready, await ada.issue(bindings=[binding]))).grant
    assert [(b.bucket, b.repository, b.ref) for b in grant.bindings] == [("sales", "lake", "try")]


async def test_it_loses_what_its_user_loses(ready: World, ada: Ada) -> None:
    made = await ada.issue()
    token = (await grant_of(ready, made)).grant.caller_token
    await ready.auth.update_user_roles(ready.call(ready.admin), "ada", ["Analyst"])
    for grant in (
        (await grant_of(ready, made)).grant,
        await ready.auth.authorize_token(ready.call(), token),
    ):
        assert grant.allows(Action.READ_REPO, "repository/lake/ref/main")
        assert not grant.allows(Action.WRITE_REPO, MAIN)


async def test_signatures_of_version_2_need_the_token_too(ready: World, ada: Ada) -> None:
    made, other = await ada.issue(), await ada.issue()
    signature = hmac.digest(made.secret_access_key.encode(), b"GET", "sha1")

    def ask(digest: bytes) -> Any:
        return ready.auth.authorize_signature_v2(
            ready.call(), key_of(made), b"GET", signature, digest
        )

    assert (await ask(digest_of(made))).user_id == "ada"
    assert await refused(ask(b"")) is Reason.CREDENTIAL_NOT_FOUND
    assert await refused(ask(digest_of(other))) is Reason.SESSION_TOKEN_INVALID
    ready.clock.advance(36 * 3600.0)
    assert await refused(ask(digest_of(made))) in (
        Reason.SESSION_EXPIRED,
        Reason.SESSION_TOKEN_INVALID,
    )


async def test_without_the_token_there_is_no_such_key(ready: World, ada: Ada) -> None:
    made = await ada.issue()
    work = ready.auth.authorize_key(ready.call(), key_of(made), ready.day(), *REGION)
    assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND


async def test_the_token_of_another_key_is_refused(ready: World, ada: Ada) -> None:
    first, second = await ada.issue(), await ada.issue()
    scope = (ready.day(), *REGION)
    access = Access(ready.auth, ready.clock)
    await access.signing_grant(ready.call(), key_of(first), *scope, digest_of(first))
    for key, digest in (
        (key_of(first), digest_of(second)),
        (key_of(first), b"\0" * 32),
        (key_of(first), b"1"),
        (ada.made.credential.access_key_id, digest_of(first)),
    ):
        work = access.signing_grant(ready.call(), key, *scope, digest)
        assert await refused(work) is Reason.SESSION_TOKEN_INVALID
        assert access.signing_grant_cached(key, *scope, digest) is None
    work = access.signing_grant(ready.call(), key_of(first), *scope)
    assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND


async def test_nothing_secret_is_stored(ready: World, ada: Ada) -> None:
    made = await ada.issue()
    rows = b"".join(value for _, value in await ready.rows())
    assert made.secret_access_key.encode() not in rows
    assert made.session_token.encode() not in rows


@pytest.mark.parametrize("token", ["", "x" * 52])
async def test_a_log_in_needs_the_token(ready: World, ada: Ada, token: str) -> None:
    made = await ada.issue()
    assert await refused(logged_in(ready, made, token)) is Reason.SIGNATURE_MISMATCH
    assert (await ready.auth.get_caller(await logged_in(ready, made))).user.user_id == "ada"


async def test_a_session_key_creates_and_lists_no_keys(ready: World, ada: Ada) -> None:
    call = await logged_in(ready, await ada.issue())
    for work in (
        ready.auth.create_session_key(call, CreateSessionKeyRequest()),
        ready.auth.list_session_keys(call),
        ready.auth.create_credential(call),
        ready.auth.list_credentials(call),
        ready.auth.create_user(call, "eve", ["Admin"]),
    ):
        assert await refused(work) is Reason.ACCESS_DENIED
    own = ada.made.credential.access_key_id
    assert await refused(ready.auth.delete_credential(call, own)) is Reason.CREDENTIAL_NOT_FOUND


async def test_a_session_key_renews_and_ends_itself_only(ready: World, ada: Ada) -> None:
    first, second = await ada.issue(), await ada.issue()
    call = await logged_in(ready, first)
    for work in (
        ready.auth.renew_session_key(call, key_of(second)),
        ready.auth.end_session_key(call, key_of(second)),
    ):
        assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND
    renewed = await ready.auth.renew_session_key(call, key_of(first), duration_s=2 * HOUR)
    assert renewed.expire_time.seconds - renewed.create_time.seconds == 2 * HOUR
    await ready.auth.end_session_key(call, key_of(first))
    assert await refused(ready.auth.get_caller(call)) is Reason.CALLER_TOKEN_INVALID
    assert await refused(grant_of(ready, first)) is Reason.SESSION_TOKEN_INVALID
    await grant_of(ready, second)


async def test_a_session_key_that_expires_is_refused_at_once(ready: World, ada: Ada) -> None:
    made = await ada.issue(duration_s=900)
    call = await logged_in(ready, made)
    access = Access(ready.auth, ready.clock)
    scope = (key_of(made), ready.day(), *REGION, digest_of(made))
    ready.clock.advance(898)
    granted = await access.signing_grant(ready.call(), *scope)
    assert granted.grant.ttl_ms == 2_000
    ready.clock.advance(2)
    assert await refused(access.signing_grant(ready.call(), *scope)) is Reason.SESSION_EXPIRED
    assert await refused(ready.auth.get_caller(call)) is Reason.CALLER_TOKEN_INVALID
    work = ready.auth.authorize_token(ready.call(), granted.grant.caller_token)
    assert await refused(work) is Reason.CALLER_TOKEN_INVALID
    renewal = ready.auth.renew_session_key(ada.call, key_of(made))
    assert await refused(renewal) is Reason.CREDENTIAL_NOT_FOUND


async def test_renewals_end_after_36_hours_and_shorten_nothing(ready: World, ada: Ada) -> None:
    made = await ada.issue(duration_s=12 * HOUR)
    start = made.session_key.create_time.seconds
    for hours, expected in ((0, 12), (11, 23), (11, 34), (11, 36), (2, 36)):
        ready.clock.advance(hours * HOUR)
        call = await logged_in(ready, made)
        renewed = await ready.auth.renew_session_key(call, key_of(made), duration_s=12 * HOUR)
        assert renewed.expire_time.seconds == start + expected * HOUR
        renewed = await ready.auth.renew_session_key(call, key_of(made), duration_s=900)
        assert renewed.expire_time.seconds == start + expected * HOUR


@pytest.mark.parametrize("ends", ["user", "key", "session"])
async def test_it_ends_elsewhere_within_ten_seconds(ready: World, ada: Ada, ends: str) -> None:
    made = await ada.issue()
    elsewhere = ready.replica()
    access = Access(elsewhere, ready.clock)
    scope = (key_of(made), ready.day(), *REGION, digest_of(made))
    token = (await access.signing_grant(ready.call(), *scope)).grant.caller_token
    call = ready.call(token)
    if ends == "user":
        await ready.auth.delete_user(ready.call(ready.admin), "ada")
    elif ends == "key":
        own = ada.made.credential.access_key_id
        await ready.auth.delete_credential(ready.call(ready.admin), own)
    else:
        await ready.auth.end_session_key(ready.call(ready.admin), key_of(made))
    assert await refused(elsewhere.get_caller(call)) is Reason.CALLER_TOKEN_INVALID
    ready.clock.advance(CACHE_TTL_S + GRANT_TTL_MS / 1000 + 0.1)
    work = access.signing_grant(ready.call(), *scope)
    assert await refused(work) is Reason.SESSION_TOKEN_INVALID
    assert await refused(access.grant(call)) is Reason.CALLER_TOKEN_INVALID


async def test_a_renewed_key_has_not_expired_on_another_replica(ready: World, ada: Ada) -> None:
    made = await ada.issue(duration_s=900)
    elsewhere = ready.replica()
    ready.clock.advance(899)
    token = (await grant_of(ready, made, elsewhere)).grant.caller_token  # it keeps the record
    await ready.auth.renew_session_key(ada.call, key_of(made), duration_s=900)
    ready.clock.advance(2)
    assert (await grant_of(ready, made, elsewhere)).grant.ttl_ms == GRANT_TTL_MS
    ready.clock.advance(0.1)
    assert (await elsewhere.authorize_token(ready.call(), token)).ttl_ms == GRANT_TTL_MS


class SlowAuth(AuthClient):
    """Auth whose first answer stays on its way until it may arrive."""

    def __init__(self, transport: InProcessTransport) -> None:
        super().__init__(transport)
        self.answered, self.may_arrive = asyncio.Event(), asyncio.Event()
        self.refuses_first: TarnError | None = None

    async def authorize_key(self, *args: Any) -> SigningGrant:
        is_first = not self.answered.is_set()
        answer = await super().authorize_key(*args)
        self.answered.set()
        if is_first:
            await self.may_arrive.wait()
            if self.refuses_first is not None:
                raise self.refuses_first
        return answer


async def test_a_slow_refusal_refuses_nobody_who_came_after_its_time(
    ready: World, ada: Ada
) -> None:
    """As an answer, a refusal is as old as the question; a key may be renewed meanwhile."""
    made = await ada.issue(duration_s=900)
    ready.replica()
    auth = SlowAuth(ready.transports[-1])
    access = Access(auth, ready.clock)
    scope = (key_of(made), ready.day(), *REGION, digest_of(made))
    auth.refuses_first = TarnError(Kind.UNAUTHENTICATED, Reason.SESSION_EXPIRED, "expired")
    early = asyncio.ensure_future(access.signing_grant(ready.call(), *scope))
    await auth.answered.wait()
    ready.clock.advance(1.1)
    late = asyncio.ensure_future(access.signing_grant(ready.call(), *scope))
    await asyncio.sleep(0)
    auth.may_arrive.set()
    assert await refused(early) is Reason.SESSION_EXPIRED
    assert (await late).grant.user_id == "ada"
    assert (await access.signing_grant(ready.call(), *scope)).grant.user_id == "ada"


async def test_a_slow_answer_admits_nobody_who_came_after_its_time(ready: World, ada: Ada) -> None:
    """Requests share a question to auth. The answer is as old as the question, also for those who came later."""
    made = await ada.issue()
    ready.replica()
    auth = SlowAuth(ready.transports[-1])
    access = Access(auth, ready.clock)
    scope = (key_of(made), ready.day(), *REGION, digest_of(made))
    async with asyncio.TaskGroup() as group:
        early = group.create_task(access.signing_grant(ready.call(), *scope))
        await auth.answered.wait()
        await ready.auth.end_session_key(ada.call, key_of(made))
        ready.clock.advance(CACHE_TTL_S + GRANT_TTL_MS / 1000 + 0.1)
        late = group.create_task(refused(access.signing_grant(ready.call(), *scope)))
        await asyncio.sleep(0)
        auth.may_arrive.set()
    assert early.result().grant.user_id == "ada"
    assert late.result() is Reason.SESSION_TOKEN_INVALID


async def test_a_later_user_of_the_name_has_no_part_in_it(ready: World, ada: Ada) -> None:
    made = await ada.issue()
    key = AuthKeys.session(key_of(made))
    row = dict(await ready.rows())[key]
    await ready.auth.delete_user(ready.call(ready.admin), "ada")
    assert not [each for each, _ in await ready.rows() if each.startswith(b"session")]
    await ready.user("ada", "Admin")
    await ready.kv.set_if(AuthKeys("test").partition, key, row, None)  # as if a crash had left it
    assert await refused(grant_of(ready, made)) is Reason.SESSION_TOKEN_INVALID


async def test_users_list_and_end_their_own(ready: World, ada: Ada) -> None:
    made = [await ada.issue() for _ in range(3)]
    found: list[str] = []
    token = ""
    while True:
        page = await ready.auth.list_session_keys(ada.call, page_size=2, page_token=token)
        found += [each.access_key_id for each in page.session_keys]
        if not (token := page.next_page_token):
            break
    assert found == sorted(map(key_of, made))
    bob = await ready.user("bob", "Developer")
    other = ready.call(await ready.log_in(bob))
    work = ready.auth.list_session_keys(other, user_id="ada")
    assert await refused(work) is Reason.ACCESS_DENIED
    for name in (key_of(made[0]), "TSESNOBODYNOBODYNOBO"):
        assert await refused(ready.auth.end_session_key(other, name)) is Reason.CREDENTIAL_NOT_FOUND
    listed = await ready.auth.list_session_keys(ready.call(ready.admin), user_id="ada")
    assert len(listed.session_keys) == 3
    await ready.auth.end_session_key(ada.call, key_of(made[0]))
    assert len((await ready.auth.list_session_keys(ada.call)).session_keys) == 2


async def test_their_number_is_bounded_and_expired_ones_are_removed(ready: World, ada: Ada) -> None:
    for _ in range(SESSIONS_PER_USER_MAX):
        await ada.issue(duration_s=900)
    assert await refused(ada.issue()) is Reason.OVERLOADED
    ready.clock.advance(901)
    made = await ada.issue()
    assert len((await ready.auth.list_session_keys(ada.call)).session_keys) == 1
    ready.clock.advance(3600 - 900)
    await ready.auth.renew_session_key(ada.call, key_of(made), duration_s=12 * HOUR)
    ready.clock.advance(900)
    ada.call = ready.call(await ready.log_in(ada.made))
    await ada.issue()
    rows = [key for key, _ in await ready.rows() if key.startswith(b"session")]
    assert len(rows) == 4  # two keys, each with its row in the index
    await grant_of(ready, made)


async def test_a_rotation_seals_them_again(ready: World, ada: Ada) -> None:
    made = await ada.issue()
    new = b"n" * 32
    box = SecretBox((new, ready.secret), ready.random.randbytes)
    registers = Registers(ready.kv, AuthKeys("test").partition)
    assert (await count_seals(registers, box)).waiting == 3
    assert (await reseal(registers, box, lambda *_: None)).waiting == 0
    found = await grant_of(ready, made, ready.replica(secret=new))
    assert found.signing_key == signing_key(made.secret_access_key, ready.day(), *REGION)


@pytest.mark.parametrize(
    "fields",
    [
        {"duration_s": 899},
        {"duration_s": 43_201},
        {"duration_s": -1},
        {"description": "a\nb"},
        {"permissions": [Permission(actions=["WriteUsers"], resources=["repository/*"])]},
        {"permissions": [Permission(actions=["*"], resources=["repository/*"])]},
        {"permissions": [Permission(actions=["ReadRepo"], resources=["*"])]},
        {"permissions": [Permission(actions=["ReadRepo"], resources=["user/ada"])]},
        {"permissions": [Permission(actions=["ReadRepo"], resources=["repository/*/x"])]},
        {"permissions": [Permission(actions=["ReadRepo"])]},
        {"permissions": [Permission(resources=["repository/*"])]},
        {"permissions": [Permission(actions=["ReadRepo"], resources=["repository/" + "x" * 2000])]},
        {
            "permissions": [
                Permission(actions=["ReadRepo"], resources=["repository/" + "x" * 1500] * 11)
            ]
        },
        {"bindings": [Binding(bucket_id="S", repository_id="lake", ref="main")]},
        {"bindings": [Binding(bucket_id="sales", repository_id="a/b", ref="main")]},
        {"bindings": [Binding(bucket_id="sales", repository_id="lake", ref="a/b")]},
        {"bindings": [Binding(bucket_id="sales", repository_id="lake", ref="main")] * 2},
    ],
)
async def test_a_bad_request_creates_nothing(
    ready: World, ada: Ada, fields: dict[str, Any]
) -> None:
    before = await ready.rows()
    assert await refused(ada.issue(**fields)) is Reason.INVALID_ARGUMENT
    assert await ready.rows() == before


async def test_below_the_feature_level_none_is_issued(ready: World, ada: Ada) -> None:
    application = AuthApplication(
        ready.kv, "test", ready.secret, ready.clock, ready.ids, features=FeatureGate.at(1)
    )
    transport = InProcessTransport(application.endpoints_in_process, ready.clock)
    ready.transports.append(transport)
    ready.auth = type(ready.auth)(transport)
    before = await ready.rows()
    assert await refused(ada.issue()) is Reason.FEATURE_LEVEL
    assert await ready.rows() == before
