"""Client of auth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.core.access.policy import Binding, Grant, Statement, compile_policy
from tarn.core.access.proof import log_in_proof, set_up_proof
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.auth.v1 import authorization_service_pb2 as authorization_pb
from tarn_proto.auth.v1 import caller_pb2 as caller_pb
from tarn_proto.auth.v1 import session_key_service_pb2 as session_keys_pb
from tarn_proto.auth.v1 import session_service_pb2 as session_pb
from tarn_proto.auth.v1 import user_pb2 as user_pb
from tarn_proto.auth.v1 import user_service_pb2 as users_pb
from tarn_proto.auth.v1.authorization_service_rpc import AuthorizationServiceClient
from tarn_proto.auth.v1.session_key_service_rpc import SessionKeyServiceClient
from tarn_proto.auth.v1.session_service_rpc import SessionServiceClient
from tarn_proto.auth.v1.user_service_rpc import UserServiceClient

__all__ = ["AuthClient", "NewCredential", "Session", "SigningGrant"]


@dataclass(frozen=True, slots=True)
class SigningGrant:
    """The SigV4 signing key of one access key, day, region and service, and the user's grant."""

    signing_key: bytes = field(repr=False)
    grant: Grant


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A new key pair with its secret, which auth returns only once."""

    credential: user_pb.Credential
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Session:
    """A caller's grant and the expiry of its token, in Unix microseconds."""

    grant: Grant
    expire_time_us: int


