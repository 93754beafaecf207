"""`tarn.auth.v1.UserService`: users, their roles and their key pairs."""

from __future__ import annotations

from tarn.core.access.actions import USERS, parse_action, parse_resource
from tarn.core.access.policy import Role, parse_roles, statements_by_role
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_user_id
from tarn.kv.auth_records import User
from tarn.rpc.wire import pagination
from tarn_auth.authorizer import Authorizer, policy_of, roles_of
from tarn_auth.credentials import (
    Credentials,
    credential_not_found,
    parse_access_key_id,
    parse_description,
)
from tarn_auth.gate import UserCaller
from tarn_auth.keyring import Keyring
from tarn_auth.messages import to_credential, to_statements, to_user
from tarn_auth.users import Users, user_not_found
from tarn_proto.auth.v1 import user_service_pb2 as pb

__all__ = ["UserService"]

_PAGE_DEFAULT = 100
_PAGE_MAX = 1000


class UserService:
    """Users cannot take from themselves what only an admin can restore: their own user, their own role of
    Admin, or the key pair of the call. So an installation always keeps an admin with a key (two admins who
    delete each other concurrently can still leave none).
    """

    def __init__(
        self,
        users: Users,
        credentials: Credentials,
        authorizer: Authorizer,
        keyring: Keyring,
    ) -> None:
        self._users = users
        self._credentials = credentials
        self._authorizer = authorizer
        self._keyring = keyring

    def _tokens(
        self, caller: UserCaller, listing: str, **arguments: pagination.Argument
    ) -> pagination.PageTokens:
        name = f"UserService.{listing}"
        return pagination.PageTokens(
            self._keyring.page_keys, caller.holder.user.user_uid.hex(), name, **arguments
        )

    async def CreateUser(
        self, request: pb.CreateUserRequest, caller: UserCaller
    ) -> pb.CreateUserResponse:
        """Creates a user without key pairs."""
        user_id = parse_user_id(request.user_id)
        user = await self._users.create(user_id, parse_roles(request.roles))
        return pb.CreateUserResponse(user=to_user(user))

    async def GetUser(self, request: pb.GetUserRequest, caller: UserCaller) -> pb.GetUserResponse:
        """Returns one user."""
        user_id = parse_user_id(request.user_id)
        return pb.GetUserResponse(user=to_user(await self._users.get(user_id)))

    async def ListUsers(
        self, request: pb.ListUsersRequest, caller: UserCaller
    ) -> pb.ListUsersResponse:
        """Returns a page of users."""
        size = pagination.page_size(request.page_size, _PAGE_DEFAULT, _PAGE_MAX)
        wanted = {"prefix": request.prefix, "after": request.after}
        # What is empty has no part in tokens: those of releases without it stay good.
        arguments = {name: text for name, text in wanted.items() if text}
        tokens = self._tokens(caller, "ListUsers", **arguments)
        after = max(tokens.decode(request.page_token), request.after)
        # One more than requested shows whether there is a next page.
        users = await self._users.page(after, size + 1, request.prefix)
        token = ""
        if len(users) > size:
            users = users[:size]
            token = tokens.encode(users[-1].user_id)
        return pb.ListUsersResponse(users=map(to_user, users), next_page_token=token)

    async def UpdateUserRoles(
        self, request: pb.UpdateUserRolesRequest, caller: UserCaller
    ) -> pb.UpdateUserRolesResponse:
        """Replaces a user's roles."""
        user_id = parse_user_id(request.user_id)
        roles = parse_roles(request.roles)
        if user_id == caller.holder.user.user_id and Role.ADMIN not in roles:
            raise _oneself(f"user {user_id} may not take the role Admin from itself")
        user = await self._users.update_roles(user_id, roles)
        self._authorizer.forget()
        return pb.UpdateUserRolesResponse(user=to_user(user))

    async def DeleteUser(
        self, request: pb.DeleteUserRequest, caller: UserCaller
    ) -> pb.DeleteUserResponse:
        """Deletes a user and its key pairs."""
        user_id = parse_user_id(request.user_id)
        if user_id == caller.holder.user.user_id:
            raise _oneself(f"user {user_id} may not delete itself")
        try:
            await self._users.delete(user_id)
        finally:
            self._authorizer.forget()
        return pb.DeleteUserResponse()

    async def CreateCredential(
        self, request: pb.CreateCredentialRequest, caller: UserCaller
    ) -> pb.CreateCredentialResponse:
        """Creates a key pair; its secret is shown only in this answer."""
        owner = await self._owner(caller, request)
        description = parse_description(request.description)
        access_key_id, secret = self._credentials.make_pair()
        credential = await self._credentials.create(owner, description, access_key_id, secret)
        # The user may have been deleted in the meantime, with all key pairs that were visible then.
        now = await self._users.find(owner.user_id)
        if now is None or now.user_uid != owner.user_uid:
            await self._credentials.delete(credential)
            raise user_not_found(owner.user_id)
        return pb.CreateCredentialResponse(
            credential=to_credential(credential), secret_access_key=secret
        )

    async def ListCredentials(
        self, request: pb.ListCredentialsRequest, caller: UserCaller
    ) -> pb.ListCredentialsResponse:
        """Returns a page of a user's key pairs."""
        owner = await self._owner(caller, request)
        size = pagination.page_size(request.page_size, _PAGE_DEFAULT, _PAGE_MAX)
        uid = owner.user_uid
        tokens = self._tokens(caller, "ListCredentials", user_uid=uid)
        after = tokens.decode(request.page_token)
        found, last = await self._credentials.page(uid, after, size)
        token = tokens.encode(last) if last else ""
        return pb.ListCredentialsResponse(
            credentials=map(to_credential, found), next_page_token=token
        )

    async def DeleteCredential(
        self, request: pb.DeleteCredentialRequest, caller: UserCaller
    ) -> pb.DeleteCredentialResponse:
        """Deletes a key pair.

        The required permission depends on its owner. Callers without permission get the same answer for
        another user's key pair and for one that does not exist.
        """
        access_key_id = parse_access_key_id(request.access_key_id)
        credential = await self._credentials.find(access_key_id)
        resource = USERS if credential is None else caller.resource(credential=credential)
        try:
            caller.require(resource)
        except TarnError:
            raise credential_not_found(access_key_id) from None
        if credential is None:
            raise credential_not_found(access_key_id)
        if credential.access_key_id == caller.holder.credential.access_key_id:
            raise _oneself(f"access key {access_key_id} makes this call; use another to delete it")
        try:
            await self._credentials.delete(credential)
        finally:
            self._authorizer.forget()
        return pb.DeleteCredentialResponse()

    async def CheckAccess(
        self, request: pb.CheckAccessRequest, caller: UserCaller
    ) -> pb.CheckAccessResponse:
        """Returns whether a user may do something, as stored now: decided by the policy that is enforced."""
        user = await self._owner(caller, request)
        action, resource = parse_action(request.action), parse_resource(request.resource)
        policy = policy_of(user)
        deciding = policy.deciding(action, resource)
        return pb.CheckAccessResponse(
            user_id=user.user_id,
            is_allowed=policy.allows(action, resource),
            deciding=[
                pb.DecidingStatement(role="" if role is None else role.value, statement=statement)
                for role, each in statements_by_role(roles_of(user), user.user_id)
                if each in deciding
                for statement in to_statements([each])
            ],
        )

    async def _owner(
        self,
        caller: UserCaller,
        request: pb.CreateCredentialRequest | pb.ListCredentialsRequest | pb.CheckAccessRequest,
    ) -> User:
        """Returns the user whom a request is about: the named one, or the caller."""
        named = request.user_id
        user_id = parse_user_id(named) if named else caller.holder.user.user_id
        caller.require(caller.resource(user_id=user_id))
        if user_id == caller.holder.user.user_id:
            return caller.holder.user
        return await self._users.get(user_id)


def _oneself(text: str) -> TarnError:
    return TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text)
