"""Users: the list, and the page of each one with its roles, key pairs, sessions and limits. A user sees its own.

The secret of a new key pair is in the answer of the form that made it, and nowhere else.
"""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from tarn.core.access.actions import USERS, Action, session_resource, user_resource
from tarn.core.access.policy import Role
from tarn.core.quota import QuotaKind
from tarn_api.context import Context
from tarn_api.forms import Form
from tarn_api.operations.paging import filled
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.pages.quotas import quota_of
from tarn_api.web.place import PAGE_SIZE
from tarn_proto.auth.v1 import session_key_service_pb2 as session_keys_pb
from tarn_proto.auth.v1 import session_service_pb2 as sessions_pb
from tarn_proto.auth.v1 import user_pb2 as pb

__all__ = [
    "UserAt",
    "UsersAt",
    "account",
    "create_key",
    "create_user",
    "delete_key",
    "delete_user",
    "end_session_key",
    "end_sessions",
    "set_roles",
    "show",
    "users",
]


class UsersAt(Struct, kw_only=True):
    """A page of users.

    Attributes:
        prefix: begins the ids.
        after: the last id of the page before.
    """

    prefix: str = ""
    after: str = ""


class UserAt(Struct, kw_only=True):
    """A page of a user.

    Attributes:
        id: of the user; a parameter, because names have dots.
        keys: token of a page of its key pairs.
        session_keys: token of a page of its session keys.
    """

    id: str
    keys: str = ""
    session_keys: str = ""


async def account(context: Context, at: Struct) -> Response:
    """Goes to the caller's own page."""
    del at
    assert context.grant is not None, "the page is not public"
    return redirect(links.to("user", id=context.grant.user_id))


async def users(context: Context, at: UsersAt) -> Page:
    """The users."""
    call = context.read()

    async def fetch(size: int, token: str) -> tuple[list[pb.User], str]:
        page = await context.backend.auth.list_users(
            call, prefix=at.prefix, after=at.after, page_size=size, page_token=token
        )
        return list(page.users), page.next_page_token

    found, has_more = await filled(fetch, PAGE_SIZE, lambda each: each.user_id, at.after)
    return render(
        context,
        "users.html",
        title="Users",
        crumbs=[Crumb("Administration", links.to("administration")), Crumb("Users")],
        at=at,
        found=found,
        more=found[-1].user_id if has_more else "",
        roles=list(Role),
        may_create=context.may(Action.WRITE_USERS, USERS),
    )


async def show(context: Context, at: UserAt) -> Page:
    """A user. What the caller may not see is left out."""
    auth, call = context.backend.auth, context.read()
    found = await auth.get_user(call, at.id)
    may_keys = context.may(Action.MANAGE_CREDENTIALS, user_resource(at.id))
    may_sessions = context.may(Action.MANAGE_SESSIONS, session_resource(at.id, "*"))
    keys: list[pb.Credential] = []
    more_keys = more_session_keys = ""
    if may_keys:
        page = await auth.list_credentials(
            call, user_id=at.id, page_size=PAGE_SIZE, page_token=at.keys
        )
        keys, more_keys = list(page.credentials), page.next_page_token
    sessions: list[sessions_pb.WebSession] = []
    session_keys: list[session_keys_pb.SessionKey] = []
    if may_sessions:
        sessions = list(await auth.list_web_sessions(call, user_id=at.id))
        listed = await auth.list_session_keys(
            call, user_id=at.id, page_size=PAGE_SIZE, page_token=at.session_keys
        )
        session_keys, more_session_keys = list(listed.session_keys), listed.next_page_token
    return render(
        context,
        "user.html",
        title=f"User {found.user_id}",
        crumbs=[Crumb("Administration", links.to("administration")), Crumb(found.user_id)],
        subject=found,
        roles=list(Role),
        keys=keys,
        more_keys=more_keys,
        sessions=sessions,
        session_keys=session_keys,
        more_session_keys=more_session_keys,
        may_keys=may_keys,
        may_sessions=may_sessions,
        may_write=context.may(Action.WRITE_USERS, user_resource(at.id)),
        quota=await quota_of(context, QuotaKind.USER, at.id),
    )


async def create_user(context: Context, at: Struct, form: Form) -> Response:
    """Creates a user without a key pair, and goes to its page."""
    del at
    name = form.need("name", "the name of the user")
    context.trace.values = {"userId": name}
    await context.backend.auth.create_user(context.change(), name, _roles(form))
    return _to(name)


async def set_roles(context: Context, at: Struct, form: Form) -> Response:
    """Replaces the roles of a user."""
    del at
    name = _user_of(context, form)
    await context.backend.auth.update_user_roles(context.change(), name, _roles(form))
    return _to(name)


async def delete_user(context: Context, at: Struct, form: Form) -> Response:
    """Deletes a user and its key pairs."""
    del at
    await context.backend.auth.delete_user(context.change(), _user_of(context, form))
    return redirect(links.to("users"))


async def create_key(context: Context, at: Struct, form: Form) -> Page:
    """Creates a key pair, and shows its secret: this answer alone has it, and nothing keeps it."""
    del at
    name = _user_of(context, form)
    made = await context.backend.auth.create_credential(
        context.change(), user_id=name, description=form.get("description", "").strip()
    )
    return render(
        context,
        "secret.html",
        title="New key pair",
        crumbs=[Crumb(name, links.to("user", id=name)), Crumb("New key pair")],
        subject=name,
        key=made.credential.access_key_id,
        secret=made.secret_access_key,
    )


async def delete_key(context: Context, at: Struct, form: Form) -> Response:
    """Deletes a key pair, with the sessions that it began."""
    del at
    name, key = _user_of(context, form), form.need("key", "the access key id")
    await context.backend.auth.delete_credential(context.change(), key)
    return _to(name)


async def end_sessions(context: Context, at: Struct, form: Form) -> Response:
    """Ends a session of a user's browsers, or all of them."""
    del at
    name = _user_of(context, form)
    await context.backend.auth.end_web_sessions(
        context.change(), user_id=name, web_session_id=form.get("session", "")
    )
    return _to(name)


async def end_session_key(context: Context, at: Struct, form: Form) -> Response:
    """Ends a session key of a user."""
    del at
    name, key = _user_of(context, form), form.need("key", "the access key id")
    await context.backend.auth.end_session_key(context.change(), key)
    return _to(name)


def _user_of(context: Context, form: Form) -> str:
    name = form.need("user", "the name of the user")
    context.trace.values = {"userId": name}
    return name


def _roles(form: Form) -> list[Role]:
    return [each for each in Role if form.get(f"role-{each}")]


def _to(name: str) -> Response:
    return redirect(links.to("user", id=name))
