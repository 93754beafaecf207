"""Calls that the compactor makes as a service, with a caller token from auth."""

from __future__ import annotations

from tarn.client.auth import AuthClient
from tarn.core.access.service import Service
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, TarnError
from tarn.rpc.wire.call import Call

__all__ = ["ServiceCalls"]

_TOKEN_SECONDS = 900.0
"""How long a token is used; it is valid for an hour."""
_AUTH_TIMEOUT_SECONDS = 10.0


class ServiceCalls:
    """Makes the contexts of calls.

    Args:
        auth: issues the token.
        clock: measures deadlines and the age of the token.
        ids: names the calls.
    """

    def __init__(self, auth: AuthClient, clock: Clock, ids: IdSource) -> None:
        self._auth = auth
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
            grant = await self._auth.authorize_service(asking, Service.COMPACTOR)
            self._token, self._fetched_at = grant.caller_token, now
        return Call(self._ids.nonce().hex(), self._token, self._clock.monotonic() + timeout_s)

    def failed(self, error: TarnError) -> None:
        """Drops the token if auth refuses it: auth has another secret now."""
        if error.kind is Kind.UNAUTHENTICATED:
            self._token = ""
