"""Merges, and the common ancestor of two refs."""

from __future__ import annotations

from typing import Final

from tarn.core.errors import Reason, TarnError
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_proto.graveler.v1 import merge_service_pb2 as pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = ["find_merge_base", "merge_into_branch"]

_STRATEGY: Final = ".lakefs.merge.strategy"
"""The name in the metadata of a merge that tells its strategy, as lakeFS has it."""

_STRATEGIES: Final = {
    "": pb.MERGE_SIDE_UNSPECIFIED,
    "source-wins": pb.MERGE_SIDE_SOURCE,
    "dest-wins": pb.MERGE_SIDE_DESTINATION,
}


async def merge_into_branch(
    context: Context, at: op.MergeIntoBranch, body: schemas.Merge | None
) -> schemas.MergeResult:
    """Merges a ref into a branch. A conflict is 409 with an empty reference."""
    body = body or schemas.Merge()
    strategy = body.strategy or ""
    if strategy not in _STRATEGIES:
        text = f"strategy {strategy[:80]!r} is none of source-wins and dest-wins"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    try:
        made = await context.graveler.merge(
            context.change(),
            at.repository,
            at.destination_branch,
            at.source_ref,
            message=body.message or f"Merge '{at.source_ref}' into '{at.destination_branch}'",
            metadata={**(body.metadata or {}), _STRATEGY: strategy or "default"},
            default_side=_STRATEGIES[strategy],
            squash=bool(body.squash_merge),
            allow_empty=bool(body.allow_empty),
        )
    except TarnError as error:
        if error.reason is not Reason.MERGE_CONFLICT:
            raise
        answer = {"reference": "", "message": error.message}
        raise ApiError(409, error.message, reason=error.reason.value, body=answer) from error
    return schemas.MergeResult(reference=made.commit_id)


async def find_merge_base(context: Context, at: op.FindMergeBase) -> schemas.FindMergeBaseResult:
    """Returns the commits of two refs and their common ancestor; of several the first, and an empty text for none."""
    call = context.read()
    page = await context.graveler.diff_refs(
        call,
        at.repository,
        at.destination_branch,
        at.source_ref,
        page_size=1,
        from_merge_base=True,
        names_only=True,
    )
    destination = await context.graveler.get_commit(call, at.repository, at.destination_branch)
    return schemas.FindMergeBaseResult(
        source_commit_id=page.right_commit_id,
        destination_commit_id=destination.commit_id,
        base_commit_id=page.left_commit_id,
    )
