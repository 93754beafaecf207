"""Sign-in: a token for a key pair."""

from __future__ import annotations

from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = ["get_current_user", "login"]


async def login(
    context: Context,
    at: op.Login,
    body: schemas.LoginInformation | None,
) -> schemas.AuthenticationToken:
    """Returns a caller token of auth, which lives for an hour, but never longer than its key pair and its user."""
    if body is None:
        raise ApiError(400, "the body is missing", reason="MALFORMED")
    token, expire_time_us = await context.backend.sign_in.log_in(
        context.read(), body.access_key_id, body.secret_access_key
    )
    return schemas.AuthenticationToken(token=token, token_expiration=shapes.seconds(expire_time_us))


async def get_current_user(
    context: Context,
    at: op.GetCurrentUser,
) -> schemas.CurrentUser:
    """Returns the caller."""
    found = (await context.backend.auth.get_caller(context.read())).user
    return schemas.CurrentUser(
        user=schemas.User(
            id=found.user_id,
            creation_date=found.create_time.seconds,
            friendly_name=found.user_id,
        )
    )
