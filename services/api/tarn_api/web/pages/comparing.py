"""Two refs: what differs, what a merge would do, and the merge."""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from tarn.core.errors import TarnError
from tarn_api.context import Context
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.changes import Comparison, comparison_of
from tarn_api.web.choices import Missing, missing_of, refs_offered
from tarn_api.web.conflicts import CONFLICTS_MAX, choices_of, conflict_rows, side_of
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import RepositoryAt, require_head, way_to
from tarn_api.web.starting import ended_or_started
from tarn_proto.graveler.v1 import merge_service_pb2 as pb

__all__ = ["CompareAt", "MergeAt", "compare", "merge", "preview"]


class CompareAt(Struct, kw_only=True):
    """A page of differences from the left ref to the right one; without both, the form that asks for them."""

    repository: str
    left: str = ""
    right: str = ""
    prefix: str = ""
    after: str = ""


class MergeAt(Struct, kw_only=True):
    """A merge of a ref into a branch."""

    repository: str
    source: str
    destination: str
    after: str = ""


async def compare(context: Context, at: CompareAt) -> Page:
    """What differs between two refs, by folder and by path."""
    compared: Comparison | None = None
    missing: Missing | None = None
    if at.left and at.right:
        try:
            compared = await comparison_of(
                context, at.repository, at.left, at.right, at.prefix, at.after
            )
        except TarnError as error:
            fields = [("left", at.left), ("right", at.right)]
            missing = await missing_of(context, at.repository, fields, error)
    return render(
        context,
        "compare.html",
        title="Compare",
        crumbs=[*way_to(at.repository), Crumb("Compare")],
        at=at,
        compared=compared,
        missing=missing,
        status=404 if missing else 200,
        names=await refs_offered(context, at.repository),
    )


async def preview(context: Context, at: MergeAt) -> Page:
    """What a merge would change, its conflicts, and the form that merges the commit that is shown."""
    found = await context.graveler.preview_merge(
        context.read(),
        at.repository,
        at.destination,
        at.source,
        after=at.after,
        page_size=CONFLICTS_MAX,
    )
    return render(
        context,
        "merge.html",
        title="Merge",
        crumbs=[*way_to(at.repository, at.destination), Crumb("Merge")],
        at=at,
        found=found,
        conflicts=conflict_rows(found.conflicts),
        message=f"Merge '{at.source}' into '{at.destination}'",
    )


async def merge(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Merges the commit that the preview showed into the head that it showed, and goes to the new commit; or to the
    task, if that takes long."""
    branch, commit_id = form.need("destination", "the branch"), form.need("commit", "the commit")
    head = form.need("head", "the head of the branch that you saw")
    context.trace.values = {"repository": at.repository, "branch": branch}
    message = form.need("message", "the message").replace("\r\n", "\n")
    choices = choices_of(form)
    side = side_of(form.get("side", ""))
    await require_head(context, at.repository, branch, head)
    wanted = pb.MergeRequest(
        repository_id=at.repository,
        branch_id=branch,
        source_ref=commit_id,
        message=message,
        choices=choices,
        default_side=side,
        squash=bool(form.get("squash")),
        expected_commit_id=head,
    )
    task = await ended_or_started(context, context.graveler.start_merge, wanted)
    made = task.merge.commit.commit_id
    if not made:
        return redirect(links.to_repository(at.repository, "task", task=task.task_id))
    return redirect(links.to_repository(at.repository, "commits", made, branch=branch))
