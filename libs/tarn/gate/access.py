"""Authenticates and authorizes callers for a service, with grants from auth.

Grants are cached for the time that they state, counted from before the request to auth, so a deleted key stops
working within the documented time (see `services/auth/README.md`). Concurrent requests for one grant share one
request to auth; one that came after the time of the answer asks again. Refusals are cached for a second, so that a
client that keeps retrying with a wrong key does not reach auth each time. They have a cache of their own, so that
unauthenticated clients cannot evict the grants of users.
"""

from __future__ import annotations

from dataclasses import replace

from tarn.client.auth import AuthClient, SigningGrant
from tarn.core.access.policy import Grant
from tarn.core.access.service import Service
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.gate.answers import Answers
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.note import note_principal
from tarn.telemetry.meters import Meters
from tarn_proto.auth.v1.session_key_service_pb2 import (
    CreateSessionKeyRequest,
    CreateSessionKeyResponse,
)

__all__ = ["Access"]

_GRANTS_MAX = 8192
# Unauthenticated clients choose these strings and each is cached for a while. Tarn issues none this long.
_ACCESS_KEY_ID_MAX = 128
_TOKEN_MAX = 2048

_Scope = tuple[str, str, str, str, bytes]
"""Access key id, date, region, service, and the digest of the session token: a grant is for one token only."""


