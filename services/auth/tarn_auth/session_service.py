"""`tarn.auth.v1.SessionService`: set-up, log-in, and the caller's identity."""

from __future__ import annotations

from tarn.core.access.actions import user_resource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_user_id
from tarn.kv.auth_records import User
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.note import note_principal, note_resource
from tarn_auth.authorizer import Authorizer
from tarn_auth.credentials import parse_access_key_id, parse_secret
from tarn_auth.gate import UserCaller
from tarn_auth.log_in import LogIn
from tarn_auth.messages import (
    to_credential,
    to_grant,
    to_statements,
    to_timestamp,
    to_user,
    to_web_session,
)
from tarn_auth.set_up import SetUp
from tarn_auth.users import Users
from tarn_auth.web_sessions import WebSessions
from tarn_proto.auth.v1 import session_service_pb2 as pb

__all__ = ["SessionService"]


class SessionService:
    """The first three rpcs are public: each carries its own proof, or needs none."""

    def __init__(
        self,
        installation_id: str,
        set_up: SetUp,
        log_in: LogIn,
        authorizer: Authorizer,
        users: Users,
        web_sessions: WebSessions,
    ) -> None:
        self._installation_id = installation_id
        self._set_up = set_up
        self._log_in = log_in
        self._authorizer = authorizer
        self._users = users
        self._web_sessions = web_sessions

    async def GetSetupState(
        self, request: pb.GetSetupStateRequest, call: Call
    ) -> pb.GetSetupStateResponse:
        """Returns whether the first admin exists."""
        return pb.GetSetupStateResponse(
            is_set_up=await self._set_up.is_done(), installation_id=self._installation_id
        )

    async def SetUp(self, request: pb.SetUpRequest, call: Call) -> pb.SetUpResponse:
        """Creates the first admin."""
        user_id = parse_user_id(request.user_id)
        chosen = None
        if bool(request.access_key_id) != bool(request.secret_access_key):
            text = "access_key_id and secret_access_key must be given together or not at all"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="access_key_id")
        if request.access_key_id:
            access_key_id = parse_access_key_id(request.access_key_id)
            chosen = access_key_id, parse_secret(request.secret_access_key)
        made = await self._set_up.set_up(request.setup_proof, user_id, chosen)
        self._authorizer.forget()
        _note(user_id)
        return pb.SetUpResponse(
            credential=to_credential(made.credential), secret_access_key=made.secret
        )

    async def LogIn(self, request: pb.LogInRequest, call: Call) -> pb.LogInResponse:
        """Exchanges a proof for a caller token."""
        grant, expire_time_us = await self._log_in.log_in(
            request.access_key_id,
            request.sign_time.seconds,
            request.nonce,
            request.signature,
            request.session_token,
            request.use,
        )
        _note(grant.user_id)
        return pb.LogInResponse(grant=to_grant(grant), expire_time=to_timestamp(expire_time_us))

    async def ListWebSessions(
        self, request: pb.ListWebSessionsRequest, caller: UserCaller
    ) -> pb.ListWebSessionsResponse:
        """Returns the sessions of a user's browsers."""
        user = await self._user(request.user_id, caller)
        found = await self._web_sessions.of_user(user.user_uid)
        return pb.ListWebSessionsResponse(web_sessions=[to_web_session(*each) for each in found])

    async def EndWebSessions(
        self, request: pb.EndWebSessionsRequest, caller: UserCaller
    ) -> pb.EndWebSessionsResponse:
        """Ends sessions of a user's browsers."""
        user = await self._user(request.user_id, caller)
        count = await self._web_sessions.end_of_user(user.user_uid, request.web_session_id)
        return pb.EndWebSessionsResponse(ended_count=count)

    async def _user(self, named: str, caller: UserCaller) -> User:
        """Returns the user whose sessions the caller may manage."""
        mine = caller.holder.user
        user_id = parse_user_id(named) if named else mine.user_id
        caller.require(caller.resource(user_id=user_id))
        return mine if user_id == mine.user_id else await self._users.get(user_id)

    async def GetCaller(
        self, request: pb.GetCallerRequest, caller: UserCaller
    ) -> pb.GetCallerResponse:
        """Returns the caller's identity."""
        user = caller.holder.user
        caller.require(caller.resource(caller=user))
        statements = self._authorizer.grant(caller.holder).policy.statements
        return pb.GetCallerResponse(user=to_user(user), statements=to_statements(statements))


def _note(user_id: str) -> None:
    """Notes the user whose proof was valid, for the audit log."""
    note_principal(user_id)
    note_resource(user_resource(user_id))
