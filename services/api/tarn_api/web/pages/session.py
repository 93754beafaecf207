"""Signing in and out. The cookie, and what ends it: `docs/design/web-sessions.md`."""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from tarn.core.access.key_use import KeyUse
from tarn.core.errors import Kind, TarnError
from tarn_api.browsers import ended_cookie_header, is_from_here, secret_of
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.operations.sessions import begin_session
from tarn_api.signing_in import counted_failures
from tarn_api.web import assets, links
from tarn_api.web.page import Page, redirect, render

__all__ = ["AssetAt", "NextAt", "asset", "icon", "sign_in", "sign_in_form", "sign_out", "signed_in"]


class NextAt(Struct, kw_only=True):
    """Where to go after the sign-in, an address of this origin."""

    next: str = ""


class AssetAt(Struct, kw_only=True):
    """A file of the pages."""

    version: str
    name: str


async def asset(context: Context, at: AssetAt) -> Response:
    """Returns the style sheet, the script or the icon."""
    del context
    return assets.answer(at.version, at.name)


async def icon(context: Context, at: Struct) -> Response:
    """Returns the icon at the address where browsers look for one."""
    del context, at
    return assets.answer("", "icon.svg")


async def sign_in_form(context: Context, at: NextAt) -> Page:
    """The form for a key pair."""
    return _form(context, at.next)


async def sign_in(context: Context, at: NextAt, form: Form) -> Response:
    """Begins a session and goes on; a wrong key pair gets the form again.

    The session is a new one always, so a cookie that somebody else placed signs nobody in.
    """
    _refuse_others(context)
    key, secret = form.need("key", "the access key id"), form.need("secret", "the secret")
    context.trace.access_key_id = key[:128]
    try:
        with counted_failures(context.backend.failures, context.remote):
            token, _ = await context.backend.sign_in.log_in(context.read(), key, secret, KeyUse.WEB)
    except TarnError as error:
        if error.kind is not Kind.UNAUTHENTICATED:
            raise
        context.trace.reason = error.reason.value
        return _form(context, at.next, key=key, is_wrong=True)
    await begin_session(context, token)
    if "Set-Cookie" not in context.headers:
        text = (
            "there is no room for another session, or the installation has not finished its upgrade "
            "(`tarn upgrade finish`)"
        )
        raise ApiError(503, text, reason="OVERLOADED")
    return redirect(links.to("signed-in", next=links.local_target(at.next)))


async def signed_in(context: Context, at: NextAt) -> Response:
    """Goes on after the sign-in, or says why the browser did not keep the cookie: it takes a secure one over TLS
    only."""
    if secret_of(context.request) is not None:
        return redirect(links.local_target(at.next))
    text = (
        "your browser did not keep the cookie of the session: without TLS it keeps one only for localhost. "
        "Open this page by https, or on the machine itself as http://localhost"
    )
    raise ApiError(400, text, reason="NO_COOKIE")


async def sign_out(context: Context, at: Struct, form: Form) -> Response:
    """Ends the session."""
    del at, form
    _refuse_others(context)
    secret = secret_of(context.request)
    if secret is not None:
        await context.backend.sign_in.end_session(context.read(), secret)
        context.headers["Set-Cookie"] = ended_cookie_header(context.request)
    return redirect(links.SIGN_IN)


def _refuse_others(context: Context) -> None:
    """Refuses a form of another site, which could sign its visitor in as somebody else, or out."""
    if not is_from_here(context.request):
        text = "this form was not sent by a page of this Tarn; open the page and send it again"
        raise ApiError(403, text, reason="OTHER_SITE")


def _form(context: Context, target: str, *, key: str = "", is_wrong: bool = False) -> Page:
    return render(
        context,
        "sign_in.html",
        title="Sign in",
        status=401 if is_wrong else 200,
        action=links.to("sign-in", next=links.local_target(target)),
        key=key,
        is_wrong=is_wrong,
    )
