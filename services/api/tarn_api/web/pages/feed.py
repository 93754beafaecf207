"""The live feed of a branch. Without its script the page shows the latest changes of the head, as of now."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tarn_api.context import Context
from tarn_api.feed.events import time_us_of
from tarn_api.feed.looking import BranchView
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, render
from tarn_api.web.place import way_to

__all__ = ["FeedAt", "show"]

_SHOWN_MAX: Final = 200
"""Events that the page keeps; older ones leave it."""


class FeedAt(Struct, kw_only=True):
    """The feed of a branch."""

    repository: str
    branch: str


async def show(context: Context, at: FeedAt) -> Page:
    """The latest changes of the head of a branch, newest first, and what is uncommitted; its script adds what happens
    from now on."""
    call = context.read()
    view = BranchView(context.graveler, at.repository, at.branch)
    found = await view.heads(call, None)
    events = await view.events(call, found.changes)
    is_deleted = bool(found.changes) and not found.changes[-1].new_commit_id
    uncommitted = await view.uncommitted(call, "")
    place = "repositories", at.repository, "branches", at.branch, "events"
    return render(
        context,
        "feed.html",
        title=f"Events of {at.branch}",
        crumbs=[*way_to(at.repository, "" if is_deleted else at.branch), Crumb("Events")],
        at=at,
        events=events[::-1],
        is_deleted=is_deleted,
        uncommitted=uncommitted,
        source=links.to("api", "tarn", "v1", *place),
        after=time_us_of(found.changes[-1]) if found.changes else 0,
        shown_max=_SHOWN_MAX,
    )
