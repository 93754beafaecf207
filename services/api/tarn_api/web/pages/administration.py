"""The administration of the installation: where its parts are, and the pause of compactions."""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from tarn.core.access.actions import AUDIT, QUOTAS, REPOSITORIES, USERS, Action
from tarn.core.errors import Kind, TarnError
from tarn_api.context import Context
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.pages.state import hours_of
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb

__all__ = ["administration", "pause", "resume"]

_COMPACTORS = "compactor/*"


async def administration(context: Context, at: Struct) -> Page:
    """What the caller may administer."""
    del at
    may_see_pause = context.may(Action.MANAGE_COMPACTION, REPOSITORIES)
    found, compactors = None, []
    if may_see_pause:
        found = await context.graveler.get_compaction_pause(context.read())
        compactors = await _compactors(context)
    return render(
        context,
        "administration.html",
        title="Administration",
        crumbs=[Crumb("Repositories", links.HOME), Crumb("Administration")],
        may_users=context.may(Action.READ_USERS, USERS),
        may_audit=context.may(Action.READ_AUDIT, AUDIT),
        may_quotas=context.may(Action.READ_QUOTAS, QUOTAS),
        may_see_pause=may_see_pause,
        may_pause=context.may(Action.MANAGE_COMPACTION, _COMPACTORS),
        pause=found,
        compactors=compactors,
    )


async def _compactors(context: Context) -> list[pb.WatchingCompactor]:
    """Returns the compactors that watch; none of a graveler of an earlier release, which does not know them."""
    try:
        return await context.graveler.list_compactors(context.read())
    except TarnError as error:
        if error.kind is not Kind.UNIMPLEMENTED:
            raise
        return []


async def pause(context: Context, at: Struct, form: Form) -> Response:
    """Has no compactor start a compaction for some hours; running ones finish."""
    del at
    await context.graveler.begin_compaction_pause(context.change(), hours_of(form, least=1) * 3600)
    return redirect(links.to("administration"))


async def resume(context: Context, at: Struct, form: Form) -> Response:
    """Ends the pause of all compactors."""
    del at, form
    await context.graveler.end_compaction_pause(context.change())
    return redirect(links.to("administration"))
