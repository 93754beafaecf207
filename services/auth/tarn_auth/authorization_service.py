"""`tarn.auth.v1.AuthorizationService`: the authorisation itself. Its callers are services, never users."""

from __future__ import annotations

from tarn_auth.authorizer import Authorizer
from tarn_auth.download_links import DownloadLinks
from tarn_auth.gate import ServiceCaller
from tarn_auth.messages import to_grant
from tarn_auth.web_sessions import WebSessions
from tarn_proto.auth.v1 import authorization_service_pb2 as pb

__all__ = ["AuthorizationService"]


class AuthorizationService:
    """Answers one operation at a time; the transport moves and matches them."""

    def __init__(self, authorizer: Authorizer, web_sessions: WebSessions) -> None:
        self._authorizer = authorizer
        self._web_sessions = web_sessions
        self._download_links = DownloadLinks(authorizer)

    async def authorize_key(
        self, request: pb.AuthorizeKey, caller: ServiceCaller
    ) -> pb.AuthorizeKeyResult:
        """Returns the grant of a signer, with the signing key."""
        found = await self._authorizer.authorize_key(
            request.access_key_id,
            request.date,
            request.region,
            request.service,
            request.session_token_digest,
        )
        return pb.AuthorizeKeyResult(signing_key=found.key, grant=to_grant(found.grant))

    async def authorize_signature_v2(
        self, request: pb.AuthorizeSignatureV2, caller: ServiceCaller
    ) -> pb.AuthorizeSignatureV2Result:
        """Returns the grant of a signer, if the signature is right."""
        grant = await self._authorizer.authorize_signature_v2(
            request.access_key_id,
            request.string_to_sign,
            request.signature,
            request.session_token_digest,
        )
        return pb.AuthorizeSignatureV2Result(grant=to_grant(grant))

    async def authorize_token(
        self, request: pb.AuthorizeToken, caller: ServiceCaller
    ) -> pb.AuthorizeTokenResult:
        """Returns the grant of a token's bearer."""
        grant = await self._authorizer.authorize_token(request.caller_token)
        return pb.AuthorizeTokenResult(grant=to_grant(grant))

    async def authorize_service(
        self, request: pb.AuthorizeService, caller: ServiceCaller
    ) -> pb.AuthorizeServiceResult:
        """Returns the grant of the service that asks."""
        grant = self._authorizer.authorize_service(request.service, caller.services)
        return pb.AuthorizeServiceResult(grant=to_grant(grant))

    async def begin_web_session(
        self, request: pb.BeginWebSession, caller: ServiceCaller
    ) -> pb.BeginWebSessionResult:
        """Begins the session of a browser."""
        secret = await self._web_sessions.begin(request.caller_token)
        return pb.BeginWebSessionResult(secret=secret)

    async def authorize_web_session(
        self, request: pb.AuthorizeWebSession, caller: ServiceCaller
    ) -> pb.AuthorizeWebSessionResult:
        """Returns the grant of a browser, as stored now."""
        grant = await self._web_sessions.authorize(request.digest)
        return pb.AuthorizeWebSessionResult(grant=to_grant(grant))

    async def end_web_session(
        self, request: pb.EndWebSession, caller: ServiceCaller
    ) -> pb.EndWebSessionResult:
        """Ends the session of a browser."""
        await self._web_sessions.end(request.digest)
        return pb.EndWebSessionResult()

    async def sign_download(
        self, request: pb.SignDownload, caller: ServiceCaller
    ) -> pb.SignDownloadResult:
        """Returns a link to one object for a browser."""
        target = await self._download_links.sign(
            request.caller_token,
            request.host,
            request.region,
            request.repository,
            request.ref,
            request.path,
            request.file_name,
        )
        return pb.SignDownloadResult(target=target)
