"""`tarn.auth.v1.AuthorizationService`: the authorisation itself, so it requires no caller token.

Any client that reaches it gets signing keys: it is for services only. The transport restricts access: the
same process, or mTLS and a network policy (see README.md).
"""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_auth.authorizer import Authorizer
from tarn_auth.messages import to_grant
from tarn_proto.auth.v1 import authorization_service_pb2 as pb

__all__ = ["AuthorizationService"]


class AuthorizationService:
    """Answers one operation at a time; the transport moves and matches them."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def operate(self, operation: pb.Operation, call: Call) -> pb.OperationResult:
        """Returns the grant of a signer, with the signing key, or of a token's bearer."""
        match operation.WhichOneof("operation"):
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
                grant = self._authorizer.authorize_service(operation.authorize_service.service)
                as_service = pb.AuthorizeServiceResult(grant=to_grant(grant))
                return pb.OperationResult(authorize_service=as_service)
            case _:
                text = "this version of auth does not know the operation; upgrade auth first"
                raise TarnError(Kind.UNIMPLEMENTED, Reason.NOT_IMPLEMENTED, text)
