"""`tarn.auth.v1.AuthorizationService`: the authorisation itself. Its callers are services, never users."""

from __future__ import annotations

from tarn.rpc.rules import rules_of
from tarn.rpc.wire.call import Call
from tarn_auth.authorizer import Authorizer
from tarn_auth.messages import to_grant
from tarn_auth.service_callers import Callers
from tarn_proto.auth.v1 import authorization_service_pb2 as pb

__all__ = ["AuthorizationService"]

_RULES = rules_of(pb.DESCRIPTOR.services_by_name["AuthorizationService"])


class AuthorizationService:
    """Answers one operation at a time; the transport moves and matches them.

    Each raises `TarnError` DENIED, SERVICE_REQUIRED for a caller that is no service which may ask.

    Args:
        authorizer: finds users and their permissions.
        callers: decides which services may ask.
    """

    def __init__(self, authorizer: Authorizer, callers: Callers) -> None:
        self._authorizer = authorizer
        self._callers = callers

    async def authorize_key(self, request: pb.AuthorizeKey, call: Call) -> pb.AuthorizeKeyResult:
        """Returns the grant of a signer, with the signing key."""
        self._callers.require(call, _RULES["authorize_key"])
        found = await self._authorizer.authorize_key(
            request.access_key_id, request.date, request.region, request.service
        )
        return pb.AuthorizeKeyResult(signing_key=found.key, grant=to_grant(found.grant))

    async def authorize_token(
        self, request: pb.AuthorizeToken, call: Call
    ) -> pb.AuthorizeTokenResult:
        """Returns the grant of a token's bearer."""
        self._callers.require(call, _RULES["authorize_token"])
        grant = await self._authorizer.authorize_token(request.caller_token)
        return pb.AuthorizeTokenResult(grant=to_grant(grant))

    async def authorize_service(
        self, request: pb.AuthorizeService, call: Call
    ) -> pb.AuthorizeServiceResult:
        """Returns the grant of the service that asks."""
        services = self._callers.require(call, _RULES["authorize_service"])
        grant = self._authorizer.authorize_service(request.service, services)
        return pb.AuthorizeServiceResult(grant=to_grant(grant))
