"""LogIn accepts a valid proof once, and never says why a proof is refused."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import pytest
from tests.support.clock import ManualClock

from tarn.client.auth import NewCredential, Session
from tarn.core.access.actions import Action
from tarn.core.errors import Kind, Reason, TarnError
from tarn_auth.log_in import Nonces

if TYPE_CHECKING:
    from tests.unit.auth.conftest import World

NONCE = bytes(range(16))


async def log_in(
    world: World,
    made: NewCredential,
    *,
    key: str = "",
    secret: str = "",
    skew_s: int = 0,
    nonce: bytes = NONCE,
) -> Session:
    return await world.auth.log_in(
        world.call(),
        key or made.credential.access_key_id,
        secret or made.secret_access_key,
        now_us=world.clock.now_us() + skew_s * 1_000_000,
        nonce=nonce,
    )


async def refused(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as caught:
        await work
    return caught.value


@pytest.fixture
async def bob(ready: World) -> NewCredential:
    return await ready.user("bob", "Developer")


async def test_a_session_carries_the_users_grant_and_its_tokens_end(
    ready: World, bob: NewCredential
) -> None:
    session = await log_in(ready, bob)
    assert session.grant.user_id == "bob"
    assert session.grant.allows(Action.WRITE_REPO, "repository/lake")
    hour_us = 3_600_000_000
    assert hour_us <= session.expire_time_us - ready.clock.now_us() <= hour_us + 300_000_000


@pytest.mark.parametrize("skew_s", [-900, 900])
async def test_a_clock_may_be_fifteen_minutes_off(
    ready: World, bob: NewCredential, skew_s: int
) -> None:
    await log_in(ready, bob, skew_s=skew_s)


async def test_the_answer_is_the_same_whatever_is_wrong(ready: World, bob: NewCredential) -> None:
    errors = [
        await refused(log_in(ready, bob, secret="x" * 40)),
        await refused(log_in(ready, bob, key="TARNUNKNOWNACCESSKEY")),
        await refused(log_in(ready, bob, key="x" * 5000)),
        await refused(log_in(ready, bob, skew_s=901)),
        await refused(log_in(ready, bob, skew_s=-902)),
        await refused(log_in(ready, bob, nonce=b"short")),
    ]
    assert {(e.kind, e.reason, e.message) for e in errors} == {
        (Kind.UNAUTHENTICATED, Reason.SIGNATURE_MISMATCH, errors[0].message)
    }


async def test_a_proof_works_once(ready: World, bob: NewCredential) -> None:
    await log_in(ready, bob)
    assert (await refused(log_in(ready, bob))).reason is Reason.SIGNATURE_MISMATCH
    await log_in(ready, bob, nonce=bytes(16))


async def test_a_proof_from_ahead_of_time_is_remembered_until_it_is_too_old(
    ready: World, bob: NewCredential
) -> None:
    await log_in(ready, bob, skew_s=900)
    ready.clock.advance(1799)
    assert (await refused(log_in(ready, bob, skew_s=-899))).reason is Reason.SIGNATURE_MISMATCH


async def test_a_false_proof_does_not_use_up_a_nonce(ready: World, bob: NewCredential) -> None:
    await refused(log_in(ready, bob, secret="x" * 40))
    await log_in(ready, bob)


async def test_an_unknown_key_costs_the_same_reads(ready: World, bob: NewCredential) -> None:
    ready.kv.requests.clear()
    await refused(log_in(ready, bob, secret="x" * 40))
    known = list(ready.kv.requests)
    ready.kv.requests.clear()
    await refused(log_in(ready, bob, key="TARNUNKNOWNACCESSKEY"))
    assert ready.kv.requests == known == ["get_many", "get_many"]


def test_nonces_are_bounded_and_never_forgotten_early() -> None:
    clock = ManualClock()
    nonces = Nonces(clock, nonces_max=3, per_key_max=2)
    assert nonces.use("a", "1")
    assert nonces.use("a", "2")
    with pytest.raises(TarnError) as caught:
        nonces.use("a", "3")
    assert caught.value.kind is Kind.EXHAUSTED
    assert nonces.use("b", "1")
    with pytest.raises(TarnError):
        nonces.use("c", "1")
    assert not nonces.use("a", "1")
    clock.advance(1802)
    assert nonces.use("a", "1")