class AuthClient:
    """Calls auth. Methods raise the `TarnError` that auth raised.

    Args:
        transport: reaches auth.
        prove: makes the proof that this process is a service, which authorisations of callers need
            (`tarn.client.service_proofs`); returns an empty text if its certificate proves it, or if auth is in this
            process.
    """

    def __init__(self, transport: Transport, prove: Callable[[], str] = str) -> None:
        self._authorization_service = AuthorizationServiceClient(transport)
        self._session_service = SessionServiceClient(transport)
        self._user_service = UserServiceClient(transport)
        self._session_key_service = SessionKeyServiceClient(transport)
        self._prove = prove

    async def authorize_key(
        self,
        call: Call,
        access_key_id: str,
        date: str,
        region: str,
        service: str,
        token_digest: bytes = b"",
    ) -> SigningGrant:
        """Returns the signing key of one day (`yyyymmdd`, at most one day from now), and the grant.

        Args:
            call: the call.
            access_key_id: of a key pair; of a session key if there is a digest.
            date: of the scope.
            region: of the scope.
            service: of the scope.
            token_digest: SHA-256 of the session token of the request; empty if it has none.

        Raises:
            TarnError: UNAUTHENTICATED, CREDENTIAL_NOT_FOUND: the key is unknown; SESSION_TOKEN_INVALID,
                SESSION_EXPIRED. INVALID: another date or service.
        """
        request = authorization_pb.AuthorizeKey(
            access_key_id=access_key_id,
            date=date,
            region=region,
            service=service,
            session_token_digest=token_digest,
        )
        with self._asking(call) as asking:
            result = await self._authorization_service.authorize_key(request, asking)
        return SigningGrant(result.signing_key, _grant(result.grant))

    async def authorize_signature_v2(
        self,
        call: Call,
        access_key_id: str,
        string_to_sign: bytes,
        signature: bytes,
        token_digest: bytes = b"",
    ) -> Grant:
        """Returns the grant of the user who made a signature of version 2.

        Args:
            call: the call.
            access_key_id: as in `authorize_key`.
            string_to_sign: what was signed, at most 64 KiB.
            signature: HMAC-SHA1 of it, as claimed.
            token_digest: as in `authorize_key`.

        Raises:
            TarnError: UNAUTHENTICATED as `authorize_key`; SIGNATURE_MISMATCH: the signature is another one.
        """
        request = authorization_pb.AuthorizeSignatureV2(
            access_key_id=access_key_id,
            string_to_sign=string_to_sign,
            signature=signature,
            session_token_digest=token_digest,
        )
        with self._asking(call) as asking:
            result = await self._authorization_service.authorize_signature_v2(request, asking)
        return _grant(result.grant)

    async def authorize_token(self, call: Call, token: str) -> Grant:
        """Returns the grant of a caller token's bearer.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID: the token is false or expired.
        """
        request = authorization_pb.AuthorizeToken(caller_token=token)
        with self._asking(call) as asking:
            result = await self._authorization_service.authorize_token(request, asking)
        return _grant(result.grant)

    async def authorize_service(self, call: Call, service: str) -> Grant:
        """Returns the grant, with a caller token, of a service that works without a user."""
        request = authorization_pb.AuthorizeService(service=service)
        with self._asking(call) as asking:
            result = await self._authorization_service.authorize_service(request, asking)
        return _grant(result.grant)

    async def begin_web_session(self, call: Call, token: str) -> str:
        """Begins a session of a browser for a caller token; returns its secret, which no other answer contains.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID; DENIED: the token is that of a session key; EXHAUSTED,
                OVERLOADED; FAILED_PRECONDITION, FEATURE_LEVEL.
        """
        request = authorization_pb.BeginWebSession(caller_token=token)
        with self._asking(call) as asking:
            return (await self._authorization_service.begin_web_session(request, asking)).secret

    async def authorize_web_session(self, call: Call, digest: bytes) -> Grant:
        """Returns the grant of the user of a browser's session, named by the SHA-256 of its secret.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID: it is over.
        """
        request = authorization_pb.AuthorizeWebSession(digest=digest)
        with self._asking(call) as asking:
            result = await self._authorization_service.authorize_web_session(request, asking)
        return _grant(result.grant)

    async def end_web_session(self, call: Call, digest: bytes) -> None:
        """Ends a browser's session; one that is over is not an error."""
        request = authorization_pb.EndWebSession(digest=digest)
        with self._asking(call) as asking:
            await self._authorization_service.end_web_session(request, asking)

    async def sign_download(
        self,
        call: Call,
        *,
        host: str,
        region: str,
        repository: str,
        ref: str,
        path: str,
        file_name: str,
    ) -> str:
        """Returns path and query of a link by which the caller's browser downloads an object from the S3 endpoint
        within 60 seconds; a secret until then. What the user may read is decided when the link is used.

        Args:
            call: of the caller whose key pair signs.
            host: of the S3 endpoint, as browsers send it.
            region: of the S3 endpoint.
            repository: of the object.
            ref: of the object.
            path: of the object.
            file_name: under which the browser stores it.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID; DENIED, ACCESS_DENIED: the caller has a session key;
                INVALID, INVALID_ARGUMENT.
        """
        request = authorization_pb.SignDownload(
            caller_token=call.caller_token,
            host=host,
            region=region,
            repository=repository,
            ref=ref,
            path=path,
            file_name=file_name,
        )
        with self._asking(call) as asking:
            return (await self._authorization_service.sign_download(request, asking)).target

    async def list_web_sessions(
        self, call: Call, *, user_id: str = ""
    ) -> Sequence[session_pb.WebSession]:
        """Returns the sessions of a user's browsers that live; of the caller's if no user is named."""
        request = session_pb.ListWebSessionsRequest(user_id=user_id)
        return (await self._session_service.ListWebSessions(request, call)).web_sessions

    async def end_web_sessions(
        self, call: Call, *, user_id: str = "", web_session_id: str = ""
    ) -> int:
        """Ends all sessions of a user's browsers, or one of them; returns how many it ended."""
        request = session_pb.EndWebSessionsRequest(user_id=user_id, web_session_id=web_session_id)
        return (await self._session_service.EndWebSessions(request, call)).ended_count

    async def get_setup_state(self, call: Call) -> session_pb.GetSetupStateResponse:
        """Returns whether the first admin exists. Needs no caller token."""
        request = session_pb.GetSetupStateRequest()
        return await self._session_service.GetSetupState(request, call)

    async def set_up(
        self,
        call: Call,
        installation_secret: bytes,
        user_id: str,
        *,
        access_key_id: str = "",
        secret_access_key: str = "",
    ) -> NewCredential:
        """Creates the first admin. Proves the installation's secret without sending it.

        Auth makes the admin's key pair, unless the installer chooses it (give both halves or none).

        Raises:
            TarnError: FAILED_PRECONDITION, ALREADY_SET_UP: there is an admin already. UNAUTHENTICATED,
                SIGNATURE_MISMATCH: the proof is wrong.
        """
        request = session_pb.SetUpRequest(
            setup_proof=set_up_proof(installation_secret),
            user_id=user_id,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
        )
        response = await self._session_service.SetUp(request, call)
        return NewCredential(response.credential, response.secret_access_key)

    async def log_in(
        self,
        call: Call,
        access_key_id: str,
        secret_access_key: str,
        *,
        now_us: int,
        nonce: bytes,
        session_token: str = "",
        use: str = "",
    ) -> Session:
        """Exchanges a key pair for a caller token. Proves the secret without sending it.

        `now_us` is the caller's wall clock in Unix microseconds, `nonce` 16 new random bytes, `session_token` that of a
        session key, which is sent; `use` what the key pair is used for, if not for rpcs (`tarn.core.access.key_use`).

        Raises:
            TarnError: UNAUTHENTICATED, SIGNATURE_MISMATCH: the proof is wrong. The error does not tell which
                part of it.
        """
        sign_time_s = now_us // 1_000_000
        request = session_pb.LogInRequest(
            access_key_id=access_key_id,
            sign_time=Timestamp(seconds=sign_time_s),
            nonce=nonce.hex(),
            signature=log_in_proof(secret_access_key, access_key_id, sign_time_s, nonce.hex()),
            session_token=session_token,
            use=use,
        )
        response = await self._session_service.LogIn(request, call)
        end = response.expire_time
        return Session(_grant(response.grant), end.seconds * 1_000_000 + end.nanos // 1000)

    async def get_caller(self, call: Call) -> session_pb.GetCallerResponse:
        """Returns the user whom the call's caller token identifies: `user`, `statements`."""
        return await self._session_service.GetCaller(session_pb.GetCallerRequest(), call)

    async def create_user(self, call: Call, user_id: str, roles: Sequence[str]) -> user_pb.User:
        """Creates a user without credentials. Raises ALREADY_EXISTS, USER_EXISTS if the user exists."""
        request = users_pb.CreateUserRequest(user_id=user_id, roles=roles)
        answer = await self._user_service.CreateUser(request, call)
        return answer.user

    async def get_user(self, call: Call, user_id: str) -> user_pb.User:
        """Returns one user. Raises NOT_FOUND, USER_NOT_FOUND if there is none."""
        request = users_pb.GetUserRequest(user_id=user_id)
        answer = await self._user_service.GetUser(request, call)
        return answer.user

    async def list_users(
        self,
        call: Call,
        *,
        prefix: str = "",
        after: str = "",
        page_size: int = 0,
        page_token: str = "",
    ) -> users_pb.ListUsersResponse:
        """Returns a page of users in byte order of their ids, those with a prefix and greater than `after`: `users`,
        `next_page_token`."""
        request = users_pb.ListUsersRequest(
            prefix=prefix, after=after, page_size=page_size, page_token=page_token
        )
        return await self._user_service.ListUsers(request, call)

    async def update_user_roles(
        self, call: Call, user_id: str, roles: Sequence[str]
    ) -> user_pb.User:
        """Replaces a user's roles."""
        request = users_pb.UpdateUserRolesRequest(user_id=user_id, roles=roles)
        answer = await self._user_service.UpdateUserRoles(request, call)
        return answer.user

    async def delete_user(self, call: Call, user_id: str) -> None:
        """Deletes a user and its key pairs."""
        request = users_pb.DeleteUserRequest(user_id=user_id)
        await self._user_service.DeleteUser(request, call)

    async def check_access(
        self, call: Call, action: str, resource: str, *, user_id: str = ""
    ) -> users_pb.CheckAccessResponse:
        """Returns whether a user, or the caller, may do an action on a resource, and the statements that decide.

        Raises:
            TarnError: INVALID: no such action, or a resource of no known form. NOT_FOUND, USER_NOT_FOUND. DENIED: the
                caller may not read that user.
        """
        request = users_pb.CheckAccessRequest(user_id=user_id, action=action, resource=resource)
        return await self._user_service.CheckAccess(request, call)

    async def create_credential(
        self, call: Call, *, user_id: str = "", description: str = ""
    ) -> NewCredential:
        """Creates a key pair for a user; for the caller if no user is named."""
        request = users_pb.CreateCredentialRequest(user_id=user_id, description=description)
        response = await self._user_service.CreateCredential(request, call)
        return NewCredential(response.credential, response.secret_access_key)

    async def list_credentials(
        self, call: Call, *, user_id: str = "", page_size: int = 0, page_token: str = ""
    ) -> users_pb.ListCredentialsResponse:
        """Returns a page of a user's key pairs; of the caller's if no user is named."""
        request = users_pb.ListCredentialsRequest(
            user_id=user_id, page_size=page_size, page_token=page_token
        )
        return await self._user_service.ListCredentials(request, call)

    async def delete_credential(self, call: Call, access_key_id: str) -> None:
        """Deletes a key pair. Raises NOT_FOUND, CREDENTIAL_NOT_FOUND if there is none."""
        request = users_pb.DeleteCredentialRequest(access_key_id=access_key_id)
        await self._user_service.DeleteCredential(request, call)

    async def create_session_key(
        self, call: Call, request: session_keys_pb.CreateSessionKeyRequest
    ) -> session_keys_pb.CreateSessionKeyResponse:
        """Creates a session key of the caller: `session_key`, and its secrets, which no other answer contains."""
        return await self._session_key_service.CreateSessionKey(request, call)

    async def list_session_keys(
        self, call: Call, *, user_id: str = "", page_size: int = 0, page_token: str = ""
    ) -> session_keys_pb.ListSessionKeysResponse:
        """Returns a page of a user's session keys that live; of the caller's if no user is named."""
        request = session_keys_pb.ListSessionKeysRequest(
            user_id=user_id, page_size=page_size, page_token=page_token
        )
        return await self._session_key_service.ListSessionKeys(request, call)

    async def renew_session_key(
        self, call: Call, access_key_id: str, *, duration_s: int = 0
    ) -> session_keys_pb.SessionKey:
        """Lets a session key live for `duration_s` from now, 36 hours from its creation at most; 0 for an hour.

        Raises:
            TarnError: NOT_FOUND, CREDENTIAL_NOT_FOUND: it does not exist, or it is over.
        """
        request = session_keys_pb.RenewSessionKeyRequest(
            access_key_id=access_key_id, duration_s=duration_s
        )
        return (await self._session_key_service.RenewSessionKey(request, call)).session_key

    async def end_session_key(self, call: Call, access_key_id: str) -> None:
        """Ends a session key. Raises NOT_FOUND, CREDENTIAL_NOT_FOUND if there is none."""
        request = session_keys_pb.EndSessionKeyRequest(access_key_id=access_key_id)
        await self._session_key_service.EndSessionKey(request, call)

    @contextmanager
    def _asking(self, call: Call) -> Iterator[Call]:
        """The call of a question about a caller: this process asks, and proves that it is a service."""
        try:
            # The token of the call is not for auth's port: only the proof tells who asks.
            yield replace(call, caller_token=self._prove())
        except TarnError as error:
            if error.reason is not Reason.SERVICE_REQUIRED:
                raise
            # The caller of this process is not to blame, and its request had no effect.
            text = f"auth does not accept this process as a service: {error.message}"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error


def _grant(grant: caller_pb.Grant) -> Grant:
    statements = tuple(
        Statement(s.allow, tuple(s.actions), tuple(s.resources)) for s in grant.statements
    )
    policy = compile_policy(statements)
    user_id, roles = UserId(grant.user_id), tuple(grant.roles)
    bindings = tuple(Binding(b.bucket_id, b.repository_id, b.ref) for b in grant.bindings)
    return Grant(
        user_id,
        policy,
        grant.caller_token,
        grant.ttl_ms,
        grant.user_uid,
        roles,
        bindings,
        grant.session_key_id,
    )
