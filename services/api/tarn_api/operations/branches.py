"""Branches: creation, deletion, reset, revert and cherry-pick."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.operations import shapes
from tarn_api.operations.paging import amount_of, filled, pagination
from tarn_proto.graveler.v1 import branch_service_pb2 as pb
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "cherry_pick",
    "create_branch",
    "delete_branch",
    "get_branch",
    "hard_reset_branch",
    "list_branches",
    "reset_branch",
    "revert_branch",
]


async def list_branches(context: Context, at: op.ListBranches) -> schemas.RefList:
    """Lists branches."""
    call, after = context.read(), at.after or ""

    async def fetch(size: int, token: str) -> tuple[list[pb.Branch], str]:
        page = await context.graveler.list_branches(
            call,
            at.repository,
            prefix=at.prefix or "",
            page_size=size,
            page_token=token,
            include_hidden=at.show_hidden,
            after=after,
        )
        return list(page.branches), page.next_page_token

    found, has_more = await filled(fetch, amount_of(at.amount), lambda each: each.branch_id, after)
    names = [each.branch_id for each in found]
    return schemas.RefList(
        pagination=pagination(names, has_more=has_more), results=[_ref(each) for each in found]
    )


async def create_branch(context: Context, at: op.CreateBranch, body: schemas.BranchCreation) -> str:
    """Creates a branch; returns the commit at which it begins. `hidden` changes nothing: the rules of the repository
    tell which branches are hidden (`docs/design/rest-api.md`, "Differences")."""
    made = await context.graveler.create_branch(
        context.change(), at.repository, body.name, body.source
    )
    return made.commit_id


async def get_branch(context: Context, at: op.GetBranch) -> schemas.Ref:
    """Returns a branch."""
    return _ref(await context.graveler.get_branch(context.read(), at.repository, at.branch))


async def delete_branch(context: Context, at: op.DeleteBranch) -> None:
    """Deletes a branch and its uncommitted changes; that of the default branch is refused with 403."""
    try:
        await context.graveler.delete_branch(context.change(), at.repository, at.branch)
    except TarnError as error:
        if (
            error.kind is not Kind.FAILED_PRECONDITION
            or error.reason is not Reason.INVALID_ARGUMENT
        ):
            raise
        raise ApiError(403, error.message, reason=error.reason.value) from error


async def reset_branch(context: Context, at: op.ResetBranch, body: schemas.ResetCreation) -> None:
    """Discards uncommitted changes: all, those below a prefix, or that of one object."""
    if body.type != "reset" and not body.path:
        raise ApiError(400, f"a reset of type {body.type} needs a path", reason="INVALID_ARGUMENT")
    await context.graveler.reset_branch(
        context.change(),
        at.repository,
        at.branch,
        prefix=body.path if body.type == "common_prefix" else None,
        path=body.path if body.type == "object" else None,
    )


async def revert_branch(
    context: Context, at: op.RevertBranch, body: schemas.RevertCreation
) -> None:
    """Undoes the changes of a commit by a new one. A merge without `parent_number` is 409."""
    overrides = body.commit_overrides or schemas.CommitOverrides()
    call = context.change()
    commit = await context.graveler.get_commit(call, at.repository, body.ref)
    _require_parent(commit, body.parent_number)
    await context.graveler.revert(
        call,
        at.repository,
        at.branch,
        commit.commit_id,
        parent_number=body.parent_number,
        message=overrides.message or "",
        metadata=overrides.metadata,
        allow_empty=bool(body.allow_empty),
    )


async def cherry_pick(
    context: Context, at: op.CherryPick, body: schemas.CherryPickCreation
) -> schemas.Commit:
    """Applies the changes of a commit by a new one, which keeps its metadata and says where it comes from."""
    overrides = body.commit_overrides or schemas.CommitOverrides()
    call = context.change()
    commit = await context.graveler.get_commit(call, at.repository, body.ref)
    _require_parent(commit, body.parent_number or 0)
    origin = {"cherry-pick-origin": commit.commit_id, "cherry-pick-committer": commit.committer}
    made = await context.graveler.cherry_pick(
        call,
        at.repository,
        at.branch,
        commit.commit_id,
        parent_number=body.parent_number or 0,
        message=overrides.message or "",
        metadata={**commit.metadata, **origin, **(overrides.metadata or {})},
    )
    return shapes.commit(made)


async def hard_reset_branch(context: Context, at: op.HardResetBranch) -> None:
    """Moves the head of a branch to the commit of a ref. Uncommitted changes refuse it, or `force` discards them."""
    call = context.change()
    branch = await context.graveler.get_branch(call, at.repository, at.branch)
    await context.graveler.move_branch(
        call,
        at.repository,
        at.branch,
        at.ref,
        expected_commit_id=branch.commit_id,
        force=at.force,
    )


def _require_parent(commit: commit_pb.Commit, parent_number: int) -> None:
    """Refuses a merge without a parent as lakeFS does; graveler checks all else about it."""
    if len(commit.parent_ids) > 1 and not parent_number:
        text = (
            f"commit {commit.commit_id} is a merge; parent_number must say which of its parents it "
            "is compared with (1 is the branch that took the merge)"
        )
        raise ApiError(409, text, reason=Reason.INVALID_ARGUMENT.value)


def _ref(branch: pb.Branch) -> schemas.Ref:
    return schemas.Ref(id=branch.branch_id, commit_id=branch.commit_id)
