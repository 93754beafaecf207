"""Sessions of browsers: how long they live, what ends them, and how many there are."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import pytest

import tarn_auth.web_sessions
from tarn.client.auth import AuthClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import FeatureGate
from tarn.gate.access import Access
from tarn.kv.auth_records import decode_web_session
from tarn.kv.keys import AuthKeys
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.wire.call import Call
from tarn_auth.application import AuthApplication
from tarn_auth.web_sessions import (
    IDLE_US,
    LIFE_US,
    WEB_SESSIONS_PER_USER_MAX,
)
from tarn_proto.auth.v1.session_key_service_pb2 import CreateSessionKeyRequest

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

HOUR = 3600
MINUTE = 60


async def reason_of(work: Awaitable[object]) -> Reason:
    with pytest.raises(TarnError) as caught:
        await work
    return caught.value.reason


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def begin(world: World, token: str = "") -> bytes:
    return digest_of(await world.auth.begin_web_session(world.call(), token or world.admin))


async def lives(world: World, digest: bytes) -> bool:
    try:
        await world.auth.authorize_web_session(world.call(), digest)
    except TarnError as error:
        if error.reason is not Reason.CALLER_TOKEN_INVALID:
            raise
        return False
    return True


async def session_rows(world: World) -> list[bytes]:
    return [key for key, _ in await world.rows() if key.startswith(b"web-session")]


async def test_a_session_is_256_random_bits_of_which_the_store_has_the_digest(
    ready: World,
) -> None:
    secret = await ready.auth.begin_web_session(ready.call(), ready.admin)
    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    assert await ready.auth.begin_web_session(ready.call(), ready.admin) != secret
    stored = b"".join(key + value for key, value in await ready.rows())
    assert secret.encode() not in stored
    assert base64.urlsafe_b64decode(secret + "=") not in stored
    assert digest_of(secret).hex().encode() in stored


async def test_a_session_acts_as_its_user(ready: World) -> None:
    made = await ready.user("ada", "Analyst")
    digest = await begin(ready, await ready.log_in(made))
    grant = await ready.auth.authorize_web_session(ready.call(), digest)
    assert (grant.user_id, grant.roles) == ("ada", ("Analyst",))
    caller = await ready.auth.get_caller(ready.call(grant.caller_token))
    assert caller.user.user_id == "ada"
    await ready.auth.update_user_roles(ready.call(ready.admin), "ada", ["Developer"])
    grant = await ready.auth.authorize_web_session(ready.call(), digest)
    assert grant.roles == ("Developer",)


@pytest.mark.parametrize("digest", [b"", b"x", bytes(32), bytes(33)])
async def test_no_other_digest_is_a_session(ready: World, digest: bytes) -> None:
    await begin(ready)
    assert not await lives(ready, digest)


async def test_a_session_ends_an_hour_after_its_last_use(ready: World) -> None:
    digest = await begin(ready)
    for _ in range(3):
        ready.clock.advance(IDLE_US / 1e6 - MINUTE)
        assert await lives(ready, digest)
    ready.clock.advance(IDLE_US / 1e6)
    assert not await lives(ready, digest)


async def test_a_session_ends_after_twelve_hours_however_much_it_is_used(ready: World) -> None:
    digest = await begin(ready)
    for _ in range(24):
        assert await lives(ready, digest)
        ready.clock.advance(HOUR / 2)
    assert not await lives(ready, digest)


async def test_the_last_use_is_noted_once_a_minute(ready: World) -> None:
    digest = await begin(ready)
    key = AuthKeys.web_session(digest)

    async def used_at() -> int:
        return decode_web_session(dict(await ready.rows())[key]).use_time_us

    began = await used_at()
    ready.clock.advance(MINUTE - 1)
    ready.kv.requests.clear()
    assert await lives(ready, digest)
    assert "set_if" not in ready.kv.requests
    assert await used_at() == began
    ready.clock.advance(1)
    assert await lives(ready, digest)
    assert await used_at() == began + MINUTE * 1_000_000


async def test_a_use_that_cannot_be_noted_is_a_use(ready: World) -> None:
    digest = await begin(ready)
    ready.clock.advance(MINUTE)

    async def refuse(name: str, _key: object) -> None:
        if name == "set_if":
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "injected")

    ready.kv.before = refuse
    assert await lives(ready, digest)


async def test_a_session_that_ends_while_its_use_is_noted_stays_ended(ready: World) -> None:
    digest = await begin(ready)
    ready.clock.advance(MINUTE)
    auth = ready.replica()

    async def end_first(name: str, _key: object) -> None:
        if name == "set_if":
            ready.kv.before = None
            await auth.end_web_session(ready.call(), digest)

    ready.kv.before = end_first
    await lives(ready, digest)
    assert not await lives(ready, digest)
    assert await session_rows(ready) == []


async def test_signing_out_ends_one_session_at_once_on_every_replica(ready: World) -> None:
    mine, other = await begin(ready), await begin(ready)
    replica = ready.replica()
    await replica.authorize_web_session(ready.call(), mine)
    for _ in range(2):  # the answer may be lost
        await ready.auth.end_web_session(ready.call(), mine)
    assert await reason_of(replica.authorize_web_session(ready.call(), mine)) is (
        Reason.CALLER_TOKEN_INVALID
    )
    assert await lives(ready, other)
    assert len(await session_rows(ready)) == 2


async def test_a_session_ends_with_its_key_pair_at_once(ready: World) -> None:
    made = await ready.user("ada", "Developer")
    more = await ready.auth.create_credential(ready.call(ready.admin), user_id="ada")
    first = await begin(ready, await ready.log_in(made))
    second = await begin(ready, await ready.log_in(more))
    replica = ready.replica()
    await replica.authorize_web_session(ready.call(), first)
    key = made.credential.access_key_id
    await ready.auth.delete_credential(ready.call(ready.admin), key)
    assert await reason_of(replica.authorize_web_session(ready.call(), first)) is (
        Reason.CALLER_TOKEN_INVALID
    )
    assert await lives(ready, second)


async def test_a_session_ends_with_its_user_and_no_later_one_inherits_it(ready: World) -> None:
    made = await ready.user("ada", "Developer")
    digest = await begin(ready, await ready.log_in(made))
    await ready.auth.delete_user(ready.call(ready.admin), "ada")
    assert not await lives(ready, digest)
    await ready.user("ada", "Developer")
    assert not await lives(ready, digest)
    # Not even if the row of the key pair came back.
    rows = dict(await ready.rows())
    session = decode_web_session(rows[AuthKeys.web_session(digest)])
    found = [key for key in rows if key.startswith(b"credentials/")]
    other = rows[next(key for key in found if ready.admin_key.encode() not in key)]
    partition = AuthKeys("test").partition
    await ready.kv.set_if(partition, AuthKeys.credential(session.access_key_id), other, None)
    assert not await lives(ready, digest)


async def test_a_token_that_is_none_and_a_session_key_begin_no_session(ready: World) -> None:
    for token in ("", "x", ready.admin + "x"):
        work = ready.auth.begin_web_session(ready.call(), token)
        assert await reason_of(work) is Reason.CALLER_TOKEN_INVALID
    made = await ready.auth.create_session_key(ready.call(ready.admin), CreateSessionKeyRequest())
    signed_in = await ready.auth.log_in(
        ready.call(),
        made.session_key.access_key_id,
        made.secret_access_key,
        now_us=ready.clock.now_us(),
        nonce=ready.ids.nonce(),
        session_token=made.session_token,
    )
    work = ready.auth.begin_web_session(ready.call(), signed_in.grant.caller_token)
    assert await reason_of(work) is Reason.ACCESS_DENIED
    assert await session_rows(ready) == []


async def test_one_session_too_many_ends_the_one_that_was_not_used_for_the_longest_time(
    ready: World,
) -> None:
    eve = await ready.user("eve", "Developer")
    hers = await begin(ready, await ready.log_in(eve))
    digests = []
    for _ in range(WEB_SESSIONS_PER_USER_MAX):
        digests.append(await begin(ready))
        ready.clock.advance(MINUTE)
    assert await lives(ready, digests[0])  # and now the second is the oldest
    await begin(ready)
    assert [await lives(ready, each) for each in digests[:3]] == [True, False, True]
    assert await lives(ready, hers)
    found = await ready.auth.list_web_sessions(ready.call(ready.admin))
    assert len(found) == WEB_SESSIONS_PER_USER_MAX


async def test_there_are_so_many_sessions_in_sum_and_idle_ones_make_room(
    ready: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tarn_auth.web_sessions, "WEB_SESSIONS_MAX", 3)
    made = await ready.user("eve", "Developer")
    eve = await ready.log_in(made)
    for _ in range(3):
        await begin(ready)
    work = ready.auth.begin_web_session(ready.call(), eve)
    assert await reason_of(work) is Reason.OVERLOADED
    ready.clock.advance(IDLE_US / 1e6)
    eve = await ready.log_in(made)
    assert await lives(ready, await begin(ready, eve))
    assert len(await session_rows(ready)) == 2


async def test_sessions_that_are_over_are_removed_when_others_begin(ready: World) -> None:
    await begin(ready)
    ready.clock.advance(LIFE_US / 1e6)
    assert len(await session_rows(ready)) == 2
    made = await ready.auth.log_in(
        ready.call(),
        ready.admin_key,
        ready.admin_secret,
        now_us=ready.clock.now_us(),
        nonce=ready.ids.nonce(),
    )
    digest = await begin(ready, made.grant.caller_token)
    assert [key for key in await session_rows(ready) if digest.hex().encode() not in key] == []


async def test_users_list_and_end_their_own_sessions_and_administrators_all(ready: World) -> None:
    ada = await ready.log_in(await ready.user("ada", "Developer"))
    eve = await ready.log_in(await ready.user("eve", "Developer"))
    first = await begin(ready, ada)
    ready.clock.advance(MINUTE)
    second, hers = await begin(ready, ada), await begin(ready, eve)
    found = await ready.auth.list_web_sessions(ready.call(ada))
    assert [each.web_session_id for each in found] == [second.hex()[:16], first.hex()[:16]]
    assert found[0].create_time.seconds - found[1].create_time.seconds == MINUTE
    for work in (
        ready.auth.list_web_sessions(ready.call(eve), user_id="ada"),
        ready.auth.end_web_sessions(ready.call(eve), user_id="ada"),
        ready.auth.list_web_sessions(ready.call(eve), user_id="nobody"),
    ):
        assert await reason_of(work) is Reason.ACCESS_DENIED
    one = found[1].web_session_id
    call = ready.call(eve)
    assert await ready.auth.end_web_sessions(call, web_session_id=one) == 0  # not hers
    call = ready.call(ada)
    assert await ready.auth.end_web_sessions(call, web_session_id=one) == 1
    assert [await lives(ready, each) for each in (first, second, hers)] == [False, True, True]
    call = ready.call(ready.admin)
    assert await ready.auth.end_web_sessions(call, user_id="ada") == 1
    assert [await lives(ready, each) for each in (second, hers)] == [False, True]


async def test_the_grant_of_a_session_is_a_caller_token_as_any_other(ready: World) -> None:
    digest = await begin(ready)
    grant = await ready.auth.authorize_web_session(ready.call(), digest)
    access = Access(ready.auth, ready.clock)
    found = await access.grant(Call("r1", grant.caller_token, ready.clock.monotonic() + 5))
    assert found.user_id == "root"


async def test_no_session_begins_below_the_feature_level(ready: World) -> None:
    old = AuthApplication(
        ready.kv,
        "test",
        bytes(range(32)),
        ready.clock,
        ready.ids,
        random_bytes=ready.random.randbytes,
        features=FeatureGate.at(1),
    )
    transport = InProcessTransport(old.endpoints_in_process, ready.clock)
    ready.transports.append(transport)
    work = AuthClient(transport).begin_web_session(ready.call(), ready.admin)
    assert await reason_of(work) is Reason.FEATURE_LEVEL
    assert await session_rows(ready) == []


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("at", [0, 1])
async def test_a_crash_within_a_beginning_leaves_no_session_that_no_list_shows(
    ready: World, at: int, lands: bool
) -> None:
    ready.kv.fail(at, lands=lands)
    with pytest.raises(Exception):  # noqa: B017, PT011 - the crash, as the transport shows it
        await begin(ready)
    ready.kv.fail(None)
    listed = len(await ready.auth.list_web_sessions(ready.call(ready.admin)))
    living = [key for key in await session_rows(ready) if key.startswith(b"web-sessions/")]
    assert listed == len(living) == int(lands and at == 1)
