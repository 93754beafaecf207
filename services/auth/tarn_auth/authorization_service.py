"""`tarn.auth.v1.AuthorizationService`: the authorisation itself. Its callers are services, never users."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
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

    Args:
        authorizer: finds users and their permissions.
        callers: decides which services may ask.
    """

    def __init__(self, authorizer: Authorizer, callers: Callers) -> None:
        self._authorizer = authorizer
        self._callers = callers

    async def operate(self, operation: pb.Operation, call: Call) -> pb.OperationResult:
        """Returns the grant of a signer, with the signing key; of a token's bearer; or of the service that asks.

        Raises:
            TarnError: DENIED, SERVICE_REQUIRED: the caller is no service that may ask.
        """
        name = operation.WhichOneof("operation") or ""
        rule = _RULES.get(name)
        services = frozenset() if rule is None else self._callers.require(call, rule)
        match name:
            case "authorize_key":
                request = operation.authorize_key
                found = await self._authorizer.authorize_key(
                    request.access_key_id, request.date, request.region, request.service
                )
                key = pb.AuthorizeKeyResult(signing_key=found.key, grant=to_grant(found.grant))
                return pb.OperationResult(authorize_key=key)
            case "authorize_token":
                token = operation.authorize_token.caller_token
                grant = await self._authorizer.authorize_token(token)
                answer = pb.AuthorizeTokenResult(grant=to_grant(grant))
                return pb.OperationResult(authorize_token=answer)
            case "authorize_service":
                grant = self._authorizer.authorize_service(
                    operation.authorize_service.service, services
                )
                as_service = pb.AuthorizeServiceResult(grant=to_grant(grant))
                return pb.OperationResult(authorize_service=as_service)
            case _:
                text = "this version of auth does not know the operation; upgrade auth first"
                raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)
