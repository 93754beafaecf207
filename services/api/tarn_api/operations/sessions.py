"""Sign-in: a token for a key pair, and a cookie for a browser. Sessions of browsers, and their ends."""

from __future__ import annotations

from tarn.core.access.key_use import KeyUse
from tarn.core.errors import Reason, TarnError
from tarn_api.browsers import (
    cookie_header,
    ended_cookie_header,
    is_from_here,
    secret_of,
)
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_api.signing_in import counted_failures
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "begin_session",
    "end_web_session",
    "end_web_sessions",
    "get_current_user",
    "list_web_sessions",
    "login",
    "sign_out",
]


async def login(
    context: Context,
    at: op.Login,
    body: schemas.LoginInformation | None,
) -> schemas.AuthenticationToken:
    """Returns a caller token of auth, which lives for an hour, but never longer than its key pair and its user."""
    if body is None:
        raise ApiError(400, "the body is missing", reason="MALFORMED")
    sign_in, is_here = context.backend.sign_in, is_from_here(context.request)
    with counted_failures(context.backend.failures, context.remote):
        token, expire_time_us = await sign_in.log_in(
            context.read(),
            body.access_key_id,
            body.secret_access_key,
            KeyUse.WEB if is_here else KeyUse.REST,
        )
    if is_here:
        await begin_session(context, token)
    return schemas.AuthenticationToken(token=token, token_expiration=shapes.seconds(expire_time_us))


async def begin_session(context: Context, token: str) -> None:
    """Gives a browser the cookie of a new session, and ends the one that it had. Without room it has the token only."""
    sign_in = context.backend.sign_in
    if (old := secret_of(context.request)) is not None:
        await sign_in.end_session(context.read(), old)
    try:
        secret = await sign_in.begin_session(context.read(), token)
    except TarnError as error:
        if error.reason not in (Reason.OVERLOADED, Reason.FEATURE_LEVEL):
            raise
        return
    context.headers["Set-Cookie"] = cookie_header(context.request, secret)


async def sign_out(context: Context, at: op.SignOut) -> None:
    """Ends the session of the cookie; whoever signs in by a header has none."""
    secret = secret_of(context.request)
    if secret is not None and "authorization" not in context.request.headers:
        await context.backend.sign_in.end_session(context.read(), secret)
        context.headers["Set-Cookie"] = ended_cookie_header(context.request)


async def list_web_sessions(
    context: Context,
    at: op.ListWebSessions,
) -> schemas.WebSessionList:
    """Returns the sessions of the caller's browsers."""
    found = await context.backend.auth.list_web_sessions(context.read())
    return schemas.WebSessionList(
        results=[
            schemas.WebSession(
                id=each.web_session_id,
                access_key_id=each.access_key_id,
                creation_date=each.create_time.seconds,
                use_date=each.use_time.seconds,
            )
            for each in found
        ]
    )


async def end_web_sessions(context: Context, at: op.EndWebSessions) -> None:
    """Ends all sessions of the caller's browsers."""
    await context.backend.auth.end_web_sessions(context.change())


async def end_web_session(context: Context, at: op.EndWebSession) -> None:
    """Ends a session of the caller's browsers."""
    name = at.session_id
    if not name or not await context.backend.auth.end_web_sessions(
        context.change(), web_session_id=name
    ):
        raise ApiError(404, "there is no such session; it may be over", reason="NO_SUCH_SESSION")


async def get_current_user(
    context: Context,
    at: op.GetCurrentUser,
) -> schemas.CurrentUser:
    """Returns the caller."""
    found = (await context.backend.auth.get_caller(context.read())).user
    return schemas.CurrentUser(user=shapes.user(found))