class Access:
    """Grants and decisions for one service.

    Args:
        auth: issues the grants.
        clock: its monotonic time decides expiry.
        grants_max: size of each of the two caches (by key, by token); the least recently used grant is
            evicted first.
    """

    def __init__(self, auth: AuthClient, clock: Clock, *, grants_max: int = _GRANTS_MAX) -> None:
        self._auth = auth
        self._clock = clock
        self._by_key: Answers[_Scope, SigningGrant] = Answers(clock, grants_max)
        self._by_token: Answers[str, Grant] = Answers(clock, grants_max)
        self._by_service: Answers[Service, Grant] = Answers(clock, len(Service))

    def register(self, meters: Meters) -> None:
        """Registers the counts of look-ups in the caches of grants."""
        self._by_key.register(meters, "signing-key")
        self._by_token.register(meters, "token")

    async def signing_grant(
        self,
        call: Call,
        access_key_id: str,
        date: str,
        region: str,
        service: str,
        token_digest: bytes = b"",
    ) -> SigningGrant:
        """Returns the SigV4 signing key of an access key for one day (`yyyymmdd`), and its user's grant.

        The caller must check region and service first, because each spelling takes a cache entry. `token_digest` is the
        SHA-256 of the session token of the request, empty if it has none.

        Raises:
            TarnError: UNAUTHENTICATED, CREDENTIAL_NOT_FOUND: the key is unknown; SESSION_TOKEN_INVALID,
                SESSION_EXPIRED. INVALID: the date is more than a day off. Also the transport's errors.
        """
        key = (access_key_id, date, region, service, token_digest)
        if (found := self._by_key.get(key)) is not None:
            return found
        _check_access_key_id(access_key_id)

        async def ask() -> tuple[SigningGrant, int]:
            answer = await self._auth.authorize_key(call, *key)
            return answer, answer.grant.ttl_ms

        return await self._by_key.load(call, key, ask)

    def signing_grant_cached(
        self, access_key_id: str, date: str, region: str, service: str, token_digest: bytes = b""
    ) -> SigningGrant | None:
        """As `signing_grant`, but never waits; returns None if auth must be asked."""
        return self._by_key.get((access_key_id, date, region, service, token_digest))

    async def signature_grant(
        self,
        call: Call,
        access_key_id: str,
        string_to_sign: bytes,
        signature: bytes,
        token_digest: bytes = b"",
    ) -> Grant:
        """Returns the grant of the user who made a signature of version 2. Auth is asked each time: only it can tell.

        Raises:
            TarnError: as `AuthClient.authorize_signature_v2`; the transport's errors.
        """
        _check_access_key_id(access_key_id)
        return await self._auth.authorize_signature_v2(
            call, access_key_id, string_to_sign, signature, token_digest
        )

    async def grant(self, call: Call) -> Grant:
        """Returns the grant of the call's caller token.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID: the token is missing, false or expired.
        """
        token = call.caller_token
        if not token or len(token) > _TOKEN_MAX:
            text = (
                "the call carries no caller token; log in first"
                if not token
                else "caller token is too long"
            )
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, text)
        found = self._by_token.get(token) or await self._load(call, token)
        note_principal(found.user_id)
        return found

    def grant_cached(self, token: str) -> Grant | None:
        """As `grant` of a caller token, but never waits; returns None if auth must be asked."""
        found = self._by_token.get(token)
        if found is not None:
            note_principal(found.user_id)
        return found

    async def _load(self, call: Call, token: str) -> Grant:
        async def ask() -> tuple[Grant, int]:
            answer = await self._auth.authorize_token(call, token)
            return answer, answer.ttl_ms

        return await self._by_token.load(call, token, ask)

    def grant_end(self, token: str) -> float:
        """Returns until when the cached grant of a caller token holds, on the monotonic clock; a time of the past if
        auth must be asked."""
        return self._by_token.end_of(token)

    def accepts(self, token: str) -> bool:
        """Returns whether the grant of a caller token is cached; never waits."""
        return self._by_token.has(token)

    async def service_token(self, call: Call, service: Service) -> str:
        """Returns a caller token of this process as a service (`tarn.gate.service_calls`).

        Raises:
            TarnError: INVALID: auth does not know the service yet. Also the transport's errors.
        """
        if kept := self.kept_service_token(service):
            return kept

        async def ask() -> tuple[Grant, int]:
            answer = await self._auth.authorize_service(call, service)
            return answer, answer.ttl_ms

        return (await self._by_service.load(call, service, ask)).caller_token

    def kept_service_token(self, service: Service) -> str:
        """Returns the token of a service if it is known already; empty: it is not."""
        found = self._by_service.get(service)
        return "" if found is None else found.caller_token

    def forget_service_token(self, service: Service) -> None:
        """Asks auth for the next token of a service."""
        self._by_service.forget(service)

    async def is_service(self, call: Call, *services: Service) -> bool:
        """Whether a call carries the proof of one of these services (`Call.service_token`): its caller token.

        Raises:
            TarnError: the transport's errors.
        """
        token = call.service_token
        if not token or len(token) > _TOKEN_MAX:
            return False
        grant = self._by_token.get(token)
        if grant is None:
            try:
                # Not by `grant`: the token proves something about the caller, and is not the caller's.
                grant = await self._load(replace(call, caller_token=token), token)
            except TarnError as error:
                if error.kind is Kind.UNAUTHENTICATED:
                    return False
                raise
        for service in services:  # noqa: SIM110 - each upload asks, and a generator costs more
            if grant.user_id == service.user_id:
                return True
        return False

    async def create_session_key(
        self, call: Call, request: CreateSessionKeyRequest
    ) -> CreateSessionKeyResponse:
        """Creates a session key of the caller. Raises what auth raised, and the transport's errors."""
        return await self._auth.create_session_key(call, request)

    async def user_uid(self, call: Call, user_id: str) -> bytes:
        """Returns the uid of a user, which identifies this life of the user.

        Raises:
            TarnError: NOT_FOUND, USER_NOT_FOUND; DENIED if the caller may not read that user.
        """
        return (await self._auth.get_user(call, user_id)).user_uid


def _check_access_key_id(access_key_id: str) -> None:
    """Raises `TarnError` CREDENTIAL_NOT_FOUND for an id that no key has."""
    if len(access_key_id) > _ACCESS_KEY_ID_MAX:
        text = f"access key id of {len(access_key_id)} characters does not exist"
        raise TarnError(Kind.UNAUTHENTICATED, Reason.CREDENTIAL_NOT_FOUND, text)
