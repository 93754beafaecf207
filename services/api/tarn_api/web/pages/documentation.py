"""The documentation on this server: help without another site, of the version that runs."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from tarn_api.context import Context
from tarn_api.web import links
from tarn_api.web.documents import PARTS, document, titles
from tarn_api.web.page import Crumb, Page, render

__all__ = ["DocumentAt", "index", "show"]

_TITLE = "Documentation"


class DocumentAt(Struct, kw_only=True):
    """A page of the documentation."""

    part: str
    page: str


async def index(context: Context, at: Struct) -> Page:
    """The pages of the documentation."""
    del at
    crumbs = [Crumb("Repositories", links.HOME), Crumb(_TITLE)]
    return render(context, "help.html", title=_TITLE, crumbs=crumbs, parts=PARTS, titles=titles())


async def show(context: Context, at: DocumentAt) -> Page:
    """A page of the documentation."""
    # In a thread: the first one who opens it has it rendered.
    found = await asyncio.to_thread(document, at.part, at.page)
    crumbs = [
        Crumb("Repositories", links.HOME),
        Crumb(_TITLE, links.to("docs")),
        Crumb(found.title),
    ]
    return render(context, "document.html", title=found.title, crumbs=crumbs, body=found.body)
