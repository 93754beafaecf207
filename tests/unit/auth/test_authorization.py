"""Signing keys and tokens: for whom auth issues them, and how long they outlive their user."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from collections.abc import Awaitable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from botocore.auth import SigV4Auth
from botocore.credentials import Credentials

from tarn.core.access.actions import Action
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.access import Access
from tarn.kv.auth_records import decode_user, encode_user
from tarn.kv.keys import AuthKeys
from tarn_auth.authorizer import CACHE_TTL_S, GRANT_TTL_MS, TOKEN_LIFE_US, signing_key

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

REGION = ("us-east-1", "s3")


async def refused(work: Awaitable[object]) -> Reason:
    with pytest.raises(TarnError) as caught:
        await work
    return caught.value.reason


def test_the_signing_key_is_the_one_that_boto_signs_with() -> None:
    secret, date = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20261101"
    boto = SigV4Auth(Credentials("AKIDEXAMPLE", secret), "s3", "us-east-1")
    request = SimpleNamespace(context={"timestamp": date + "T000000Z"})
    ours = hmac.new(signing_key(secret, date, *REGION), b"text", hashlib.sha256).hexdigest()
    assert boto.signature("text", request) == ours


async def test_a_key_gets_its_signing_key_and_its_users_grant(ready: World) -> None:
    bob = await ready.user("bob", "Developer")
    key = bob.credential.access_key_id
    answer = await ready.auth.authorize_key(ready.call(), key, ready.day(), *REGION)
    assert answer.signing_key == signing_key(bob.secret_access_key, ready.day(), *REGION)
    assert (answer.grant.user_id, answer.grant.ttl_ms) == ("bob", GRANT_TTL_MS)
    assert answer.grant.allows(Action.WRITE_REPO, "repository/lake/branch/main")
    assert not answer.grant.allows(Action.CREATE_REPO, "repository/lake")


async def test_a_signature_of_version_2_is_compared_inside_auth(ready: World) -> None:
    bob = await ready.user("bob", "Developer")
    key, text = bob.credential.access_key_id, b"GET\n\n\nnow\n/lake/main/a"
    made = hmac.digest(bob.secret_access_key.encode(), text, "sha1")
    grant = await ready.auth.authorize_signature_v2(ready.call(), key, text, made)
    assert (grant.user_id, grant.ttl_ms) == ("bob", GRANT_TTL_MS)
    assert grant.allows(Action.WRITE_REPO, "repository/lake/branch/main")
    again = await ready.auth.authorize_token(ready.call(), grant.caller_token)
    assert again.user_id == "bob"
    for wrong in (b"", made[:-1], made[:-1] + bytes([made[-1] ^ 1]), bytes(20), made + b"x"):
        with pytest.raises(TarnError) as caught:
            await ready.auth.authorize_signature_v2(ready.call(), key, text, wrong)
        assert caught.value.reason is Reason.SIGNATURE_MISMATCH
        assert made.hex() not in caught.value.message
        assert bob.secret_access_key not in caught.value.message
    other = ready.auth.authorize_signature_v2(ready.call(), key, text + b"x", made)
    assert await refused(other) is Reason.SIGNATURE_MISMATCH
    long = ready.auth.authorize_signature_v2(ready.call(), key, b"x" * 65_537, made)
    assert await refused(long) is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("key", ["", "TARNUNKNOWNACCESSKEY", "x" * 5000])
async def test_an_unknown_key_has_no_signature(ready: World, key: str) -> None:
    made = hmac.digest(b"", b"GET", "sha1")
    work = ready.auth.authorize_signature_v2(ready.call(), key, b"GET", made)
    assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND
    work = Access(ready.auth, ready.clock).signature_grant(ready.call(), key, b"GET", made)
    assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND


async def test_a_deleted_key_signs_nothing(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    key = bob.credential.access_key_id
    made = hmac.digest(bob.secret_access_key.encode(), b"GET", "sha1")
    await ready.auth.authorize_signature_v2(ready.call(), key, b"GET", made)
    await ready.auth.delete_user(ready.call(ready.admin), "bob")
    work = ready.auth.authorize_signature_v2(ready.call(), key, b"GET", made)
    assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND


async def test_the_grants_token_speaks_for_the_user_to_other_services(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    key = bob.credential.access_key_id
    token = (await ready.auth.authorize_key(ready.call(), key, ready.day(), *REGION)).grant
    grant = await ready.replica().authorize_token(ready.call(), token.caller_token)
    assert (grant.user_id, grant.policy.statements) == ("bob", token.policy.statements)
    assert grant.caller_token == token.caller_token


async def test_replicas_make_the_same_token_for_a_while(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    other = ready.replica()
    tokens = set()
    for auth in (ready.auth, other, ready.auth):
        tokens.add(await ready.log_in(bob, auth))
        ready.clock.advance(10)
    assert len(tokens) <= 2


async def test_a_token_ends(ready: World) -> None:
    ready.clock.advance(TOKEN_LIFE_US / 1e6 - 1)
    assert (await ready.auth.get_caller(ready.call(ready.admin))).user.user_id == "root"
    ready.clock.advance(302)
    work = ready.auth.get_caller(ready.call(ready.admin))
    assert await refused(work) is Reason.CALLER_TOKEN_INVALID


@pytest.mark.parametrize(
    ("change", "allowed"),
    [("-1d", True), ("+1d", True), ("-2d", False), ("+2d", False)],
)
async def test_the_day_is_at_most_one_off(ready: World, change: str, allowed: bool) -> None:
    now = dt.datetime.fromtimestamp(ready.clock.now_us() / 1e6, dt.UTC)
    day = (now + dt.timedelta(days=int(change[:-1]))).strftime("%Y%m%d")
    made = await ready.user("bob", "Analyst")
    work = ready.auth.authorize_key(ready.call(), made.credential.access_key_id, day, *REGION)
    if allowed:
        await work
    else:
        assert await refused(work) is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("date", "region", "service"),
    [
        ("yesterday", "us-east-1", "s3"),
        ("2026-11-1", "us-east-1", "s3"),
        ("20261399", "us-east-1", "s3"),
        (None, "", "s3"),
        (None, "us/east", "s3"),
        (None, "us-east-1", "iam"),
    ],
)
async def test_another_scope_is_refused(
    ready: World, date: str | None, region: str, service: str
) -> None:
    bob = await ready.user("bob", "Analyst")
    key = bob.credential.access_key_id
    work = ready.auth.authorize_key(ready.call(), key, date or ready.day(), region, service)
    assert await refused(work) is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("key", ["", "TARNUNKNOWNACCESSKEY", "a/b\0c", "x" * 5000])
async def test_an_unknown_key_is_unauthenticated(ready: World, key: str) -> None:
    with pytest.raises(TarnError) as caught:
        await ready.auth.authorize_key(ready.call(), key, ready.day(), *REGION)
    assert caught.value.kind is Kind.UNAUTHENTICATED
    assert caught.value.reason is Reason.CREDENTIAL_NOT_FOUND


@pytest.mark.parametrize("ends", ["key", "user"])
async def test_a_key_deleted_by_another_replica_works_for_at_most_ten_seconds(
    ready: World, ends: str
) -> None:
    bob = await ready.user("bob", "Analyst")
    key = bob.credential.access_key_id
    elsewhere = ready.replica()  # caches the grant and does not learn of the deletion
    access = Access(elsewhere, ready.clock)
    scope = (key, ready.day(), *REGION)

    await access.signing_grant(ready.call(), *scope)
    if ends == "key":
        await ready.auth.delete_credential(ready.call(ready.admin), key)
    else:
        await ready.auth.delete_user(ready.call(ready.admin), "bob")
    ready.clock.advance(CACHE_TTL_S - 0.1)
    await access.signing_grant(ready.call(), *scope)
    ready.clock.advance(GRANT_TTL_MS / 1000 + 0.1)
    work = access.signing_grant(ready.call(), *scope)
    assert await refused(work) is Reason.CREDENTIAL_NOT_FOUND


async def test_a_replica_that_deletes_stops_serving_at_once(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    scope = (bob.credential.access_key_id, ready.day(), *REGION)
    grant = (await ready.auth.authorize_key(ready.call(), *scope)).grant
    await ready.auth.delete_user(ready.call(ready.admin), "bob")
    key = ready.auth.authorize_key(ready.call(), *scope)
    assert await refused(key) is Reason.CREDENTIAL_NOT_FOUND
    token = ready.auth.authorize_token(ready.call(), grant.caller_token)
    assert await refused(token) is Reason.CALLER_TOKEN_INVALID


async def test_a_role_that_this_version_does_not_know_allows_nothing(ready: World) -> None:
    bob = await ready.user("bob", "Analyst")
    partition, key = AuthKeys("test").partition, AuthKeys.user("bob")
    (row,) = await ready.kv.get_many(partition, [key])
    newer = replace(decode_user(row.value), roles=("Owner",))
    await ready.kv.set_if(partition, key, encode_user(newer), row.predicate)
    scope = (bob.credential.access_key_id, ready.day(), *REGION)
    grant = (await ready.replica().authorize_key(ready.call(), *scope)).grant
    assert not grant.allows(Action.READ_REPO, "repository/lake")
