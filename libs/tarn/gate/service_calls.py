"""Calls that a service makes without a user, with a caller token from auth (`tarn.core.access.service`).

This is the only way to such a token. It is kept for as long as a user's grant, seconds: after a rotation of the
installation's secret it is one of the new secret long before the old one goes.
"""

from __future__ import annotations

from typing import Protocol

from tarn.core.access.service import Service
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, TarnError
from tarn.rpc.wire.call import Call

__all__ = ["ServiceCalls", "ServiceTokens"]

_AUTH_TIMEOUT_SECONDS = 10.0


class ServiceTokens(Protocol):
    """Gives a service its token: `tarn.gate.access.Access`."""

    async def service_token(self, call: Call, service: Service) -> str:
        """Returns a caller token of this process as a service."""
        ...

    def kept_service_token(self, service: Service) -> str:
        """Returns the token if it is known already; empty: it is not."""
        ...

    def forget_service_token(self, service: Service) -> None:
        """Asks auth for the next token."""
        ...


class ServiceCalls:
    """Makes the contexts of calls, and the proof of this service's identity.

    Args:
        tokens: keeps the token.
        service: the caller.
        clock: measures deadlines.
        ids: names the calls.
    """

    def __init__(
        self, tokens: ServiceTokens, service: Service, clock: Clock, ids: IdSource
    ) -> None:
        self._tokens = tokens
        self._service = service
        self._clock = clock
        self._ids = ids

    async def call(self, timeout_s: float) -> Call:
        """Returns the context of a new call.

        Raises:
            TarnError: auth gives no token.
        """
        end = self._clock.monotonic() + _AUTH_TIMEOUT_SECONDS
        asking = Call(self._ids.nonce().hex(), "", end)
        token = await self._tokens.service_token(asking, self._service)
        return Call(self._ids.nonce().hex(), token, self._clock.monotonic() + timeout_s)

    async def proof(self, call: Call) -> str:
        """Returns the service's token, for a call of a user; empty if auth does not know the service yet.

        Raises:
            TarnError: the transport's errors.
        """
        try:
            return await self._tokens.service_token(call, self._service)
        except TarnError as error:
            if error.kind is Kind.INVALID:  # an auth of an earlier version
                return ""
            raise

    def kept_proof(self) -> str:
        """Returns what `proof` would, if that is known already; empty: it is not."""
        return self._tokens.kept_service_token(self._service)

    def failed(self, error: TarnError) -> None:
        """Drops the token if it was refused: auth has another secret now."""
        if error.kind is Kind.UNAUTHENTICATED:
            self._tokens.forget_service_token(self._service)
