"""Two refs: what differs, what a merge would do, and the merge."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from starlette.responses import Response

from tarn.client.commits import ChangesPage
from tarn.core.entry import size_of
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.changes import Change, changes_of
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import RepositoryAt, way_to
from tarn_proto.graveler.v1 import merge_service_pb2 as pb

__all__ = ["CompareAt", "MergeAt", "compare", "merge", "preview"]

_SIDES: Final = {
    "": pb.MERGE_SIDE_UNSPECIFIED,
    "source": pb.MERGE_SIDE_SOURCE,
    "destination": pb.MERGE_SIDE_DESTINATION,
}


class CompareAt(Struct, kw_only=True):
    """A page of differences from the left ref to the right one; without both, the form that asks for them."""

    repository: str
    left: str = ""
    right: str = ""
    after: str = ""


class MergeAt(Struct, kw_only=True):
    """A merge of a ref into a branch."""

    repository: str
    source: str
    destination: str
    after: str = ""


async def compare(context: Context, at: CompareAt) -> Page:
    """What differs between two refs."""
    call = context.read()
    changes: list[Change] = []
    more = ""
    if at.left and at.right:

        async def fetch(size: int, token: str) -> ChangesPage:
            return await context.graveler.diff_refs(
                call,
                at.repository,
                at.left,
                at.right,
                after=at.after,
                page_size=size,
                page_token=token,
            )

        changes, more = await changes_of(fetch, at.after)
    return render(
        context,
        "compare.html",
        title="Compare",
        crumbs=[*way_to(at.repository), Crumb("Compare")],
        at=at,
        changes=changes,
        more=more,
    )


async def preview(context: Context, at: MergeAt) -> Page:
    """What a merge would change, its conflicts, and the form that merges the commit that is shown."""
    found = await context.graveler.preview_merge(
        context.read(), at.repository, at.destination, at.source, after=at.after
    )
    return render(
        context,
        "merge.html",
        title="Merge",
        crumbs=[*way_to(at.repository, at.destination), Crumb("Merge")],
        at=at,
        found=found,
        conflicts=[
            (each.path, _size(each.source_entry), _size(each.destination_entry))
            for each in found.conflicts
        ],
        message=f"Merge '{at.source}' into '{at.destination}'",
    )


async def merge(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Merges the commit that the preview showed, and goes to the new commit."""
    branch, commit_id = form.need("destination", "the branch"), form.need("commit", "the commit")
    side = form.get("side", "")
    if side not in _SIDES:
        text = "conflicts are won by the source, by the destination, or by neither"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    context.trace.values = {"repository": at.repository, "branch": branch}
    made = await context.graveler.merge(
        context.change(),
        at.repository,
        branch,
        commit_id,
        message=form.need("message", "the message").replace("\r\n", "\n"),
        default_side=_SIDES[side],
        squash=bool(form.get("squash")),
    )
    return redirect(links.to_repository(at.repository, "commits", made.commit_id))


def _size(packed: bytes) -> int | None:
    return size_of(packed) if packed else None
