"""The state of a repository: the staged rows of a branch, with their compaction, and garbage collections."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from tarn.core.access.actions import Action, branches_resource, repository_resource
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.choices import branches_offered
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import RepositoryAt, way_to
from tarn_proto.graveler.v1 import collection_service_pb2 as collection_pb
from tarn_proto.graveler.v1 import compaction_service_pb2 as compaction_pb

__all__ = ["StateAt", "compact", "hold", "hours_of", "show"]

_HOURS_MAX: Final = 7 * 24
PHASES: Final = MappingProxyType(
    {
        collection_pb.COLLECTION_PHASE_IDLE: "no run",
        collection_pb.COLLECTION_PHASE_MARK: "mark",
        collection_pb.COLLECTION_PHASE_SWEEP: "sweep",
    }
)
_OUTCOMES: Final = MappingProxyType(
    {
        "compacted": "The staged rows were folded into a listing.",
        "nothing": "There was nothing to compact.",
        "superseded": "Another operation changed the branch meanwhile, so nothing was folded. Try again.",
        "running": "Another compaction of the branch runs, so nothing was done.",
    }
)
_WORDS: Final = MappingProxyType(
    {
        compaction_pb.COMPACTION_OUTCOME_COMPACTED: "compacted",
        compaction_pb.COMPACTION_OUTCOME_NOTHING_TO_DO: "nothing",
        compaction_pb.COMPACTION_OUTCOME_SUPERSEDED: "superseded",
        compaction_pb.COMPACTION_OUTCOME_RUNNING: "running",
    }
)


class StateAt(Struct, kw_only=True):
    """A page of the state of a repository.

    Attributes:
        repository: the repository.
        branch: whose staged rows are shown; empty: the default branch.
        outcome: of a compaction that was asked for.
    """

    repository: str
    branch: str = ""
    outcome: str = ""


async def show(context: Context, at: StateAt) -> Page:
    """The state. Collections are shown to those who may see them."""
    call = context.read()
    branch = at.branch
    if not branch:
        branch = (await context.graveler.get_repository(call, at.repository)).default_branch_id
    rows = await context.graveler.staging_statistics(call, at.repository, branch)
    collection = None
    if context.may(Action.MANAGE_COLLECTION, repository_resource(at.repository)):
        collection = await context.backend.rpcs.collections.get(call, at.repository)
    return render(
        context,
        "state.html",
        title="State",
        crumbs=[*way_to(at.repository), Crumb("State")],
        repository=at.repository,
        branch=branch,
        rows=rows,
        outcome=_OUTCOMES.get(at.outcome, ""),
        collection=collection,
        phases=PHASES,
        names=await branches_offered(context, at.repository),
        may_compact=context.may(Action.COMPACT_REPO, branches_resource(at.repository) + branch),
    )


async def compact(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Folds the uncommitted changes of a branch into one listing; changes no content."""
    branch = form.need("branch", "the branch")
    context.trace.values = {"repository": at.repository, "branch": branch}
    made = await context.graveler.compact_branch(context.change(), at.repository, branch)
    outcome = _WORDS.get(made.outcome, "")
    return redirect(links.to_repository(at.repository, "state", branch=branch, outcome=outcome))


async def hold(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Lets no collection begin or go on for some hours; 0 ends that."""
    seconds = hours_of(form, least=0) * 3600
    await context.backend.rpcs.collections.hold(context.change(), at.repository, seconds)
    return redirect(links.to_repository(at.repository, "state"))


def hours_of(form: Form, *, least: int) -> int:
    """Returns a number of hours, of a week at most.

    Raises:
        ApiError: 400.
    """
    text = form.get("hours", "").strip()
    is_number = text.isascii() and text.isdecimal() and len(text) <= 3
    if not is_number or not least <= int(text) <= _HOURS_MAX:
        said = f"the hours are a whole number from {least} to {_HOURS_MAX}"
        raise ApiError(400, said, reason="INVALID_ARGUMENT")
    return int(text)
