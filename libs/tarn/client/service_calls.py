"""Calls that a service makes without a user, with a caller token from auth (`tarn.core.access.service`)."""

from __future__ import annotations

from typing import Protocol

from tarn.core.access.policy import Grant
from tarn.core.access.service import Service
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, TarnError
from tarn.rpc.wire.call import Call

__all__ = ["ServiceCalls", "TokenIssuer"]

_TOKEN_SECONDS = 900.0
"""How long a token is used; it is valid for an hour."""
_AUTH_TIMEOUT_SECONDS = 10.0


class TokenIssuer(Protocol):
    """Gives a service its token: a client of auth."""

    async def authorize_service(self, call: Call, service: str) -> Grant:
        """Returns the grant, with a caller token, of a service that works without a user."""
        ...


class ServiceCalls:
    """Makes the contexts of calls.

    Args:
        auth: issues the token.
        service: who calls.
        clock: measures deadlines and the age of the token.
        ids: names the calls.
    """

    def __init__(self, auth: TokenIssuer, service: Service, clock: Clock, ids: IdSource) -> None:
        self._auth = auth
        self._service = service
        self._clock = clock
        self._ids = ids
        self._token = ""
        self._fetched_at = 0.0

    async def call(self, timeout_s: float) -> Call:
        """Returns the context of a new call.

        Raises:
            TarnError: auth gives no token.
        """
        now = self._clock.monotonic()
        if not self._token or now - self._fetched_at > _TOKEN_SECONDS:
            asking = Call(self._ids.nonce().hex(), "", now + _AUTH_TIMEOUT_SECONDS)
            grant = await self._auth.authorize_service(asking, self._service)
            self._token, self._fetched_at = grant.caller_token, now
        return Call(self._ids.nonce().hex(), self._token, self._clock.monotonic() + timeout_s)

    def failed(self, error: TarnError) -> None:
        """Drops the token if auth refuses it: auth has another secret now."""
        if error.kind is Kind.UNAUTHENTICATED:
            self._token = ""
