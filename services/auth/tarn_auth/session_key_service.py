"""`tarn.auth.v1.SessionKeyService`: keys that act for a user for some hours (docs/design/session-keys.md)."""

from __future__ import annotations

from tarn.core.access.actions import USERS
from tarn.core.access.session_policy import (
    parse_binding,
    parse_duration_s,
    parse_permission,
    require_within_limits,
)
from tarn.core.errors import TarnError
from tarn.core.ids import parse_user_id
from tarn.kv.auth_records import SessionKey
from tarn.rpc.wire import pagination
from tarn_auth.authorizer import Authorizer
from tarn_auth.credentials import parse_access_key_id, parse_description
from tarn_auth.gate import UserCaller
from tarn_auth.keyring import Keyring
from tarn_auth.messages import to_session_key
from tarn_auth.session_keys import SessionKeys, session_not_found
from tarn_auth.users import Users
from tarn_proto.auth.v1 import session_key_service_pb2 as pb

__all__ = ["SessionKeyService"]

_PAGE_DEFAULT = 100
_PAGE_MAX = 1000


class SessionKeyService:
    """A session key lacks the permission to create or to list session keys; it has that to renew and end itself."""

    def __init__(
        self, users: Users, session_keys: SessionKeys, authorizer: Authorizer, keyring: Keyring
    ) -> None:
        self._users = users
        self._session_keys = session_keys
        self._authorizer = authorizer
        self._keyring = keyring

    async def CreateSessionKey(
        self, request: pb.CreateSessionKeyRequest, caller: UserCaller
    ) -> pb.CreateSessionKeyResponse:
        """Creates a session key of the caller; its secrets are shown only in this answer."""
        holder = caller.holder
        caller.require(caller.resource(caller=holder.user))
        assert holder.session is None, "no session key has the permission"
        permissions = [parse_permission(p.actions, p.resources) for p in request.permissions]
        bindings = [parse_binding(b.bucket_id, b.repository_id, b.ref) for b in request.bindings]
        require_within_limits(permissions, bindings)
        made = await self._session_keys.create(
            holder.user,
            holder.credential,
            parse_description(request.description),
            parse_duration_s(request.duration_s),
            permissions,
            bindings,
        )
        return pb.CreateSessionKeyResponse(
            session_key=to_session_key(made.key),
            secret_access_key=made.secret,
            session_token=made.token,
        )

    async def ListSessionKeys(
        self, request: pb.ListSessionKeysRequest, caller: UserCaller
    ) -> pb.ListSessionKeysResponse:
        """Returns a page of a user's session keys that live."""
        mine = caller.holder.user
        user_id = parse_user_id(request.user_id) if request.user_id else mine.user_id
        caller.require(caller.resource(user_id=user_id))
        user = mine if user_id == mine.user_id else await self._users.get(user_id)
        size = pagination.page_size(request.page_size, _PAGE_DEFAULT, _PAGE_MAX)
        name = "SessionKeyService.ListSessionKeys"
        tokens = pagination.PageTokens(
            self._keyring.page_keys, mine.user_uid.hex(), name, user_uid=user.user_uid
        )
        after = tokens.decode(request.page_token)
        found, last = await self._session_keys.page(user.user_uid, after, size)
        return pb.ListSessionKeysResponse(
            session_keys=map(to_session_key, found),
            next_page_token=tokens.encode(last) if last else "",
        )

    async def RenewSessionKey(
        self, request: pb.RenewSessionKeyRequest, caller: UserCaller
    ) -> pb.RenewSessionKeyResponse:
        """Lets a session key live longer."""
        key = await self._permitted(request.access_key_id, caller)
        duration_s = parse_duration_s(request.duration_s)
        try:
            renewed = await self._session_keys.renew(key, duration_s)
        finally:
            self._authorizer.forget()
        return pb.RenewSessionKeyResponse(session_key=to_session_key(renewed))

    async def EndSessionKey(
        self, request: pb.EndSessionKeyRequest, caller: UserCaller
    ) -> pb.EndSessionKeyResponse:
        """Ends a session key."""
        key = await self._permitted(request.access_key_id, caller)
        try:
            await self._session_keys.end(key)
        finally:
            self._authorizer.forget()
        return pb.EndSessionKeyResponse()

    async def _permitted(self, access_key_id: str, caller: UserCaller) -> SessionKey:
        """Returns a session key that the caller may manage. Callers without permission get the same answer for another
        user's key and for one that does not exist."""
        name = parse_access_key_id(access_key_id)
        found = await self._session_keys.find(name)
        try:
            caller.require(USERS if found is None else caller.resource(session=found))
        except TarnError:
            raise session_not_found(name) from None
        if found is None:
            raise session_not_found(name)
        return found
