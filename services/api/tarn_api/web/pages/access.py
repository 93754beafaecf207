"""Whether a user may do something, and by which role. Auth decides, by the policy that it enforces."""

from __future__ import annotations

from msgspec import Struct

from tarn.core.access.actions import USERS, Action
from tarn_api.context import Context
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, render

__all__ = ["AccessAt", "check"]


class AccessAt(Struct, kw_only=True):
    """A question.

    Attributes:
        user: whom it is about; empty: the caller.
        action: of `Action`; empty: nothing is asked yet.
        resource: named as in `tarn.core.access.actions`.
    """

    user: str = ""
    action: str = ""
    resource: str = ""


async def check(context: Context, at: AccessAt) -> Page:
    """The form, and the answer to what it asked."""
    assert context.grant is not None, "the page is not public"
    found = None
    if at.action or at.resource:
        found = await context.backend.auth.check_access(
            context.read(), at.action, at.resource, user_id=at.user
        )
    return render(
        context,
        "access.html",
        title="Who may what",
        crumbs=[Crumb("Administration", links.to("administration")), Crumb("Who may what")],
        at=at,
        found=found,
        actions=list(Action),
        may_ask_about_others=context.may(Action.READ_USERS, USERS),
    )
