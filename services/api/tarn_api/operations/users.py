"""Users and their key pairs. A user that is made here has no role: `tarn auth user roles` gives it one."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_api.operations.paging import AMOUNT_MAX, amount_of, filled, pagination
from tarn_proto.auth.v1 import user_pb2 as pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "create_credentials",
    "create_user",
    "delete_credentials",
    "delete_user",
    "get_credentials",
    "get_user",
    "list_user_credentials",
    "list_users",
]


async def list_users(context: Context, at: op.ListUsers) -> schemas.UserList:
    """Lists users."""
    call, after = context.read(), at.after or ""

    async def fetch(size: int, token: str) -> tuple[list[pb.User], str]:
        page = await context.backend.auth.list_users(
            call, prefix=at.prefix or "", after=after, page_size=size, page_token=token
        )
        return list(page.users), page.next_page_token

    found, has_more = await filled(fetch, amount_of(at.amount), lambda each: each.user_id, after)
    names = [each.user_id for each in found]
    return schemas.UserList(
        pagination=pagination(names, has_more=has_more),
        results=[shapes.user(each) for each in found],
    )


async def create_user(
    context: Context, at: op.CreateUser, body: schemas.UserCreation | None
) -> schemas.User:
    """Creates a user without key pairs and without a role. No invitation is sent by mail."""
    if body is None:
        raise ApiError(400, "the body is missing", reason="MALFORMED")
    if body.invite_user:
        text = "Tarn sends no mail, so it invites nobody; leave out invite_user"
        raise ApiError(501, text, reason="NOT_IMPLEMENTED")
    return shapes.user(await context.backend.auth.create_user(context.change(), body.id, ()))


async def get_user(context: Context, at: op.GetUser) -> schemas.User:
    """Returns a user."""
    return shapes.user(await context.backend.auth.get_user(context.read(), at.user_id))


async def delete_user(context: Context, at: op.DeleteUser) -> None:
    """Deletes a user and its key pairs."""
    await context.backend.auth.delete_user(context.change(), at.user_id)


async def list_user_credentials(
    context: Context, at: op.ListUserCredentials
) -> schemas.CredentialsList:
    """Lists the key pairs of a user, without secrets."""
    call, prefix, after = context.read(), at.prefix or "", at.after or ""
    # A user has few, so those that are not asked for may be read, too.
    kept = [
        each
        for each in await _pairs_of(context, call, at.user_id)
        if each.access_key_id.startswith(prefix) and each.access_key_id > after
    ]
    amount = amount_of(at.amount)
    names = [each.access_key_id for each in kept[:amount]]
    return schemas.CredentialsList(
        pagination=pagination(names, has_more=len(kept) > amount),
        results=[shapes.credentials(each) for each in kept[:amount]],
    )


async def create_credentials(
    context: Context, at: op.CreateCredentials
) -> schemas.CredentialsWithSecret:
    """Creates a key pair of a user. No other answer contains its secret."""
    made = await context.backend.auth.create_credential(context.change(), user_id=at.user_id)
    return schemas.CredentialsWithSecret(
        access_key_id=made.credential.access_key_id,
        secret_access_key=made.secret_access_key,
        creation_date=made.credential.create_time.seconds,
    )


async def get_credentials(context: Context, at: op.GetCredentials) -> schemas.Credentials:
    """Returns a key pair of a user, without its secret."""
    call = context.read()
    return shapes.credentials(await _pair_of(context, call, at.user_id, at.access_key_id))


async def delete_credentials(context: Context, at: op.DeleteCredentials) -> None:
    """Deletes a key pair of a user; one of another user is not found."""
    call = context.change()
    found = await _pair_of(context, call, at.user_id, at.access_key_id)
    await context.backend.auth.delete_credential(call, found.access_key_id)


async def _pair_of(context: Context, call: Call, user_id: str, access_key_id: str) -> pb.Credential:
    for each in await _pairs_of(context, call, user_id):
        if each.access_key_id == access_key_id:
            return each
    text = f"user {user_id} has no key pair {access_key_id[:128]}"
    raise TarnError(Kind.NOT_FOUND, Reason.CREDENTIAL_NOT_FOUND, text)


async def _pairs_of(context: Context, call: Call, user_id: str) -> list[pb.Credential]:
    """Returns all key pairs of a user, in byte order of their ids."""
    found: list[pb.Credential] = []
    token = ""
    while True:
        page = await context.backend.auth.list_credentials(
            call, user_id=user_id, page_size=AMOUNT_MAX, page_token=token
        )
        found += page.credentials
        token = page.next_page_token
        if not token:
            return found
