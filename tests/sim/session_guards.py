"""Guards of session keys, and the replacements that disable them (see `lake_guards`)."""

from __future__ import annotations

import hmac
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.faults.guards import Guard, Weakening
from tests.support.faults.modes import Mode

import tarn_auth.authorizer
from tarn.client.auth import SigningGrant
from tarn.core.access.policy import Grant
from tarn.gate.access import Access
from tarn.gate.answers import Answers
from tarn.kv.auth_records import Credential, SessionKey
from tarn.kv.keys import AuthKeys
from tarn.rpc.wire.call import Call
from tarn_auth.authorizer import Authorizer, Holder
from tarn_auth.session_keys import SessionKeys
from tarn_gateway.backend import Backend
from tarn_gateway.bucket_cache import Place

__all__ = ["RARE_SESSION_GUARDS", "SESSION_GUARDS"]


async def _grant_of_any_token(
    self: Access,
    call: Call,
    access_key_id: str,
    date: str,
    region: str,
    service: str,
    token_digest: bytes = b"",
) -> SigningGrant:
    """Takes the grant of one token for that of all."""
    key = (access_key_id, date, region, service)

    async def ask() -> tuple[SigningGrant, int]:
        answer = await self._auth.authorize_key(call, *key, token_digest)
        return answer, answer.grant.ttl_ms

    return await self._by_key.load(call, (*key, b""), ask)


def _cached_of_any_token(
    self: Access,
    access_key_id: str,
    date: str,
    region: str,
    service: str,
    token_digest: bytes = b"",
) -> SigningGrant | None:
    return self._by_key.get((access_key_id, date, region, service, b""))


def _any_token(key: SessionKey, digest: bytes) -> bool:
    """Compares nothing."""
    return hmac.compare_digest(key.token_digest, key.token_digest) or bool(digest)


async def _end_of_the_index(self: SessionKeys, key: SessionKey) -> None:
    """Ends a key in the listings, and in the cache of the process, only."""
    await self._registers.drop([AuthKeys.session_end(key.user_uid, key.access_key_id)])


async def _find_without_issuer(
    self: Authorizer, access_key_id: str, token: str | None = None
) -> Holder | None:
    """Does not look for the key pair that has issued a session key."""
    del token
    session = await self._session_keys.find(access_key_id)
    user = None if session is None else await self._users.find(session.user_id)
    if session is None or user is None or user.user_uid != session.user_uid:
        return None
    issuer = Credential(session.issuer_access_key_id, user.user_id, user.user_uid, "", 0, b"", "")
    return Holder(user, issuer, session)


_grant = Authorizer._grant


def _grant_that_outlives(self: Authorizer, holder: Holder, token: str) -> Grant:
    """Lets a grant last as long as any other one, although its key expires earlier."""
    return replace(_grant(self, holder, token), ttl_ms=tarn_auth.authorizer.GRANT_TTL_MS)


def _grant_of_first_rights(self: Authorizer, holder: Holder, token: str) -> Grant:
    """Goes on with the rights that the user had at first."""
    known: dict[str, tuple[str, ...]] = self.__dict__.setdefault("_first_roles", {})
    roles = known.setdefault(holder.access_key_id, holder.user.roles)
    return _grant(self, replace(holder, user=replace(holder.user, roles=roles)), token)


def _no_end(self: Authorizer, holder: Holder, reason: object) -> None:
    """Does not look whether a key has expired."""


async def _kept_although_expired(self: Authorizer, access_key_id: str) -> Holder | None:
    """Takes an expired key for expired, although it may have been renewed."""
    holder = self._session_holders.get(access_key_id)
    if holder is None:
        begin = self._clock.monotonic()
        holder = await self.find_session(access_key_id)
        if holder is not None:
            end = begin + tarn_auth.authorizer.CACHE_TTL_S
            self._session_holders.put(access_key_id, holder, end)
    return holder


_ask = Answers._ask


async def _ask_for_all(self: Answers[Any, Any], key: Any, ask: Any) -> tuple[Any, float]:
    """Shares an answer with requests that came after its time."""
    answer, _ = await _ask(self, key, ask)
    return answer, math.inf


_resolve = Backend.resolve


async def _resolve_by_register(
    self: Backend, http: Any, granted: SigningGrant, bucket: str, began: float, **how: Any
) -> Place:
    """Takes a bucket for what the register says."""
    unbound = replace(granted, grant=replace(granted.grant, bindings=()))
    return await _resolve(self, http, unbound, bucket, began, **how)


def _guard(name: str, without: str, *weakenings: Weakening) -> Guard:
    return Guard(name, "sessions", "I13", without, weakenings, runs=150, mode=Mode.SESSIONS)


SESSION_GUARDS: Sequence[Guard] = (
    _guard(
        "session-token-in-the-key",
        "the cache of grants does not tell tokens apart",
        Weakening(Access, "signing_grant", _grant_of_any_token),
        Weakening(Access, "signing_grant_cached", _cached_of_any_token),
    ),
    _guard(
        "session-token-is-compared",
        "auth does not compare the token",
        Weakening(tarn_auth.authorizer, "is_token_of", _any_token),
    ),
    _guard(
        "session-end-removes-the-key",
        "an end leaves the row of the key, and removes it from listings and one cache only",
        Weakening(SessionKeys, "end", _end_of_the_index),
    ),
    _guard(
        "session-ends-with-its-issuer",
        "a session key outlives the key pair that has issued it",
        Weakening(Authorizer, "find_session", _find_without_issuer),
    ),
    _guard(
        "session-grant-ends-with-its-key",
        "a cached grant outlives its session key",
        Weakening(Authorizer, "_grant", _grant_that_outlives),
    ),
    _guard(
        "session-life-is-checked",
        "auth does not look whether a key that it has kept has expired",
        Weakening(Authorizer, "_require_life", _no_end),
    ),
    _guard(
        "session-rights-are-current",
        "a session key keeps the rights that its user had when it was first seen",
        Weakening(Authorizer, "_grant", _grant_of_first_rights),
    ),
    _guard(
        "binding-comes-first",
        "a view precedes the binding of a session key",
        Weakening(Backend, "resolve", _resolve_by_register),
    ),
)

RARE_SESSION_GUARDS: Sequence[Guard] = (
    _guard(
        "session-renewal-is-seen",
        "auth does not look whether a key that it has kept was renewed",
        Weakening(Authorizer, "_kept_session", _kept_although_expired),
    ),
    _guard(
        "grant-counts-from-its-question",
        "an answer of auth serves requests that came after its time",
        Weakening(Answers, "_ask", _ask_for_all),
    ),
)
"""Guards for which no seed is recorded."""
