"""Who changed what last: for each path of a ref the commit that gave it its present content."""

from __future__ import annotations

from msgspec import Struct

from tarn_api.context import Context
from tarn_api.web.choices import refs_offered
from tarn_api.web.page import Crumb, Page, render
from tarn_api.web.place import PAGE_SIZE, way_to

__all__ = ["AnnotateAt", "show"]


class AnnotateAt(Struct, kw_only=True):
    """A page of the paths of a ref.

    Attributes:
        repository: the repository.
        ref: any ref; a branch stands for its head.
        prefix: begins the paths.
        token: of the page.
    """

    repository: str
    ref: str
    prefix: str = ""
    token: str = ""


async def show(context: Context, at: AnnotateAt) -> Page:
    """The paths with their last changes. Graveler ends the search of a page; such lines lead on."""
    page = await context.graveler.annotate_paths(
        context.read(),
        at.repository,
        at.ref,
        prefix=at.prefix,
        page_size=PAGE_SIZE,
        page_token=at.token,
    )
    return render(
        context,
        "annotate.html",
        title=f"Last changes of {at.prefix or at.ref}",
        crumbs=[*way_to(at.repository, at.ref), Crumb("Last changes")],
        at=at,
        lines=page.lines,
        more=page.next_page_token,
        names=await refs_offered(context, at.repository),
    )
